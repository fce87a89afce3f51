package watch

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// TestOfTraces: live activities of a trace are found, and those that ended not too long ago, and
// none of others or without one; what is no id finds nothing.
func TestOfTraces(t *testing.T) {
	w := &world{now: 1000 * ms}
	w.Watcher = New(&Options{Processes: func() []Process { return w.list }, Now: func() uint64 { return w.now }})
	p := w.add(8)
	for i, id := range []byte{1, 1, 2, 0} {
		p.begin(i, "work")
		p.token(i).TraceId[15], p.token(i).SpanId[7] = id, 9
	}
	w.Scan()
	w.now += 10 * ms
	p.end(1)
	w.Scan()
	const first, second = "00000000000000000000000000000001", "00000000000000000000000000000002"
	found := func(since uint64, ids ...string) (n int, live int) {
		for _, r := range w.OfTraces(ids, since) {
			assert.Check(t, slices.Contains(ids, r.TraceID) && r.SpanID == "0000000000000009", "%+v", r)
			n++
			if r.Live {
				live++
			}
		}
		return n, live
	}
	n, live := found(0, first)
	assert.Check(t, n == 2 && live == 1, "%d, %d", n, live)
	n, live = found(w.now+1, first, second)
	assert.Check(t, n == 2 && live == 2, "%d, %d", n, live)
	for _, id := range []string{"", "1", "00000000000000000000000000000000", "x0000000000000000000000000000001", first + "ff", first + "0"} {
		n, _ := found(0, id)
		assert.Check(t, n == 0, id)
	}
	p.end(0)
	p.begin(0, "again") // the same element for something else
	n, live = found(w.now+1, first)
	assert.Check(t, n == 0 && live == 0, "%d, %d", n, live)
}

// TestLiveNamed: live activities of a name are found, the one that began first before the others,
// and none that has ended, or has another name.
func TestLiveNamed(t *testing.T) {
	w := &world{now: 1000 * ms}
	w.Watcher = New(&Options{Processes: func() []Process { return w.list }, Now: func() uint64 { return w.now }})
	first, second := w.add(8), w.add(8)
	w.Scan()
	names := func() (list []int) {
		for _, r := range w.LiveNamed(func(name string) bool { return name == "work" }) {
			assert.Check(t, r.Name == "work" && r.Live, "%+v", r)
			list = append(list, r.PID)
		}
		return list
	}
	second.begin(3, "work")
	w.now += ms
	first.begin(0, "work")
	first.begin(1, "other")
	w.now += ms
	assert.DeepEqual(t, names(), []int{second.PID(), first.PID()})
	second.end(3)
	second.begin(3, "other")
	assert.DeepEqual(t, names(), []int{first.PID()})
	first.end(0)
	assert.Check(t, names() == nil)
}
