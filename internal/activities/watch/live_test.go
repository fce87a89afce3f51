package watch

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestCarriedOf: what threads carry now is listed, with what it has cost so far; not what has
// ended, nor what a thread that is gone has left.
func TestCarriedOf(t *testing.T) {
	w := newWorld(t, "")
	p := newProgram(9, &w.now, 8)
	for i := range 4 {
		p.begin(i, "query")
		p.carry(i, 70+i, i)
		w.now += ms
	}
	p.end(1)         // and its thread is not told yet
	p.carry(2, 0, 2) // its thread has ended
	list := w.CarriedOf(p)
	assert.Equal(t, len(list), 2)
	for i, slot := range []int{0, 3} {
		c := &list[i]
		assert.Check(t, c.Slot == slot && c.Live && c.Name == "query" && c.Threads[0] == 70+slot && c.Elapsed() == uint64(4-slot)*ms, "%+v", c.Record)
		assert.Check(t, c.Values[wall] == c.Elapsed(), "%+v", c.Values)
	}
	p.maps.Shared = p.maps.Shared[:64]
	assert.Equal(t, len(w.CarriedOf(p)), 0, "maps that are too short")
}
