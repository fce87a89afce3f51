package guest

import (
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/rules"
)

// canTrace tries whether functions of this kernel can be attached to. arm64 before
// 6.4 has nothing that would call the programs ("arm64: ftrace: Add direct call support").
var canTrace = sync.OnceValue(func() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "probe", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFExit, AttachTo: "vfs_fsync_range", License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return err
	}
	return l.Close()
})

// needFunctions skips a test of what is attached to functions.
func needFunctions(t *testing.T) {
	t.Helper()
	if err := canTrace(); err != nil {
		t.Skipf("functions of this kernel cannot be attached to: %v", err)
	}
}

// attachCalls is how rules for system calls that are not about that attach.
func attachCalls() rules.Attach {
	if canTrace() != nil {
		return rules.AttachAll
	}
	return rules.AttachAuto
}
