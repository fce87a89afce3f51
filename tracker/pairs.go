package tracker

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/field"
)

// Sizes of declared pairs (bpf/pair_abi.h, bpf/pair.bpf.c).
const (
	maxPairs      = 64
	noRule        = ^uint32(0)
	pairScratches = 4
)

// Roles of hooks (enum pair_role), in the order of attaching: what ends work
// stands before what begins it.
const (
	roleEntry  = 0
	roleExit   = 1
	roleCancel = 2
)

// pairHook is struct pair_hook.
type pairHook struct {
	Pair, Role, Policy, OwnTask uint32
	Part                        [3]bpf.PairFetch
	Condition                   [4]bpf.PairPairCondition
	Label                       [4]bpf.PairFetch
}

// pairs are the declared pairs that hooks are attached for.
type pairs struct {
	numbers map[string]uint32 // of each rule, by its name
	specs   map[string]*rules.PairSpec
	labels  map[string][]pairLabel // of each rule
	hooks   []*pairProgram
	failed  map[string]error // rules whose hooks the kernel has refused; written before it is attached
}

// pairProgram is one hook of one pair.
type pairProgram struct {
	rule    string
	role    int
	hook    *rules.Hook
	site    site
	wire    pairHook
	program *ebpf.Program
}

func (p *pairProgram) name() string { return "pair:" + p.rule + ":" + p.hook.Text }

// pairLabel is how a label is shown.
type pairLabel struct {
	name    string
	as      rules.As
	signed  bool
	pointer bool
	text    bool
	atExit  bool
}

// errMissing is wrapped by what this kernel or machine does not have: the rule
// is then left out, and the others go on.
var errMissing = errors.New("is not there")

