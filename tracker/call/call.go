// Package call attaches to the functions that system calls have in the kernel,
// so that calls which no rule names cost nothing.
//
// What works on a call is loaded once (bpf/call.bpf.c). Each function gets two
// programs of a few instructions which jump into it: a hundred are loaded in
// milliseconds, attached in a second or more, and detached in many seconds. So
// Run attaches while everything else works, and Off takes the programs out of
// use at once. Functions that only 32-bit programs use are attached to once there
// is such a program.
package call

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// end is one end of a call.
type end struct {
	attach  ebpf.AttachType
	program string // in bpf/call.bpf.c
	site    string
}

// ends are in the order of attaching: what ends a call comes first, so nothing
// is left pending by the start.
var ends = []end{
	{ebpf.AttachTraceFExit, "call_exit", "fexit:"},
	{ebpf.AttachTraceFEntry, "call_entry", "fentry:"},
}

// endsOf are those of a kernel. Where tasks are preempted in programs, the kernel skips a program
// that another task is in on the same CPU. That would leave the call pending, so its exit has two,
// of which the second finds nothing to do.
func endsOf(preempted bool) []end {
	if preempted {
		return append(slices.Clone(ends[:1]), ends...)
	}
	return ends
}

// way is where programs of one type of function, at one end, jump to.
type way struct {
	proto string
	end   ebpf.AttachType
}

// Set are the system calls whose functions are attached to. Its methods may be
// called from several goroutines at once.
type Set struct {
	kernel    *kernel.Objects
	narrow    narrowSource
	spec      *ebpf.CollectionSpec
	types     *btf.Spec
	scratches *ebpf.Map
	ends      []end
	wake      chan struct{}

	pass     sync.Mutex        // held while functions are attached, and guards what follows
	ways     map[way]*ebpf.Map // of one program
	programs []*ebpf.Program   // that jump
	pinned   int               // ends of functions that are pinned
	unpinned bool              // others are not

	mu       sync.Mutex // guards what follows
	wanted   kernel.CallFunctions
	wanted32 kernel.CallFunctions // of 32-bit programs alone
	seen32   bool                 // there is, or was, such a program
	err32    error                // why that cannot be found out
	attached map[string]bool
	failed   map[string]error
	off      bool
}

// narrowSource tells whether there are 32-bit programs.
type narrowSource interface {
	// FindNarrow looks at the programs that run.
	FindNarrow() error
	// NarrowSeen reports whether there were any, then or since.
	NarrowSeen() (bool, error)
}

// Status is how far attaching has come.
type Status struct {
	Part         // functions of 64-bit programs' calls; some are of 32-bit programs as well
	Part32 Part  // those that are of 32-bit programs alone
	Seen32 bool  // there is, or was, such a program
	Err32  error // why that cannot be found out
}

// Part is how far attaching to some functions has come.
type Part struct {
	Functions int              // that are wanted
	Attached  int              // of them
	Failed    map[string]error // that the kernel has refused, by function
}

