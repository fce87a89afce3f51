package fields

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

func TestFrames(t *testing.T) {
	s := events.Stacks{
		Kernel: []string{"ext4_sync_file+0x1a0 [ext4]", "do_syscall_64+0x71", "[unknown] 0xffffffffc0001000"},
		User: []string{
			"fsync+0xb (libc.so.6)", "ns::(anonymous namespace)::run(int)+0x10 (app)", "[unknown] (app+0x1234)", "operator()+0x1", "",
		},
		Sources: &events.Sources{User: []events.Source{
			{}, {File: "src/run.cc", Line: 7, Inlined: []events.Inlined{{Function: "inner", File: "a.h", Line: 3}, {Function: "outer", File: "b.h", Line: 4}}},
		}},
	}
	want := []Frame{
		{Function: "[unknown]"},
		{Function: "operator()"},
		{Function: "[unknown]", Module: "app", Address: 0x1234},
		{Function: "ns::(anonymous namespace)::run(int)", Module: "app", File: "src/run.cc", Line: 7},
		{Function: "outer", Module: "app", File: "b.h", Line: 4, Inlined: true},
		{Function: "inner", Module: "app", File: "a.h", Line: 3, Inlined: true},
		{Function: "fsync", Module: "libc.so.6"},
		{Function: "[unknown]", Kernel: true, Address: 0xffffffffc0001000},
		{Function: "do_syscall_64", Kernel: true},
		{Function: "ext4_sync_file", Module: "ext4", Kernel: true},
	}
	assert.Check(t, is.DeepEqual(want, Frames(&s)))
}

func TestWords(t *testing.T) {
	for state, want := range map[uint32]string{0: "R", 1: "S", 2: "D", 0x402: "I", 4: "T", 8: "t", 0x80: "X", 0x40: "P"} {
		assert.Check(t, is.Equal(State(&trace.Switch{PrevState: state}), want), "%#x", state)
	}
	got := State(&trace.Switch{Preempted: true})
	assert.Check(t, got == "R+", "preempted is %q", got)
}
