// Package declared begins and ends activities of programs that know nothing of tailcam: by
// hooks in them that rules of track pair name. The kernel side is bpf/declared.bpf.c.
package declared

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"go.uber.org/zap"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/pair"
)

// Kernel is what the hooks share with the kernel side of activities.
type Kernel struct {
	Maps  map[string]*ebpf.Map // of bpf/activity.bpf.c, by name
	Owner abi.ActivityOwner    // the entry of declared programs in its table of processes
}

// Set holds the rules that declare activities. Its methods may be called from any goroutine.
type Set struct {
	kernel   Kernel
	programs pair.Programs
	log      *zap.Logger
	store    store

	mu    sync.Mutex
	rules [abi.DeclaredRules]*rule
}

// rule is one whose hooks are attached.
type rule struct {
	name, activity string
	text           string // of the pair
	label          string // whose text its activities have; "": none
	links          []link.Link
}

// New returns an empty set. The programs that rules name are read by programs. Close frees it.
func New(kernel *Kernel, programs pair.Programs, log *zap.Logger) (*Set, error) {
	s := &Set{kernel: *kernel, programs: programs, log: log}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	return s, s.store.open(kernel.Maps["declared_ended"])
}

// Use attaches the hooks of those rules in list that declare an activity, and detaches all
// others. What begun by a hook that is gone ends when its thread does, or begins another.
// Errors are of rules, by name: they have no activity.
func (s *Set) Use(list []rules.Rule) map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[string]string{}
	list = rules.Declared(list)
	for i := range list {
		wanted[list[i].Name] = pair.TextOf(list[i].Pair)
	}
	for i, r := range s.rules {
		if r != nil && wanted[r.name] != r.text {
			s.drop(i)
		}
	}
	failed := map[string]error{}
	for i := range list {
		if s.find(list[i].Name) < 0 {
			if err := s.add(&list[i]); err != nil {
				failed[list[i].Name] = err
			}
		}
	}
	return failed
}

// find returns the number of a rule; -1: it has none. Requires s.mu.
func (s *Set) find(name string) int {
	return slices.IndexFunc(s.rules[:], func(r *rule) bool { return r != nil && r.name == name })
}

// drop detaches a rule. Requires s.mu.
func (s *Set) drop(number int) {
	for _, l := range s.rules[number].links {
		if err := l.Close(); err != nil {
			s.log.Warn("detach a hook of an activity", zap.String("rule", s.rules[number].name), zap.Error(err))
		}
	}
	s.rules[number] = nil
}

// add attaches a rule: what ends activities first. Requires s.mu.
func (s *Set) add(r *rules.Rule) error {
	number := slices.Index(s.rules[:], nil)
	if number < 0 {
		return fmt.Errorf("more than %d rules with activity", abi.DeclaredRules)
	}
	places, failed := pair.Places([]rules.Rule{*r}, s.programs)
	if err := failed[r.Name]; err != nil {
		return err
	}
	totals := s.kernel.Maps["declared_totals"]
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	if err := totals.Put(uint32(number), make([]abi.DeclaredTotals, cpus)); err != nil {
		return fmt.Errorf("clear the totals of its number: %w", err)
	}
	s.rules[number] = &rule{name: r.Name, activity: r.Pair.Activity, text: pair.TextOf(r.Pair)}
	if i := r.Pair.Text(); i >= 0 {
		s.rules[number].label = r.Pair.Labels[i].Name
	}
	for _, role := range []uint32{abi.PairCancel, abi.PairExit, abi.PairEntry} {
		for i := range places {
			if places[i].At.Role != role {
				continue
			}
			l, err := s.attach(uint32(number), r.Pair, &places[i])
			if err != nil {
				s.drop(number)
				return fmt.Errorf("attach to %s: %w", places[i].Hook, err)
			}
			s.rules[number].links = append(s.rules[number].links, l)
		}
	}
	return nil
}

// attach loads the program for one place, and attaches it.
func (s *Set) attach(number uint32, spec *rules.PairSpec, place *pair.Place) (link.Link, error) {
	hook := abi.DeclaredHook{At: place.At, Rule: number, Owner: s.kernel.Owner}
	if i := spec.Text(); i >= 0 && place.At.Role == abi.PairEntry {
		hook.Text, hook.At.Label[0] = 1, place.At.Label[i]
	}
	for i := range min(len(spec.Activity), len(hook.Name)-1) {
		hook.Name[i] = spec.Activity[i]
	}
	program, err := s.load(&hook)
	if err != nil {
		return nil, err
	}
	l, err := place.Attach(program)
	return l, errors.Join(err, program.Close()) // the link holds it
}

func (s *Set) load(hook *abi.DeclaredHook) (*ebpf.Program, error) {
	const program = "declared_regs"
	spec, err := bpf.LoadDeclared()
	if err != nil {
		return nil, fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := spec.Variables["hook"].Set(hook); err != nil {
		return nil, fmt.Errorf("set the hook: %w", err)
	}
	replace := map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		if with := s.kernel.Maps[name]; with != nil && name[0] != '.' {
			m.MaxEntries = with.MaxEntries()
			replace[name] = with
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return nil, fmt.Errorf("load the program of an activity: %w", err)
	}
	defer c.Close()
	return c.DetachProgram(program), nil
}

// names returns the activities by number of their rule; "": none. Requires s.mu.
func (s *Set) names() (of [abi.DeclaredRules]rule) {
	for i, r := range s.rules {
		if r != nil {
			of[i] = *r
		}
	}
	return of
}

// RuleOf returns the rule of what the thread in a slot works for; "": unknown.
func (s *Set) RuleOf(slot int) string {
	var work abi.DeclaredWork
	if err := s.kernel.Maps["declared_works"].Lookup(uint32(slot)+1, &work); err != nil || work.Rule >= abi.DeclaredRules {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names()[work.Rule].name
}

// Labels returns the names of the labels whose text activities have, by rule.
func (s *Set) Labels() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := map[string]string{}
	for _, r := range s.rules {
		if r != nil && r.label != "" {
			of[r.name] = r.label
		}
	}
	return of
}

// Rules returns the names of the rules whose hooks are attached, sorted.
func (s *Set) Rules() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for _, r := range s.rules {
		if r != nil {
			names[r.name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Close detaches all hooks, and has Run return.
func (s *Set) Close() error {
	s.mu.Lock()
	for i, r := range s.rules {
		if r != nil {
			s.drop(i)
		}
	}
	s.mu.Unlock()
	return s.store.close()
}
