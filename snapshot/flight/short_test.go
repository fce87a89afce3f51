package flight

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// shortWriter is a writer of short records, too, in an order that a seed gives.
type shortWriter struct {
	writer
	now  uint64
	half uint64 // number of the pair that lacks its second record, plus 1
}

// event writes the next event; its time is one more than that of the one before.
func (w *shortWriter) event(short bool) {
	w.now++
	if !short {
		number := w.state.Position
		w.write()
		atomic.StoreUint64(&w.slots[number%uint64(len(w.slots))][timeWord], w.now)
		return
	}
	n := w.half - 1
	second := w.half > 0 && n/w.size == w.state.Position/w.size
	if !second {
		n = w.state.Position
		w.write() // takes the number, and prepares the next part
	}
	s := &w.slots[n%uint64(len(w.slots))]
	half := s[:pairWord]
	w.half = 0
	if second {
		half = s[pairWord:]
	} else {
		s[pairWord+timeWord] = 0
		w.half = n + 1
	}
	part := n / w.size
	atomic.StoreUint64(&half[0], uint64(trace.SchedWaking)|abi.RecordShort|uint64(uint16(part))<<abi.RecordLapShift|7<<32)
	atomic.StoreUint64(&half[2], 9|9<<32)
	atomic.StoreUint64(&half[3], 0)
	atomic.StoreUint64(&half[timeWord], w.now)
}

// drained checks that times rise, and counts.
func drained(t *testing.T, d snapshot.Drained, last uint64) (newest uint64, events int, missing uint64) {
	t.Helper()
	for _, s := range d.CPUs {
		missing += s.Missing
		for i := range s.Records {
			r := &s.Records[i]
			assert.Assert(t, r.Time() > last, "time %d after %d", r.Time(), last)
			assert.Assert(t, missing > 0 || r.Time() == last+1, "time %d after %d, and nothing is missing", r.Time(), last)
			assert.Assert(t, r.TID() == 7)
			last = r.Time()
			events++
		}
	}
	return last, events, missing
}

// TestPairs: each event is read once, in the order of time, also the second one
// of a pair whose first one was read long before.
func TestPairs(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			w := &shortWriter{writer: *newWriter(64)}
			m := w.recorder()
			m.kernel = w
			var last uint64
			for range 300 {
				for range random.IntN(200) {
					w.event(random.IntN(8) < int(seed%9))
				}
				d, err := m.Drain()
				assert.NilError(t, err)
				newest, _, missing := drained(t, d, last)
				assert.Assert(t, missing == 0 && newest == w.now, "read up to %d of %d, %d missing", newest, w.now, missing)
				last = newest
			}
		})
	}
}

// What was overwritten is missing, and what is there is in order.
func TestPairsOverwritten(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	w := &shortWriter{writer: *newWriter(8)}
	m := w.recorder()
	m.kernel = w
	var last uint64
	for range 100 {
		for range random.IntN(1000) {
			w.event(random.IntN(2) == 0)
		}
		d, err := m.Drain()
		assert.NilError(t, err)
		newest, events, missing := drained(t, d, last)
		assert.Assert(t, uint64(events)+2*missing >= w.now-last, "%d events and %d missing of %d", events, missing, w.now-last)
		last = max(last, newest)
	}
}

func TestNames(t *testing.T) {
	named := func(at uint64, name string) (n tracker.Name) {
		n.Since = at
		copy(n.Comm[:], name)
		return n
	}
	n := newNames(&namedKernel{names: []tracker.Name{named(500, "new"), named(300, "old"), named(100, "other")}})
	for _, tc := range []struct {
		tid  int
		at   uint64
		want string
	}{
		{7, 600, "new"}, {7, 500, "new"}, {7, 499, "old"}, {7, 299, "other"}, {7, 99, unknownName},
		{8, 600, unknownName}, {0, 1, "swapper/3"},
	} {
		got := n.at(tc.tid, 3, tc.at).String()
		assert.Check(t, got == tc.want, "thread %d at %d: %q, want %q", tc.tid, tc.at, got, tc.want)
	}
}

type namedKernel struct {
	Kernel
	names []tracker.Name
}

func (k *namedKernel) Names(tid int) []tracker.Name {
	if tid == 7 {
		return k.names
	}
	return nil
}