// newPairs finds the hooks and fields of every pair. A rule whose hook is not
// here is inactive; a field that is not there is a mistake in the rule.
func newPairs(list []rules.Rule, kernel *btf.Spec) (p *pairs, inactive map[string]error, err error) {
	p = &pairs{numbers: map[string]uint32{}, specs: map[string]*rules.PairSpec{}, labels: map[string][]pairLabel{}, failed: map[string]error{}}
	inactive = map[string]error{}
	sites := newSites(kernel)
	defer sites.close()
	var wrong rules.Errors
	for i := range list {
		r := &list[i]
		if r.Track != rules.Pair || r.Pair == nil {
			continue
		}
		hooks, labels, err := resolvePair(r, uint32(len(p.numbers)), sites)
		var mistakes rules.Errors
		switch {
		case errors.Is(err, errMissing):
			inactive[r.Name] = err
			continue
		case errors.As(err, &mistakes):
			wrong = append(wrong, mistakes...)
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		p.numbers[r.Name] = uint32(len(p.numbers))
		p.specs[r.Name] = r.Pair
		p.labels[r.Name] = labels
		p.hooks = append(p.hooks, hooks...)
	}
	if len(wrong) > 0 {
		return nil, nil, wrong
	}
	return p, inactive, nil
}

// resolvePair finds everything of one rule.
func resolvePair(r *rules.Rule, number uint32, sites *sites) ([]*pairProgram, []pairLabel, error) {
	spec := r.Pair
	labels := make([]pairLabel, len(spec.Labels))
	for i, l := range spec.Labels {
		labels[i] = pairLabel{name: l.Name, as: l.As, atExit: l.AtExit}
	}
	var list []*pairProgram
	var wrong rules.Errors
	for _, side := range []struct {
		role  int
		hooks []rules.Hook
		when  []rules.Compare
		field func(rules.KeyPart) rules.Field
	}{
		{roleCancel, spec.Cancel, nil, func(k rules.KeyPart) rules.Field { return k.Cancel }},
		{roleExit, spec.Exit, spec.ExitWhen, func(k rules.KeyPart) rules.Field { return k.Exit }},
		{roleEntry, spec.Entry, spec.EntryWhen, func(k rules.KeyPart) rules.Field { return k.Entry }},
	} {
		for i := range side.hooks {
			h := &side.hooks[i]
			found, err := sites.find(h)
			if err != nil {
				return nil, nil, fmt.Errorf("hook %s: %w", h.Text, err)
			}
			for _, site := range found {
				p := &pairProgram{rule: r.Name, role: side.role, hook: h, site: site}
				p.wire = pairHook{
					Pair: number, Role: uint32(side.role),
					Policy: uint32(max(slices.Index(rules.Duplicates, spec.OnDuplicate), 0)),
				}
				key := h.Key
				if key == nil {
					for _, k := range spec.Key {
						key = append(key, side.field(k))
					}
				}
				wrong = append(wrong, p.setKey(key)...)
				wrong = append(wrong, p.setConditions(slices.Concat(side.when, h.When))...)
				if side.role != roleCancel {
					wrong = append(wrong, p.setLabels(spec.Labels, labels)...)
				}
				list = append(list, p)
			}
		}
	}
	if len(wrong) > 0 {
		return nil, nil, wrong
	}
	return list, labels, nil
}

// mistake is an error at the place where a rule names something.
func mistake(pos rules.Position, err error) rules.Error {
	return rules.Error{Pos: pos, Msg: err.Error()}
}

func (p *pairProgram) setKey(key []rules.Field) rules.Errors {
	var wrong rules.Errors
	for i := range key {
		v, err := p.site.source.Number(&key[i])
		if err != nil {
			wrong = append(wrong, mistake(key[i].Pos, err))
			continue
		}
		p.wire.Part[i] = v.Fetch
		if key[i].IsTask() {
			p.wire.OwnTask = 1
		}
	}
	return wrong
}

func (p *pairProgram) setConditions(list []rules.Compare) rules.Errors {
	if len(list) > len(p.wire.Condition) {
		return rules.Errors{{Pos: list[0].Pos, Msg: fmt.Sprintf("%s has %d conditions", p.hook.Text, len(list)), Allowed: fmt.Sprintf("at most %d", len(p.wire.Condition))}}
	}
	var wrong rules.Errors
	for i := range list {
		v, err := p.site.source.Number(&list[i].Field)
		if err != nil {
			wrong = append(wrong, mistake(list[i].Pos, err))
			continue
		}
		p.wire.Condition[i] = bpf.PairPairCondition{
			What: v.Fetch, Op: uint32(slices.Index(rules.Operators, list[i].Op) + 1),
			Sign: uint32(flag(v.Signed)), Value: list[i].Value,
		}
	}
	return wrong
}

// setLabels sets those of this end of the pair, and notes what they turn out to be.
func (p *pairProgram) setLabels(list []rules.Label, shown []pairLabel) rules.Errors {
	var wrong rules.Errors
	for i := range list {
		l := &list[i]
		if l.AtExit != (p.role == roleExit) {
			continue
		}
		v, text, err := labelValue(p.site.source, l)
		if err != nil {
			wrong = append(wrong, mistake(l.Field.Pos, err))
			continue
		}
		p.wire.Label[i] = v.Fetch
		shown[i].signed, shown[i].pointer, shown[i].text = v.Signed, v.Pointer, text
	}
	return wrong
}

// labelValue reads a label in the way that it is shown; without one, as a
// number if it is one, and else as a string.
func labelValue(s *field.Source, l *rules.Label) (v field.Value, text bool, err error) {
	switch l.As {
	case rules.AsString:
		v, err = s.Text(&l.Field, l.User)
		return v, true, err
	case rules.AsIPv6:
		v, err = s.Bytes(&l.Field, 16, l.User)
		return v, false, err
	case "":
		if v, err = s.Number(&l.Field); err == nil {
			return v, false, nil
		}
		if v, textErr := s.Text(&l.Field, l.User); textErr == nil {
			return v, true, nil
		}
		return v, false, err
	default:
		v, err = s.Number(&l.Field)
		return v, false, err
	}
}

// covers reports whether the hooks of p serve the pairs of q: q may leave rules
// out, but all that it has must be the same.
func (p *pairs) covers(q *pairs) bool {
	for name, spec := range q.specs {
		have := p.specs[name]
		if have == nil || !reflect.DeepEqual(withoutPlaces(have), withoutPlaces(spec)) {
			return false
		}
	}
	return true
}

// withoutPlaces is a copy without the places in files, which mean nothing.
func withoutPlaces(spec *rules.PairSpec) string {
	var b strings.Builder
	fields := func(list ...rules.Field) {
		for _, f := range list {
			fmt.Fprintf(&b, " %q", f.Text)
		}
	}
	conditions := func(list []rules.Compare) {
		for _, c := range list {
			fmt.Fprintf(&b, " if %q", c.Text)
		}
	}
	for _, list := range [][]rules.Hook{spec.Entry, spec.Exit, spec.Cancel} {
		b.WriteString(";")
		for _, h := range list {
			fmt.Fprintf(&b, " %q", h.Text)
			fields(h.Key...)
			conditions(h.When)
		}
	}
	for _, k := range spec.Key {
		fmt.Fprintf(&b, "; key %s", k.Name)
		fields(k.Entry, k.Exit, k.Cancel)
	}
	b.WriteString(string(spec.OnDuplicate))
	conditions(spec.EntryWhen)
	b.WriteString("; exit")
	conditions(spec.ExitWhen)
	for _, l := range spec.Labels {
		fmt.Fprintf(&b, "; label %s %t %s %t", l.Name, l.AtExit, l.As, l.User)
		fields(l.Field)
	}
	return b.String()
}

// loadPairs loads a program for each hook, with the maps and live variables of
// the main object.
func (t *Tracker) loadPairs() error {
	if len(t.pairs.hooks) == 0 {
		return nil
	}
	spec, err := bpf.LoadPair()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	main, err := bpf.LoadTailcam()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := shareVariables(spec, main); err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	scratches := spec.Maps["pair_scratches"].Copy()
	scratches.MaxEntries = uint32(cpus * pairScratches)
	if t.pairScratches, err = ebpf.NewMap(scratches); err != nil {
		return fmt.Errorf("make scratch memory of pairs: %w", err)
	}
	cache := btf.NewCache()
	for _, p := range t.pairs.hooks {
		if p.program, err = t.loadPair(spec.Copy(), p, cache); err != nil {
			if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
				return fmt.Errorf("rule %s: load the program for %s: %w (run as root, or with CAP_BPF and CAP_PERFMON)", p.rule, p.hook.Text, err)
			}
			t.pairs.fail(p, fmt.Errorf("load the program for %s: %w", p.hook.Text, err))
		}
	}
	return nil
}

