package export

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/export/flame"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// maxHeap is how much more memory an export may hold than there was before it,
// what waits to be collected on a busy machine included.
const maxHeap = 48 << 20

// TestMemory: the memory of an export does not grow with its trace. The trace
// has TAILCAM_EXPORT_EVENTS events, by default one million: 60 MB of CTF.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a large trace: left out with -short")
	}
	events := 1_000_000
	if n, err := strconv.Atoi(os.Getenv("TAILCAM_EXPORT_EVENTS")); err == nil {
		events = n
	}
	dir := largeSnapshot(t, events)
	var size int64
	files, _ := filepath.Glob(filepath.Join(dir, "trace", "kernel", "*"))
	for _, f := range files {
		st, err := os.Stat(f)
		assert.NilError(t, err)
		size += st.Size()
	}
	for _, f := range Formats {
		for _, kind := range flame.Kinds {
			stacks := f == Folded || f == SVG
			if !stacks && kind != flame.OnCPU || stacks && kind == flame.OutlierTime {
				continue
			}
			o := all(f, Stdout)
			if o.Time = kind; f == CTF {
				o.Out = filepath.Join(t.TempDir(), "ctf")
			}
			var r Result
			start := time.Now()
			high := highWater(func() {
				var err error
				r, err = Run(context.Background(), dir, io.Discard, o)
				assert.Check(t, err, "%s", f)
			})
			assert.Check(t, r.Events == uint64(events), "%s: %d events of %d", f, r.Events, events)
			if high > maxHeap {
				t.Errorf("%s of %d MB holds %d MiB, more than %d", f, size/1e6, high>>20, maxHeap>>20)
			}
			t.Logf("%s %s: %d MB of trace, %.1f MiB of heap at most, %s", f, kind, size/1e6, float64(high)/(1<<20), time.Since(start))
		}
	}
}

// largeSnapshot writes a trace of 4 CPUs.
func largeSnapshot(t *testing.T, events int) string {
	t.Helper()
	var tr trace.Trace
	for cpu := range 4 {
		r := newRecords(cpu, bootNS)
		r.out = make([]trace.Record, 0, events/4)
		r.busy(events / 4)
		tr.CPUs = append(tr.CPUs, trace.CPU{CPU: cpu, Records: r.out})
	}
	return writeSnapshot(t, tr, nil, nil)
}

// highWater returns by how much the heap grew at most, garbage included.
func highWater(do func()) uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	heap := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	runtime.GC() // what finalizers and pools held
	base := heap()
	stop, high := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		for {
			most = max(most, heap())
			select {
			case <-stop:
				high <- most
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	do()
	close(stop)
	return max(<-high, base) - base
}
