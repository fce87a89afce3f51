package fields

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
		{Function: "[unknown]", Module: "app"},
		{Function: "ns::(anonymous namespace)::run(int)", Module: "app", File: "src/run.cc", Line: 7},
		{Function: "outer", Module: "app", File: "b.h", Line: 4, Inlined: true},
		{Function: "inner", Module: "app", File: "a.h", Line: 3, Inlined: true},
		{Function: "fsync", Module: "libc.so.6"},
		{Function: "[unknown]", Kernel: true},
		{Function: "do_syscall_64", Kernel: true},
		{Function: "ext4_sync_file", Module: "ext4", Kernel: true},
	}
	if diff := cmp.Diff(want, Frames(&s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWords(t *testing.T) {
	// include/linux/blk_types.h: WRITE | SYNC | PREFLUSH | FUA, as ext4 writes a commit block.
	if got := RWBS(1 | sync | preflush | fua); got != "FWFS" {
		t.Errorf("a commit is %q", got)
	}
	for flags, want := range map[uint32]string{0: "R", 0 | readAhead | meta: "RAM", 2 | preflush: "FF", 3: "D", 5: "DE", 34: "N"} {
		if got := RWBS(flags); got != want {
			t.Errorf("%#x is %q, want %q", flags, got, want)
		}
	}
	for state, want := range map[uint32]string{0: "R", 1: "S", 2: "D", 0x402: "I", 4: "T", 8: "t", 0x80: "X", 0x40: "P"} {
		if got := State(&trace.Switch{PrevState: state}); got != want {
			t.Errorf("%#x is %q, want %q", state, got, want)
		}
	}
	if got := State(&trace.Switch{Preempted: true}); got != "R+" {
		t.Errorf("preempted is %q", got)
	}
	if Vector(3) != "NET_RX" || Vector(99) != "unknown" {
		t.Error("vectors")
	}
}
