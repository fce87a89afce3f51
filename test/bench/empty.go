package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/tracker"
)

// own is a set of programs that this program made and attached itself.
type own struct {
	hooks []string
	progs []*ebpf.Program
	links []link.Link
	other []interface{ Close() error }
}

// startEmpty attaches a program that does nothing to every hook that any
// setup uses: what it is said to cost is the cost of the statistics.
func startEmpty(context.Context) (running, error) {
	probes, err := tracker.Probes()
	if err != nil {
		return nil, err
	}
	o := &own{}
	for _, p := range probes {
		hook, ours := strings.CutPrefix(p.Name, "tp_btf:") // the others are what pairs may have
		if !ours || !p.Available {
			continue
		}
		if err := o.attach(hook, empty(), nil); err != nil {
			return nil, errors.Join(err, o.stop())
		}
	}
	return o, o.attach("sched_wakeup", empty(), nil)
}

func empty() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
}

// attach loads a program onto a tracepoint by its BTF.
func (o *own) attach(hook string, code asm.Instructions, maps map[string]*ebpf.Map) error {
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
	o.progs = append(o.progs, p)
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", hook, err)
	}
	o.hooks, o.links = append(o.hooks, hook), append(o.links, l)
	return nil
}

func (o *own) programs() ([]program, error) {
	var list []program
	for i, p := range o.progs {
		s, err := p.Stats()
		if err != nil {
			return nil, err
		}
		list = append(list, program{o.hooks[i], s.RunCount, s.Runtime})
	}
	return list, nil
}

func (o *own) stop() error {
	var errs []error
	for _, l := range o.links {
		errs = append(errs, l.Close())
	}
	for _, p := range o.progs {
		errs = append(errs, p.Close())
	}
	for _, c := range o.other {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
