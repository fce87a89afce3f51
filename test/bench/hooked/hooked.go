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

// Set is what is loaded, and attached or not. Each program has a hook, and a link of the same
// number while it is attached.
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
	if err := s.Load(hook, code, maps); err != nil {
		return err
	}
	return s.Link()
}

// Load loads a program for a tracepoint, without attaching it.
func (s *Set) Load(hook string, code asm.Instructions, maps map[string]*ebpf.Map) error {
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
	s.Hooks, s.Programs = append(s.Hooks, hook), append(s.Programs, p)
	return nil
}

// Link attaches what is loaded and not attached.
func (s *Set) Link() error {
	for i := len(s.Links); i < len(s.Programs); i++ {
		l, err := link.AttachTracing(link.TracingOptions{Program: s.Programs[i]})
		if err != nil {
			return fmt.Errorf("attach to %s: %w", s.Hooks[i], err)
		}
		s.Links = append(s.Links, l)
	}
	return nil
}

// Unlink detaches all, and keeps it loaded.
func (s *Set) Unlink() error {
	var errs []error
	for _, l := range s.Links {
		errs = append(errs, l.Close())
	}
	s.Links = nil
	return errors.Join(errs...)
}

// Add takes over what was attached elsewhere.
func (s *Set) Add(hook string, p *ebpf.Program, l link.Link) {
	s.Hooks, s.Programs, s.Links = append(s.Hooks, hook), append(s.Programs, p), append(s.Links, l)
}

// Close detaches and unloads all.
func (s *Set) Close() error {
	errs := []error{s.Unlink()}
	for _, p := range s.Programs {
		errs = append(errs, p.Close())
	}
	for _, c := range s.Others {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
