package watchdog

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestCheck(t *testing.T) {
	busy := State{Work: "an outlier"}
	for _, c := range []struct {
		name  string
		state func(check uint64) State
		hung  bool
	}{
		{"works", func(n uint64) State { return State{Done: n} }, false},
		{"idle", func(uint64) State { return State{Idle: true} }, false},
		{"hangs", func(uint64) State { return busy }, true},
		{"hangs after work", func(n uint64) State { return State{Done: min(n, 3)} }, true},
		{"waits for the disk", func(uint64) State { return State{Waits: "the disk"} }, false},
		{"each piece takes most of its time", func(n uint64) State { return State{Done: n / Patience} }, false},
		{"waits, then hangs", func(n uint64) State {
			if n < 5 {
				return State{Waits: "the disk"}
			}
			return busy
		}, true},
		{"hangs but for a moment", func(n uint64) State { return State{Idle: n%Patience == 0} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var check uint64
			w := New([]Part{{Name: "it", State: func() State {
				check++
				return c.state(check)
			}}})
			var first int
			for i := range 20 {
				if hung, _ := w.Check(); len(hung) > 0 && first == 0 {
					first = i + 1
					assert.Equal(t, hung[0].Checks, Patience, "found late")
				}
			}
			assert.Equal(t, first > 0, c.hung, "first found at check %d", first)
		})
	}
}

// TestCheckEach: one part that hangs does not hide another, and gets on again.
func TestCheckEach(t *testing.T) {
	var done uint64
	w := New([]Part{
		{"one", func() State { return State{Done: done, Work: "samples"} }},
		{"two", func() State { return State{} }},
		{"three", func() State { return State{Waits: "the disk"} }},
	})
	var hung, waits []Finding
	for range Patience {
		hung, waits = w.Check()
	}
	assert.DeepEqual(t, names(hung), []string{"one", "two"})
	assert.DeepEqual(t, names(waits), []string{"three"})
	assert.Equal(t, hung[0].Work, "samples")
	done++
	hung, _ = w.Check()
	assert.DeepEqual(t, names(hung), []string{"two"})
}

func names(list []Finding) (names []string) {
	for i := range list {
		names = append(names, list[i].Part)
	}
	return names
}
