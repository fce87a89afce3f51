package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/bench/hooked"
	"github.com/tailcam/tailcam/test/bench/peer"
)

// part is something that can be in, or out. Here it is out, unless it is said to be in.
type part struct {
	name    string
	in, out func() error
	end     func() error // of programs that are loaded for it; nil: of none
}

// set brings it in, or takes it out.
func (p *part) set(in bool) error {
	if in {
		return p.in()
	}
	return p.out()
}

// passedByNone is a tracepoint of stacked disks: attaching to it shows what attaching does.
const passedByNone = "block_rq_remap"

// compared are programs that do nothing, and next to nothing: no program that tells when
// costs less.
func compared() []part {
	clock := asm.Instructions{asm.FnKtimeGetNs.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return()}
	return []part{
		onHooks("an empty program where nothing passes", hooked.Empty(), passedByNone),
		onHooks("an empty program at each switch", hooked.Empty(), "sched_switch"),
		onHooks("one that reads the clock", clock, "sched_switch"),
		onHooks(emptyMostFrequent, hooked.Empty(), frequent...),
		onHooks("those that read the clock", clock, frequent...),
	}
}

const (
	emptyMostFrequent = "empty ones where tailcam has its most frequent"
	withDaemon        = ": all programs, and the daemon" // after the tailcam's name
)

// emptyOf is the name of empty programs where a tailcam has its own.
func emptyOf(name string) string { return "empty ones where " + name + " has its own" }

// empty are empty programs where the daemon has its own now, of those that can be frequent: nobody
// who sees the same events takes less.
func (d *daemon) empty() (p part, err error) {
	had, err := peer.FilesOf(d.cmd.Process.Pid)
	if err == nil && len(had.Tracepoints) == 0 {
		err = fmt.Errorf("%s has attached nothing to tracepoints", d.name)
	}
	if err != nil {
		return p, err
	}
	hooks := slices.DeleteFunc(slices.Concat(frequent, frequentOfSome), func(hook string) bool { return !slices.Contains(had.Tracepoints, hook) })
	return onHooks(emptyOf(d.name), hooked.Empty(), hooks...), nil
}

// onHooks are programs at tracepoints. They are loaded once, as loading them takes more time than
// what they do.
func onHooks(name string, code asm.Instructions, hooks ...string) part {
	var s hooked.Set
	in := func() error {
		for _, hook := range hooks[len(s.Programs):] {
			if err := s.Load(hook, slices.Clone(code), nil); err != nil {
				return err
			}
		}
		if err := s.Link(); err != nil {
			return errors.Join(err, s.Unlink())
		}
		return nil
	}
	return part{name: name, in: in, out: s.Unlink, end: s.Close}
}

// slots are the programs of one tailcam: each is jumped to by way of a map that has its
// name (tracker/kernel), from which it can be taken.
type slots map[string]slot

type slot struct {
	array   *ebpf.Map
	program *ebpf.Program
}

// slotsBut finds the slots of maps that are not among those known, and adds these maps to them.
func slotsBut(known map[ebpf.MapID]bool) (slots, error) {
	found := slots{}
	for id := ebpf.MapID(0); ; {
		var err error
		id, err = ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return found, nil
		}
		if err == nil && !known[id] {
			known[id] = true
			err = found.add(id)
		}
		if err != nil {
			return nil, errors.Join(err, found.close())
		}
	}
}

// add takes up a map if it is an array that holds a program.
func (s slots) add(id ebpf.MapID) error {
	m, err := ebpf.NewMapFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := m.Info()
	if err != nil {
		return errors.Join(err, m.Close())
	}
	var holds uint32
	if m.Type() != ebpf.ProgramArray || m.Lookup(uint32(0), &holds) != nil {
		return m.Close()
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(holds))
	if err != nil {
		return errors.Join(err, m.Close())
	}
	s[info.Name] = slot{m, p}
	return nil
}

func (s slots) close() error {
	var errs []error
	for _, k := range s {
		errs = append(errs, k.array.Close(), k.program.Close())
	}
	return errors.Join(errs...)
}

// all brings all programs in, or takes them out: at once, as the kernel waits for a grace
// period for each that it takes out (bpf_arch_poke_desc_update).
func (s slots) all(in bool) error {
	var g errgroup.Group
	for _, k := range s {
		g.Go(func() error {
			if in {
				return k.array.Put(uint32(0), k.program)
			}
			if err := k.array.Delete(uint32(0)); !errors.Is(err, ebpf.ErrKeyNotExist) {
				return err
			}
			return nil
		})
	}
	return g.Wait()
}

// busiest are the programs that busy services pass most, by what their names begin with.
var busiest = []string{"sched_switch", "sched_waking", "hrtimer_", "timer_", "contention_"}

// parts are the busiest programs, each with all others in, then all of them, and all with the daemon.
func (s slots) parts(name string, d *daemon) []part {
	of := func(name string, some slots) part {
		return part{name: name, in: func() error { return some.all(true) }, out: func() error { return some.all(false) }}
	}
	var list []part
	for _, begin := range busiest {
		some := maps.Clone(s)
		maps.DeleteFunc(some, func(program string, _ slot) bool { return !strings.HasPrefix(program, begin) })
		if len(some) > 0 {
			list = append(list, of(name+": "+begin, some))
		}
	}
	list = append(list, of(fmt.Sprintf("%s: all %d programs", name, len(s)), s))
	process := d.cmd.Process
	return append(list, part{
		name: name + withDaemon,
		in:   func() error { return errors.Join(process.Signal(unix.SIGCONT), s.all(true)) },
		out:  func() error { return errors.Join(process.Signal(unix.SIGSTOP), s.all(false)) },
	})
}
