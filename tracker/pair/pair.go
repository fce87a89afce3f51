// Package pair finds, loads and attaches the hooks that rules declare.
package pair

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/field"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// Set holds the declared pairs that hooks are attached for. It does not change
// once it is attached: see Extend.
type Set struct {
	Numbers map[string]uint32        // of each rule, by its name
	Labels  map[string][]kinds.Label // of each rule

	specs     map[string]*rules.PairSpec
	hooks     []*hookProgram
	failed    map[string]error // rules whose hooks the kernel has refused
	scratches *ebpf.Map
	last      uint32 // number given last: others are given first, as outliers of earlier pairs may be on their way
}

// hookProgram is one hook of one pair.
type hookProgram struct {
	rule string
	role int
	hook *rules.Hook
	site site
	wire abi.PairHook
	jump *kernel.Jump // nil: not loaded
	done bool         // attached, or refused

	pin     string // what it is pinned as; "": it is not
	sum     string // of its rule, if it is pinned: see sumOf
	resumed bool   // an earlier daemon had attached it
	stale   bool   // it runs a program that was loaded for what the main object was before
}

func (p *hookProgram) name() string { return "pair:" + p.rule + ":" + p.hook.Text }

// errMissing is wrapped by what this kernel or machine does not have: the rule
// is then left out, and the others go on.
var errMissing = errors.New("is not there")

// Resolve finds the hooks and fields of every pair. A rule whose hook is not
// here is inactive; a field that is not there is a mistake in the rule.
func Resolve(list []rules.Rule, types *btf.Spec, programs Programs) (p *Set, inactive map[string]error, err error) {
	p = &Set{Numbers: map[string]uint32{}, specs: map[string]*rules.PairSpec{}, Labels: map[string][]kinds.Label{}, failed: map[string]error{}}
	inactive = map[string]error{}
	sites := newSites(types, programs)
	defer sites.close()
	var wrong rules.Errors
	for i := range list {
		r := &list[i]
		if r.Track != rules.Pair || r.Pair == nil {
			continue
		}
		hooks, labels, err := resolvePair(r, uint32(len(p.Numbers)), sites)
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
		p.last = uint32(len(p.Numbers))
		p.Numbers[r.Name] = p.last
		p.specs[r.Name] = r.Pair
		p.Labels[r.Name] = labels
		p.hooks = append(p.hooks, hooks...)
	}
	if len(wrong) > 0 {
		return nil, nil, wrong
	}
	return p, inactive, nil
}

// resolvePair finds everything of one rule.
func resolvePair(r *rules.Rule, number uint32, sites *sites) ([]*hookProgram, []kinds.Label, error) {
	spec := r.Pair
	labels := make([]kinds.Label, len(spec.Labels))
	for i, l := range spec.Labels {
		labels[i] = kinds.Label{Name: l.Name, As: l.As, AtExit: l.AtExit}
	}
	var list []*hookProgram
	var wrong rules.Errors
	for _, side := range []struct {
		role  int
		hooks []rules.Hook
		when  []rules.Compare
		field func(rules.KeyPart) rules.Field
	}{
		{abi.PairCancel, spec.Cancel, nil, func(k rules.KeyPart) rules.Field { return k.Cancel }},
		{abi.PairExit, spec.Exit, spec.ExitWhen, func(k rules.KeyPart) rules.Field { return k.Exit }},
		{abi.PairEntry, spec.Entry, spec.EntryWhen, func(k rules.KeyPart) rules.Field { return k.Entry }},
	} {
		for i := range side.hooks {
			h := &side.hooks[i]
			found, err := sites.find(h)
			if err != nil {
				return nil, nil, fmt.Errorf("hook %s: %w", h.Text, err)
			}
			for _, site := range found {
				p := &hookProgram{rule: r.Name, role: side.role, hook: h, site: site}
				p.wire = abi.PairHook{
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
				if side.role != abi.PairCancel {
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

func (p *hookProgram) setKey(key []rules.Field) rules.Errors {
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

func (p *hookProgram) setConditions(list []rules.Compare) rules.Errors {
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
		p.wire.Condition[i] = abi.PairCondition{
			What: v.Fetch, Op: uint32(slices.Index(rules.Operators, list[i].Op) + 1),
			Sign: sign(v.Signed), Value: list[i].Value,
		}
	}
	return wrong
}

// setLabels sets those of this end of the pair, and notes what they turn out to be.
func (p *hookProgram) setLabels(list []rules.Label, shown []kinds.Label) rules.Errors {
	var wrong rules.Errors
	for i := range list {
		l := &list[i]
		if l.AtExit != (p.role == abi.PairExit) {
			continue
		}
		v, text, err := labelValue(p.site.source, l)
		if err != nil {
			wrong = append(wrong, mistake(l.Field.Pos, err))
			continue
		}
		p.wire.Label[i] = v.Fetch
		shown[i].Signed, shown[i].Pointer, shown[i].Text = v.Signed, v.Pointer, text
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

// Unknown returns the rules whose hooks are not among those of p: others need
// not be looked for again, and go on whatever has become of their files.
func (p *Set) Unknown(list []rules.Rule) []rules.Rule {
	return slices.DeleteFunc(slices.Clone(list), func(r rules.Rule) bool {
		have := p.specs[r.Name]
		return r.Track == rules.Pair && r.Pair != nil && have != nil && textOf(have) == textOf(r.Pair)
	})
}

// textOf is all of a pair but where it stands in files.
func textOf(spec *rules.PairSpec) string {
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
	if spec.Activity != "" {
		fmt.Fprintf(&b, "; activity %s", spec.Activity)
	}
	return b.String()
}

func sign(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}
