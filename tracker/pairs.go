package tracker

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/field"
)

// Sizes of declared pairs (bpf/abi/pair.h, bpf/pair.bpf.c).
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
func newPairs(list []rules.Rule, kernel *btf.Spec, programs Programs) (p *pairs, inactive map[string]error, err error) {
	p = &pairs{numbers: map[string]uint32{}, specs: map[string]*rules.PairSpec{}, labels: map[string][]pairLabel{}, failed: map[string]error{}}
	inactive = map[string]error{}
	sites := newSites(kernel, programs)
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

// unknown returns the rules whose hooks are not among those of p: others need
// not be looked for again, and go on whatever has become of their files.
func (p *pairs) unknown(list []rules.Rule) []rules.Rule {
	return slices.DeleteFunc(slices.Clone(list), func(r rules.Rule) bool {
		have := p.specs[r.Name]
		return r.Track == rules.Pair && r.Pair != nil && have != nil && withoutPlaces(have) == withoutPlaces(r.Pair)
	})
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

// places are the rules of c by number of their pair, and where those with a
// histogram stand among the rules that have one.
func (p *pairs) places(c *compiled) (at, histograms [maxPairs]uint32) {
	for i := range at {
		at[i], histograms[i] = noRule, noRule
	}
	for i, r := range c.source {
		n, ok := p.numbers[r.Name]
		if !ok || r.Track != rules.Pair {
			continue
		}
		at[n] = uint32(i)
		if h, ok := c.histogramAt[i]; ok {
			histograms[n] = h
		}
	}
	return at, histograms
}

// writePlaces tells the programs of pairs where their rules stand in the half
// of the tables that is not live.
func (t *Tracker) writePlaces(c *compiled) error {
	var at, histograms [2][maxPairs]uint32
	v := t.objects.Variables
	if err := errors.Join(v["pair_rules"].Get(&at), v["pair_histograms"].Get(&histograms)); err != nil {
		return err
	}
	half := c.generation & 1
	at[half], histograms[half] = t.pairs.places(c)
	return errors.Join(v["pair_rules"].Set(at), v["pair_histograms"].Set(histograms))
}
