package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// CanTrace tells why the kernel refuses fentry; nil: it does not. The answer
// takes a program that is attached for a moment, so it is kept.
var CanTrace = sync.OnceValue(func() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "bpf_fentry_test1", License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if errors.Is(err, os.ErrPermission) {
		return errors.New("the kernel refuses it, or root is needed to ask")
	}
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // it did what it was for
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return fmt.Errorf("the kernel refuses to attach it: %w", err)
	}
	return l.Close()
})
