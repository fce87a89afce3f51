// Package hooked keeps programs that a benchmark has made, and attached to tracepoints itself.
package hooked

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Set is what is attached. Each program has a hook and a link of the same number.
type Set struct {
	Hooks    []string
	Programs []*ebpf.Program
	Links    []link.Link
	Others   []io.Closer // what they use; closed after them
}

// Empty is a program that does nothing.
func Empty() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
}

// Attach loads a program onto a tracepoint by its BTF.
func (s *Set) Attach(hook string, code asm.Instructions, maps map[string]*ebpf.Map) error {
	for name, m := range maps {
		if err := code.AssociateMap(name, m); err != nil && !errors.Is(err, asm.ErrUnreferencedSymbol) {
			return err
		}
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bench", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: hook,
		Instructions: code, License: "Dual BSD/GPL",
	})
	if err != nil {
		return fmt.Errorf("load a program for %s: %w", hook, err)
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return errors.Join(fmt.Errorf("attach to %s: %w", hook, err), p.Close())
	}
	s.Add(hook, p, l)
	return nil
}

// Add takes over what was attached elsewhere.
func (s *Set) Add(hook string, p *ebpf.Program, l link.Link) {
	s.Hooks, s.Programs, s.Links = append(s.Hooks, hook), append(s.Programs, p), append(s.Links, l)
}

// Close detaches and unloads all.
func (s *Set) Close() error {
	var errs []error
	for _, l := range s.Links {
		errs = append(errs, l.Close())
	}
	for _, p := range s.Programs {
		errs = append(errs, p.Close())
	}
	for _, c := range s.Others {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
