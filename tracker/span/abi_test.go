package span

import (
	"testing"

	"github.com/tailcam/tailcam/bpf/abi"
)

// The package imports nothing, so that it can be copied anywhere: its numbers
// are held to those of the kernel side here.
func TestABI(t *testing.T) {
	got := [...]int{faccessat2, mode, opBegin, opEnd, MaxKey + 1}
	if want := [...]int{abi.SpanSyscall, abi.SpanMode, abi.SpanBegin, abi.SpanEnd, abi.SpanKeyLen}; got != want {
		t.Errorf("numbers %v, want %v", got, want)
	}
}