// Load loads what works on the calls of the plan that k was loaded for, and takes over the
// functions that an earlier daemon has left attached. Nothing is done if it has none.
func Load(k *kernel.Objects, types *btf.Spec) (*Set, error) {
	s := &Set{
		kernel: k, narrow: k, types: types, wake: make(chan struct{}, 1), ways: map[way]*ebpf.Map{},
		wanted: kernel.CallFunctions{}, wanted32: kernel.CallFunctions{}, attached: map[string]bool{}, failed: map[string]error{},
	}
	s.add(k.Plan().Calls, k.Plan().Calls32)
	for _, f := range allOf(s.wanted, s.wanted32) {
		if err := s.open(f.Proto); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if err := s.resume(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare reads what is loaded for each type of function, the first time.
func (s *Set) prepare() error {
	if s.spec != nil {
		return nil
	}
	preemption, err := kernel.PreemptionHere()
	if err != nil {
		return err
	}
	s.ends = endsOf(preemption.Functions)
	spec, err := bpf.LoadCall()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := kernel.ShareVariables(spec); err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	scratches := spec.Maps["call_scratches"].Copy()
	scratches.MaxEntries = uint32(cpus * abi.CallScratches)
	if s.scratches, err = ebpf.NewMap(scratches); err != nil {
		return fmt.Errorf("make scratch memory of system calls: %w", err)
	}
	s.spec = spec
	return nil
}

// Renew loads again what functions jump into, for what the kernel side is loaded for now.
// Without functions (see rules.AttachAll) they do nothing from here on.
func (s *Set) Renew() error {
	if s.kernel.Plan().CallsByTracepoint() {
		return s.Off()
	}
	s.pass.Lock()
	defer s.pass.Unlock()
	for w := range s.ways {
		if w.end != ends[0].attach {
			continue
		}
		if err := s.load(w.proto); err != nil {
			return err
		}
	}
	s.look(s.narrow.FindNarrow())
	s.again()
	return nil
}

// open loads what functions of this type jump into, unless it is.
func (s *Set) open(proto string) error {
	if s.ways[way{proto, ends[0].attach}] != nil {
		return nil
	}
	if err := s.prepare(); err != nil {
		return err
	}
	return s.load(proto)
}

// load loads what functions of this type jump into. It must be
// loaded for one of them: openat has arguments, getpid has none.
func (s *Set) load(proto string) error {
	var f kernel.CallFunction
	for _, call := range []string{"openat", "getpid"} {
		if found, err := kernel.FindCall(call, s.types); err == nil && found.Proto == proto {
			f = found
		}
	}
	spec := s.spec.Copy()
	for _, e := range ends {
		spec.Programs[e.program].AttachTo, spec.Programs[e.program].AttachType = f.Name, e.attach
	}
	c, err := s.kernel.LoadShared(spec, map[string]*ebpf.Map{"call_scratches": s.scratches}, nil)
	if err != nil {
		return fmt.Errorf("load the programs for system calls: %w", err)
	}
	defer c.Close()
	for _, e := range ends {
		m := s.ways[way{proto, e.attach}]
		if m == nil {
			if m, err = s.kernel.CallTable(tableName(e, proto)); err != nil {
				return err
			}
			s.ways[way{proto, e.attach}] = m
		}
		if err := m.Put(uint32(0), c.Programs[e.program]); err != nil {
			return fmt.Errorf("fill a table of programs: %w", err)
		}
	}
	return nil
}

// Want adds functions: Run attaches to them. They cannot be taken back. Those in
// narrow are for 32-bit programs.
func (s *Set) Want(calls, narrow kernel.CallFunctions) {
	s.mu.Lock()
	s.add(calls, narrow)
	s.mu.Unlock()
	s.again()
}

func (s *Set) add(calls, narrow kernel.CallFunctions) {
	maps.Copy(s.wanted, calls)
	maps.Copy(s.wanted32, narrow)
	maps.DeleteFunc(s.wanted32, func(name string, _ kernel.CallFunction) bool {
		_, both := s.wanted[name]
		return both
	})
}

// again lets Run attach to what is missing.
func (s *Set) again() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run attaches to the functions of all calls that are wanted, now and later,
// until ctx is done, and tells each time that it has come to an end. To those of
// 32-bit programs it attaches once Look has found such a program.
func (s *Set) Run(ctx context.Context, done func(Status)) {
	s.look(s.narrow.FindNarrow())
	for {
		s.Attach(ctx)
		if ctx.Err() == nil {
			done(s.Status())
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
	}
}

// Look asks whether there is a 32-bit program, and if so, lets Run attach to what
// only such use. Once a second is often enough.
func (s *Set) Look() {
	if s.look(nil) {
		s.again()
	}
}

// look asks whether there is a 32-bit program, until there is, or it fails, as
// with err. It reports whether that is news.
func (s *Set) look(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.seen32 || s.err32 != nil:
		return false
	case err != nil:
		s.err32 = err
	case len(s.wanted32) > 0:
		s.seen32, s.err32 = s.narrow.NarrowSeen()
	}
	return s.seen32 || s.err32 != nil
}

// Attach attaches to the functions of all calls that are wanted now, or until
// ctx is done, which may be one function late.
func (s *Set) Attach(ctx context.Context) {
	s.pass.Lock()
	defer s.pass.Unlock()
	missing := s.missing()
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if ctx.Err() != nil {
			return
		}
		err := s.attach(missing[name])
		s.mu.Lock()
		if err != nil {
			s.failed[name] = err
		} else {
			s.attached[name] = true
		}
		s.mu.Unlock()
	}
}

func (s *Set) missing() kernel.CallFunctions {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := maps.Clone(s.wanted)
	if s.seen32 {
		missing = allOf(s.wanted, s.wanted32)
	}
	maps.DeleteFunc(missing, func(name string, _ kernel.CallFunction) bool {
		return s.off || s.attached[name] || s.failed[name] != nil
	})
	return missing
}

func allOf(parts ...kernel.CallFunctions) kernel.CallFunctions {
	all := kernel.CallFunctions{}
	for _, p := range parts {
		maps.Copy(all, p)
	}
	return all
}

// attach attaches to both ends of a call.
func (s *Set) attach(f kernel.CallFunction) error {
	if err := s.open(f.Proto); err != nil {
		return err
	}
	pin := s.pins()
	for i, e := range s.ends {
		p, err := kernel.LoadJump(f, e.attach, s.ways[way{f.Proto, e.attach}])
		if err != nil {
			return err
		}
		s.programs = append(s.programs, p)
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("attach to %s%s: %w", e.site, f.Name, err)
		}
		if pin {
			l = s.kernel.PinCall(pinName(f.Name, i), p, l)
			s.pinned++
		}
		s.unpinned = s.unpinned || !pin
		s.kernel.AddLink(e.attachment(f.Name, p, l))
	}
	return nil
}

func (e *end) attachment(function string, p *ebpf.Program, l link.Link) kernel.Attachment {
	return kernel.Attachment{Program: e.program, Hook: e.site + function, Link: l, Loaded: p, Slow: true}
}

// Status returns how far attaching has come.
func (s *Set) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{Part: s.part(s.wanted), Part32: s.part(s.wanted32), Seen32: s.seen32, Err32: s.err32}
}

