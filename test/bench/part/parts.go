package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/tailcam/tailcam/test/bench/hooked"
)

// part is something that is in, or out, and can be brought in, and taken out.
type part struct {
	name    string
	found   bool // it was in
	is      bool // it is
	in, out func() error
}

// set changes where it is, if need be.
func (p *part) set(in bool) error {
	if p.is == in {
		return nil
	}
	p.is = in
	if in {
		return p.in()
	}
	return p.out()
}

// rest leaves it as it was found.
func (p *part) rest() error { return p.set(p.found) }

// compared are programs that do nothing, and next to nothing.
func compared() []part {
	return []part{
		onSwitches("an empty program at each switch", hooked.Empty()),
		onSwitches("one that reads the clock", asm.Instructions{asm.FnKtimeGetNs.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return()}),
	}
}

func onSwitches(name string, code asm.Instructions) part {
	var s hooked.Set
	out := func() error {
		err := s.Close()
		s = hooked.Set{}
		return err
	}
	in := func() error { return s.Attach("sched_switch", slices.Clone(code), nil) }
	return part{name: name, in: in, out: out}
}

// attached are programs of the tailcam that runs: each is jumped to by way of a map that has
// its name (tracker/kernel), from which it can be taken.
func attached() ([]part, error) {
	var list []part
	var id ebpf.MapID
	for {
		var err error
		id, err = ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		p, err := jumped(id)
		if err != nil {
			return nil, err
		}
		if p != nil {
			list = append(list, *p)
		}
	}
	all := slices.Clone(list)
	list = slices.DeleteFunc(list, func(p part) bool { return p.name != "sched_switch" && p.name != "sched_waking" })
	if len(list) == 0 {
		return nil, errors.New("no tailcam runs: start it, such as by make run")
	}
	each := func(do func(p part) error) func() error {
		return func() error {
			var errs []error
			for _, p := range all {
				errs = append(errs, do(p))
			}
			return errors.Join(errs...)
		}
	}
	return append(list, part{
		name: fmt.Sprintf("all %d of tailcam", len(all)), found: true, is: true,
		in:  each(func(p part) error { return p.in() }),
		out: each(func(p part) error { return p.out() }),
	}), nil
}

// jumped is the part that a map of programs holds; nil: none, or the map is gone.
func jumped(id ebpf.MapID) (*part, error) {
	m, err := ebpf.NewMapFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := m.Info()
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	var holds uint32
	if m.Type() != ebpf.ProgramArray || m.Lookup(uint32(0), &holds) != nil {
		return nil, m.Close()
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(holds))
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	in := func() error { return m.Put(uint32(0), p) }
	out := func() error { return m.Delete(uint32(0)) }
	return &part{name: info.Name, found: true, is: true, in: in, out: out}, nil
}
