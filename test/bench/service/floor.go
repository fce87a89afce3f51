package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/internal/accounts"
)

// floor is a program that does nothing on each tracepoint that groups of accounts have: less than
// that, nothing costs that sees the same events.
type floor struct {
	programs []*ebpf.Program
	links    []link.Link
}

// Variants of floor.
const (
	vFloor    = "floor"
	vFloorAll = "floor-all"
)

var floors = []variant{
	{name: vFloor, title: "empty programs where activities have theirs", start: onHooksOf(accounts.Default())},
	{name: vFloorAll, title: "empty programs where all groups have theirs", start: onHooksOf(accounts.Names())},
}

func onHooksOf(groups []string) func(context.Context, *env) (running, error) {
	return func(context.Context, *env) (running, error) {
		list, err := accounts.List()
		if err != nil {
			return nil, err
		}
		f := &floor{}
		attached := map[string]bool{}
		for i := range list {
			for _, p := range list[i].Programs {
				hook, ours := strings.CutPrefix(p.Hook, "tp_btf:")
				if !ours || !p.Available || attached[hook] || !slices.Contains(groups, list[i].Group) {
					continue
				}
				attached[hook] = true
				if err := f.attach(hook); err != nil {
					return nil, errors.Join(err, f.stop())
				}
			}
		}
		return f, nil
	}
}

func (f *floor) attach(hook string) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "floor", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: hook, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load a program for %s: %w", hook, err)
	}
	f.programs = append(f.programs, p)
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", hook, err)
	}
	f.links = append(f.links, l)
	return nil
}

func (f *floor) stop() error {
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	for _, p := range f.programs {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
