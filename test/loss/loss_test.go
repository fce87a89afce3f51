package loss

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/test/support/sequence"
	"github.com/tailcam/tailcam/tracker"
)

const (
	threshold = 20 * time.Millisecond
	ringSize  = 2 << 20
)

// TestNumbers: numbered records on every CPU, as fast as it goes and with
// pauses, while single outliers and bursts of 1,000 come. Every snapshot has
// each number, or tells that it has not; every outlier has its snapshot, or is
// counted as suppressed.
func TestNumbers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading the kernel side needs root")
	}
	for _, tc := range []struct {
		name, backend string
		cpus          int // 0: all
		rest          time.Duration
	}{
		{"mmap, all CPUs, full load", flight.BackendMmap, 0, 0},
		{"mmap, all CPUs, 50,000 calls a second", flight.BackendMmap, 0, 20 * time.Microsecond},
		{"mmap, two CPUs, full load", flight.BackendMmap, 2, 0},
		{"perf, all CPUs, full load", flight.BackendPerf, 0, 0},
		{"perf, all CPUs, 50,000 calls a second", flight.BackendPerf, 0, 20 * time.Microsecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var cpus []int
			for c := range runtime.NumCPU() {
				if tc.cpus == 0 || c < tc.cpus {
					cpus = append(cpus, c)
				}
			}
			b := begin(t, tc.backend)
			g, err := sequence.Start(cpus, tc.rest)
			assert.NilError(t, err)
			time.Sleep(300 * time.Millisecond) // history
			for range 4 {
				b.provoke(t, 1)
			}
			b.provoke(t, 1000)
			b.provoke(t, 1)
			time.Sleep(100 * time.Millisecond)
			threads, err := g.Stop()
			assert.NilError(t, err)
			b.end(t)
			b.check(t, threads)
		})
	}
}

// bed is tailcam without its daemon: the kernel side, its recorder and the snapshots.
type bed struct {
	kernel   *tracker.Tracker
	ring     flight.Recorder
	manager  *snapshot.Manager
	store    *snapshot.Store
	stop     context.CancelFunc
	running  sync.WaitGroup
	got      int // outliers read; after end
	wanted   int // of these, that want a snapshot
	provoked int
}

func begin(t *testing.T, backend string) *bed {
	t.Helper()
	b := &bed{}
	nr, ok := rules.SyscallNumber("read")
	assert.Assert(t, ok, "no such system call here: read")
	rule := rules.Rule{
		Name: "sleep", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: threshold,
		When:     rules.Match{Comm: []string{sleeperComm}, Syscall: []int{nr}},
		Snapshot: rules.SnapshotPolicy{Enabled: true, After: 5 * time.Millisecond, Every: time.Millisecond, Burst: 500},
	}
	opts := &tracker.Options{Groups: []string{"syscall"}, Buffer: 8 << 20} // a rule always has half of it
	if backend == flight.BackendMmap {
		opts.Ring = ringSize
	}
	var err error
	b.kernel, err = tracker.New([]rules.Rule{rule}, opts)
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, b.kernel.Close())
	})
	b.ring, err = flight.New(b.kernel, backend, ringSize)
	assert.NilError(t, err)
	b.store, err = snapshot.OpenStore(snapshot.StoreOptions{Dir: filepath.Join(t.TempDir(), "snapshots")})
	assert.NilError(t, err)
	if b.manager, err = snapshot.New(snapshot.Options{
		Recorder: b.ring, Store: b.store, RingRecords: b.ring.Capacity(), SyscallName: rules.SyscallName,
		MaxJoin: 20 * time.Millisecond,
	}); err != nil {
		t.Fatal(err)
	}
	assert.NilError(t, b.kernel.Attach())
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.running.Go(func() {
		assert.Check(t, b.manager.Run(ctx))
	})
	b.running.Go(func() {
		for {
			o, err := b.kernel.Read()
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			b.got++
			if o.WantsSnapshot {
				b.wanted++
			}
			b.manager.Submit(o, o.MatchedRule)
		}
	})
	return b
}

// provoke lets n threads wake up at once out of a call that took too long.
func (b *bed) provoke(t *testing.T, n int) {
	t.Helper()
	out, err := exec.Command("/proc/self/exe", sleepersVerb, strconv.Itoa(n)).CombinedOutput()
	assert.NilError(t, err, "sleepers: %v\n%s", err, out)
	b.provoked += n
}

// end lets what is under way come to its end, and stops.
func (b *bed) end(t *testing.T) {
	t.Helper()
	time.Sleep(100 * time.Millisecond) // the last window
	b.stop()
	assert.Check(t, b.kernel.Stop())
	b.running.Wait()
}

func (b *bed) check(t *testing.T, threads []sequence.Thread) {
	t.Helper()
	list, broken, err := b.store.List()
	assert.NilError(t, err)
	assert.Check(t, len(broken) == 0, "broken snapshots: %v", broken)
	var all sequence.Found
	in := 0
	for _, s := range list {
		m, err := snapshot.ReadMeta(s.Dir)
		assert.NilError(t, err)
		in += len(m.Outliers)
		f, err := sequence.Check(s.Dir, threads)
		assert.Check(t, err, "%s", s.ID)
		assert.Check(t, f.Numbers != 0, "%s has no number at all", s.ID)
		all.Numbers += f.Numbers
		all.Holes += f.Holes
		all.Vouched += f.Vouched
	}
	c, err := b.kernel.Counters()
	assert.NilError(t, err)
	k, s := c.Rules["sleep"], b.manager.Stats()
	t.Logf("%d snapshots with %d numbers, %d samples of them vouched for; %d numbers are missing in gaps that are told of", len(list), all.Numbers, all.Vouched, all.Holes)
	t.Logf("%d outliers of %d sleepers: %d in snapshots (%d joined), %d suppressed by the limit, %d by the queue; %d drains",
		k.Outliers, b.provoked, in, s.Joined, k.Suppressed, s.Skipped["sleep"], s.Drains)
	assert.Check(t, all.Vouched != 0, "no snapshot vouches for a single sample: nothing is proved")
	assert.Check(t, int(k.Outliers) >= b.provoked && b.got+int(k.RingFull) == int(k.Outliers),
		"%d outliers of %d sleepers, %d read, %d found the ring buffer full", k.Outliers, b.provoked, b.got, k.RingFull)
	assert.Check(t, in+int(s.Skipped["sleep"]) == b.wanted && b.wanted+int(k.Suppressed) == b.got && s.Failed <= 0,
		"of %d outliers %d are in snapshots, %d suppressed by the limit, %d by the queue; %d snapshots failed: the rest is not accounted for", b.got, in, k.Suppressed, s.Skipped["sleep"], s.Failed)
}
