package within

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestDoReturnsValue(t *testing.T) {
	g := NewGate[int](1)
	for i := range 3 {
		v, err := Do(g, 7, time.Minute, func() int { return i })
		assert.Assert(t, v == i && err == nil, "got %d, %v; want %d", v, err, i)
	}
}

func TestStuckKeyIsRefusedUntilItReturns(t *testing.T) {
	g := NewGate[int](4)
	release := make(chan struct{})
	block := func() int { <-release; return 1 }

	_, err := Do(g, 7, time.Millisecond, block)
	assert.ErrorIs(t, err, ErrTimeout, "blocked call")
	_, err = Do(g, 7, time.Minute, block)
	assert.ErrorIs(t, err, ErrStuck, "same key")
	v, err := Do(g, 8, time.Minute, func() int { return 2 })
	assert.Assert(t, v == 2 && err == nil, "other key: got %d, %v", v, err)
	assert.Assert(t, g.Stuck() == 1, "got %d stuck, want 1", g.Stuck())
	close(release)
	for g.Stuck() != 0 {
		time.Sleep(time.Millisecond)
	}
	v, err = Do(g, 7, time.Minute, func() int { return 3 })
	assert.Assert(t, v == 3 && err == nil, "after release: got %d, %v", v, err)
}

func TestAllSlotsStuck(t *testing.T) {
	g := NewGate[int](2)
	release := make(chan struct{})
	defer close(release)
	for key := range 2 {
		_, err := Do(g, key, time.Millisecond, func() int { <-release; return 0 })
		assert.ErrorIs(t, err, ErrTimeout)
	}
	_, err := Do(g, 99, time.Hour, func() int { return 0 })
	assert.ErrorIs(t, err, ErrStuck)
}

// A panic reaches whoever asked, and leaves nothing behind.
func TestDoPanics(t *testing.T) {
	g := NewGate[int](1)
	for range 3 {
		func() {
			defer func() {
				p, ok := recover().(*Panicked)
				assert.Check(t, ok && p.Value == "bad file" && strings.Contains(string(p.Stack), "TestDoPanics"),
					"got %v", p)
			}()
			_, err := Do(g, 1, time.Minute, func() int { panic("bad file") })
			t.Errorf("it has returned: %v", err)
		}()
	}
	n, err := Do(g, 1, time.Minute, func() int { return 7 })
	assert.Check(t, n == 7 && err == nil && g.Stuck() == 0 && g.Panics() == 3,
		"afterwards: %d, %v, %d stuck, %d panics", n, err, g.Stuck(), g.Panics())
}

// One that was left behind panics for nobody.
func TestDoPanicsLate(t *testing.T) {
	g := NewGate[int](1)
	release := make(chan struct{})
	_, err := Do(g, 1, time.Millisecond, func() int { <-release; panic("late") })
	assert.ErrorIs(t, err, ErrTimeout)
	close(release)
	for g.Stuck() > 0 || g.Panics() == 0 {
		time.Sleep(time.Millisecond) // hangs if it is never over
	}
}