// shareVariables makes the programs of spec use the live variables of main,
// wherever the compiler has put them in each.
func shareVariables(spec, main *ebpf.CollectionSpec) error {
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			section := ins.Reference()
			if !ins.IsLoadFromMap() || ins.Src != asm.PseudoMapValue || section == ".rodata" {
				continue
			}
			at := uint32(uint64(ins.Constant) >> 32)
			own, ok := variableAt(spec, section, at)
			if !ok {
				return fmt.Errorf("the BPF object of pairs uses unnamed memory of %s", section)
			}
			v := main.Variables[own.Name]
			if v == nil || v.SectionName != section || v.Size() != own.Size() {
				return fmt.Errorf("variable %s is not the same in both BPF objects", own.Name)
			}
			if err := ins.RewriteMapOffset(v.Offset + at - own.Offset); err != nil {
				return fmt.Errorf("share variable %s: %w", own.Name, err)
			}
		}
	}
	return nil
}

func variableAt(spec *ebpf.CollectionSpec, section string, at uint32) (*ebpf.VariableSpec, bool) {
	for _, v := range spec.Variables {
		if v.SectionName == section && at >= v.Offset && at-v.Offset < v.Size() {
			return v, true
		}
	}
	return nil, false
}

// loadPair loads the template of a hook with its constants.
func (t *Tracker) loadPair(spec *ebpf.CollectionSpec, p *pairProgram, cache *btf.Cache) (*ebpf.Program, error) {
	for name := range spec.Programs {
		if name != p.site.template {
			delete(spec.Programs, name)
		}
	}
	program := spec.Programs[p.site.template]
	if p.site.attachTo != "" {
		program.AttachTo, program.AttachType = p.site.attachTo, p.site.attachType
	}
	for name, v := range spec.Variables {
		if m := t.constants[name]; v.Constant() && m != nil {
			v.Value = slices.Clone(m.Value)
		}
	}
	maps.DeleteFunc(spec.Variables, func(_ string, v *ebpf.VariableSpec) bool { return !v.Constant() })
	if err := spec.Variables["hook"].Set(p.wire); err != nil {
		return nil, err
	}
	replace := map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		if name == ".rodata" {
			continue
		}
		with := t.objects.Maps[name]
		if name == "pair_scratches" {
			with = t.pairScratches
		}
		if with == nil {
			return nil, fmt.Errorf("map %s is missing in the main BPF object", name)
		}
		m.MaxEntries, m.ValueSize = with.MaxEntries(), with.ValueSize()
		replace[name] = with
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace, Cache: cache})
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		return nil, fmt.Errorf("the kernel's verifier refused it: %w\n%+v", err, refused) //nolint:errorlint // the same error again: its log
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.DetachProgram(p.site.template), nil
}