func (s *Set) part(wanted kernel.CallFunctions) Part {
	p := Part{Functions: len(wanted), Failed: map[string]error{}}
	for name := range wanted {
		if s.attached[name] {
			p.Attached++
		}
		if err := s.failed[name]; err != nil {
			p.Failed[name] = err
		}
	}
	return p
}

// Off takes all programs out of use for good: they are attached, and do nothing.
func (s *Set) Off() error {
	s.mu.Lock()
	s.off = true
	s.mu.Unlock()
	s.pass.Lock()
	defer s.pass.Unlock()
	s.kernel.KeepCalls(false)
	var errs []error
	for _, m := range s.ways {
		if err := m.Delete(uint32(0)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("empty a table of programs: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Stop is Off, unless the kernel side is left to the next daemon.
func (s *Set) Stop() error {
	if s.kernel.Leaves() {
		return nil
	}
	return s.Off()
}

// Close unloads the programs. What is attached must be detached before, or left.
func (s *Set) Close() error {
	errs := []error{s.Stop()}
	s.pass.Lock()
	defer s.pass.Unlock()
	for _, p := range s.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range s.ways {
		errs = append(errs, m.Close())
	}
	s.programs, s.ways = nil, nil
	if s.scratches != nil {
		errs = append(errs, s.scratches.Close())
	}
	return errors.Join(errs...)
}
