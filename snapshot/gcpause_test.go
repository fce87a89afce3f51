package snapshot

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// collectorSays reads GOGC and GOMEMLIMIT as they are now.
func collectorSays() (percent, limit uint64) {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}

// While a snapshot of real-time threads is under way nothing is collected, up
// to a limit; afterwards all is as it was.
func TestGarbageIsHeld(t *testing.T) {
	percent, limit := collectorSays()
	var g gcPause
	g.start(1000)
	g.start(1000)
	held, bound := collectorSays()
	assert.Check(t, held != percent && bound < limit,
		"held: GOGC=%d GOMEMLIMIT=%d, before %d and %d", held, bound, percent, limit)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 64 {
		sink = make([]byte, 1<<20)
	}
	if runtime.ReadMemStats(&after); after.NumGC != before.NumGC {
		t.Errorf("%d collections while it is held", after.NumGC-before.NumGC)
	}
	for range 1024 {
		sink = make([]byte, 1<<20)
	}
	if runtime.ReadMemStats(&after); after.NumGC == before.NumGC {
		t.Error("a gigabyte, and no collection")
	}
	g.end()
	g.end()
	p, l := collectorSays()
	assert.Check(t, p == percent && l == limit,
		"released: GOGC=%d GOMEMLIMIT=%d, before %d and %d", p, l, percent, limit)
}

// A limit that is set meanwhile, as tables have grown, stays.
func TestGarbageLimitOfOthers(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	var g gcPause
	g.start(1000)
	debug.SetMemoryLimit(1 << 40)
	g.end()
	_, limit := collectorSays()
	assert.Equal(t, limit, uint64(1<<40))
}

var sink []byte // so that it is allocated on the heap

// The manager holds it from the first snapshot to the last, and for real-time threads only.
func TestManagerHoldsGarbage(t *testing.T) {
	percent, limit := collectorSays()
	for _, priority := range []int{0, 1} {
		if priority > 0 && os.Geteuid() != 0 {
			t.Skip("real-time priority needs CAP_SYS_NICE")
		}
		held := make(chan bool, 1)
		m, stop := running(t, Options{
			Recorder: newMemRecorder(10), Store: testStore(t, StoreOptions{}), RTPriority: priority,
			Explain: func(*trace.Reader, *Meta, func() *Names) (*Explanation, error) {
				p, _ := collectorSays()
				held <- p != percent
				return &Explanation{}, nil
			},
		})
		_, err := m.TakeNow("")
		assert.NilError(t, err)
		got := <-held
		assert.Check(t, got == (priority > 0), "priority %d: held %t", priority, got)
		stop()
		p, l := collectorSays()
		assert.Check(t, p == percent && l == limit,
			"priority %d, afterwards: GOGC=%d GOMEMLIMIT=%d, before %d and %d", priority, p, l, percent, limit)
	}
}