// attachPairs attaches what ends work before what begins it.
func (t *Tracker) attachPairs() error {
	for _, role := range []int{roleCancel, roleExit, roleEntry} {
		for _, p := range t.pairs.hooks {
			if p.role != role || t.pairs.failed[p.rule] != nil {
				continue
			}
			l, err := p.site.attach(p.program)
			if err != nil {
				t.pairs.fail(p, fmt.Errorf("attach to %s: %w", p.hook.Text, err))
				if err := t.detachPair(p.rule); err != nil {
					return err
				}
				continue
			}
			t.stopping.Lock()
			t.links = append(t.links, attached{&hook{program: p.name()}, l, p.program, p.hook.Text, p.rule})
			t.stopping.Unlock()
		}
	}
	return nil
}

// fail notes why a rule does not work here.
func (p *pairs) fail(of *pairProgram, err error) {
	if p.failed[of.rule] == nil {
		p.failed[of.rule] = err
	}
}

// detachPair takes the other hooks of a rule away again: half a pair is none.
func (t *Tracker) detachPair(rule string) error {
	t.mu.Lock()
	t.inactive = maps.Clone(t.inactive)
	t.inactive[rule] = t.pairs.failed[rule]
	t.mu.Unlock()
	t.stopping.Lock()
	defer t.stopping.Unlock()
	var errs []error
	t.links = slices.DeleteFunc(t.links, func(a attached) bool {
		if a.rule != rule {
			return false
		}
		errs = append(errs, a.link.Close())
		return true
	})
	return errors.Join(errs...)
}

func (t *Tracker) closePairs() {
	for _, p := range t.pairs.hooks {
		if p.program != nil {
			_ = p.program.Close() // nothing is lost with it
		}
	}
	if t.pairScratches != nil {
		_ = t.pairScratches.Close()
	}
}

// floorsOf lays the floors of pairs out by number.
func (p *pairs) floorsOf(byRule map[string]uint64) [maxPairs]uint64 {
	var out [maxPairs]uint64
	for i := range out {
		out[i] = never
	}
	for name, n := range p.numbers {
		if f, ok := byRule[name]; ok {
			out[n] = f
		}
	}
	return out
}

// places are the rules of c by number of their pair.
func (p *pairs) places(c *compiled) [maxPairs]uint32 {
	var out [maxPairs]uint32
	for i := range out {
		out[i] = noRule
	}
	for i, r := range c.source {
		if n, ok := p.numbers[r.Name]; ok && r.Track == rules.Pair {
			out[n] = uint32(i)
		}
	}
	return out
}

// PairCounters are what one declared pair has done since New.
type PairCounters struct {
	Seen      uint64 // pairs completed
	Cancelled uint64
	Replaced  uint64 // restart: older entries that were forgotten for a new one
	Kept      uint64 // keep: entries that were left out for an older one
	Nested    uint64 // count: entries inside another one
	Full      uint64 // entries lost: the pending table's window was full
	Unsettled uint64 // entries lost: other CPUs were at the same key all the time
	Missed    uint64 // exits lost in the same way
	Unread    uint64 // events left out: a field could not be read
	Crowded   uint64 // outliers lost: too many at once on a CPU
	Forgotten uint64 // entries whose exit cannot come any more
}

func (c *PairCounters) add(s *bpf.TailcamPairState) {
	c.Seen += s.Seen
	c.Cancelled += s.Cancelled
	c.Replaced += s.Replaced
	c.Kept += s.Kept
	c.Nested += s.Nested
	c.Full += s.Full
	c.Unsettled += s.Unsettled
	c.Missed += s.Missed
	c.Unread += s.Unread
	c.Crowded += s.Crowded
	c.Forgotten += s.Forgotten
}

// Pairs reads the counters of every declared pair, by the name of its rule.
func (t *Tracker) Pairs() (map[string]PairCounters, error) {
	all := map[string]PairCounters{}
	for name, n := range t.pairs.numbers {
		var sum PairCounters
		m := t.objects.Maps["pair_states"]
		for at := n; at < m.MaxEntries(); at += maxPairs {
			var s bpf.TailcamPairState
			if err := m.Lookup(at, &s); err != nil {
				return nil, fmt.Errorf("read counters of pair %s: %w", name, err)
			}
			sum.add(&s)
		}
		all[name] = sum
	}
	return all, nil
}
