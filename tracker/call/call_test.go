package call

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/kernel"
)

// TestEnds: exits come before entries, and twice where tasks are preempted.
func TestEnds(t *testing.T) {
	for preempted, exits := range map[bool]int{true: 2, false: 1} {
		got := endsOf(preempted)
		assert.Check(t, len(got) == exits+1 && got[exits].program == "call_entry", "%t: %v", preempted, got)
		for _, e := range got[:exits] {
			assert.Check(t, e.program == "call_exit", "%t: %v", preempted, got)
		}
	}
}

// programs are those of a machine.
type programs struct {
	narrow bool
	err    error
	asked  int
}

func (p *programs) FindNarrow() error { return p.err }

func (p *programs) NarrowSeen() (bool, error) {
	p.asked++
	return p.narrow, p.err
}

func functions(names ...string) kernel.CallFunctions {
	list := kernel.CallFunctions{}
	for _, name := range names {
		list[name] = kernel.CallFunction{Name: name}
	}
	return list
}

func setOf(p *programs) *Set {
	return &Set{
		narrow: p, wake: make(chan struct{}, 1), wanted: kernel.CallFunctions{}, wanted32: kernel.CallFunctions{},
		attached: map[string]bool{}, failed: map[string]error{},
	}
}

// TestNarrow: functions of 32-bit programs are missing once there is such a program,
// and never those twice that are of both.
func TestNarrow(t *testing.T) {
	p := &programs{}
	s := setOf(p)
	missing := func(want ...string) {
		t.Helper()
		assert.Check(t, is.DeepEqual(slices.Sorted(maps.Keys(s.missing())), want))
	}
	s.Want(functions("read", "pause"), functions("read32", "pause"))
	<-s.wake
	s.Look()
	assert.Check(t, len(s.wake) == 0 && !s.Status().Seen32)
	missing("pause", "read")
	assert.Check(t, is.Equal(s.Status().Part32.Functions, 1))

	p.narrow = true
	s.Look()
	assert.Check(t, len(s.wake) == 1 && s.Status().Seen32)
	missing("pause", "read", "read32")
	<-s.wake
	p.narrow = false // it has ended; its like may come again
	s.Look()
	assert.Check(t, len(s.wake) == 0 && s.Status().Seen32 && p.asked == 2, "%d", p.asked)

	s.attached["read"], s.attached["read32"], s.failed["pause"] = true, true, errors.New("refused")
	missing()
	got := s.Status()
	assert.Check(t, got.Attached == 1 && len(got.Failed) == 1 && got.Part32.Attached == 1 && len(got.Part32.Failed) == 0, "%+v", got)
	s.Want(functions("read32"), nil) // on another machine it is of both
	missing()
}

// TestNarrowUnknown: if nobody can tell, that is told, once.
func TestNarrowUnknown(t *testing.T) {
	p := &programs{err: errors.New("no map")}
	s := setOf(p)
	s.Look()
	assert.Check(t, p.asked == 0 && s.Status().Err32 == nil, "it asks although no rule wants to know")
	s.Want(nil, functions("read32"))
	<-s.wake
	for range 3 {
		s.Look()
	}
	assert.Check(t, p.asked == 1 && len(s.wake) == 1 && !s.Status().Seen32)
	assert.ErrorContains(t, s.Status().Err32, "no map")
}
