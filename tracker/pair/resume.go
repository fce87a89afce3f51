package pair

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// maxPinned is how many hooks are pinned at most, three objects each. Rules beyond it begin
// with nothing after a restart. systemd keeps FileDescriptorStoreMax of a service, and it is
// process 1 that closes them when the service is stopped: the kernel takes some 100 ms to
// detach a uprobe, and 40 a tracepoint (see docs/decisions/0080-pinned-pairs.md).
const maxPinned = 64

// keptPairs is what the next daemon needs to know of pairs whose hooks are pinned.
type keptPairs struct {
	Last  uint32 // as in Set
	Pairs map[string]keptPair
}

// keptPair is one rule.
type keptPair struct {
	Number uint32
	Sum    string           // of what it is: see sumOf
	Runs   []ebpf.ProgramID // by its hooks
}

// Resume returns p, whose hooks are not loaded yet, with those that an earlier daemon has
// left for the same pairs, as far as these are the same at the same places. Others that it
// has left end here. p must not be used any more.
func (p *Set) Resume(k *kernel.Objects) (*Set, error) {
	if !k.Takeover().Taken {
		return p, nil
	}
	var kept keptPairs
	_ = k.KeptPairs(&kept) // without it, none is
	taken := &Set{
		Numbers: map[string]uint32{}, Labels: map[string][]kinds.Label{}, specs: map[string]*rules.PairSpec{}, failed: map[string]error{},
		last: kept.Last % abi.MaxPairs,
	}
	used := map[uint32]bool{}
	names := map[string]bool{}
	for _, rule := range slices.Sorted(maps.Keys(kept.Pairs)) {
		was, hooks := kept.Pairs[rule], p.hooksOf(rule)
		if len(hooks) == 0 || used[was.Number] || !was.take(k, p.specs[rule], hooks) {
			continue
		}
		used[was.Number] = true
		taken.Numbers[rule], taken.Labels[rule], taken.specs[rule] = was.Number, p.Labels[rule], p.specs[rule]
		taken.hooks = append(taken.hooks, hooks...)
		for _, h := range hooks {
			names[h.pin] = true
		}
	}
	if _, err := k.UnpinOthers(names); err != nil {
		return p, err
	}
	all, err := taken.Extend(p.except(taken))
	if err != nil {
		return p, err
	}
	return all, nil
}

// except is p without the pairs of other.
func (p *Set) except(other *Set) *Set {
	s := *p
	s.Numbers, s.specs = maps.Clone(p.Numbers), maps.Clone(p.specs)
	s.hooks = nil
	for _, h := range p.hooks {
		if other.specs[h.rule] == nil {
			s.hooks = append(s.hooks, h)
		}
	}
	for rule := range other.specs {
		delete(s.Numbers, rule)
		delete(s.specs, rule)
	}
	return &s
}

func (p *Set) hooksOf(rule string) (list []*hookProgram) {
	for _, h := range p.hooks {
		if h.rule == rule {
			list = append(list, h)
		}
	}
	return list
}

// Resumed are the numbers of the pairs that an earlier daemon had attached.
func (p *Set) Resumed() map[string]uint32 {
	list := map[string]uint32{}
	for _, h := range p.hooks {
		if h.resumed {
			list[h.rule] = h.wire.Pair
		}
	}
	return list
}

// take takes over the hooks of a pair, all or none.
func (was *keptPair) take(k *kernel.Objects, spec *rules.PairSpec, hooks []*hookProgram) bool {
	if was.Number >= abi.MaxPairs || len(was.Runs) != len(hooks) {
		return false
	}
	sum, err := sumOf(spec, hooks)
	if err != nil || sum != was.Sum {
		return false
	}
	jumps, links := make([]*kernel.Jump, len(hooks)), make([]link.Link, len(hooks))
	for i := range hooks {
		if jumps[i], links[i], err = k.TakeHook(pinName(was.Number, i), was.Runs[i]); err == nil {
			continue
		}
		for j := range i { // with their pins: they are attached anew
			_ = links[j].Close()
			_ = jumps[j].Close()
		}
		return false
	}
	for i, h := range hooks {
		h.jump, h.pin, h.sum, h.done, h.resumed = jumps[i], pinName(was.Number, i), sum, true, true
		h.stale = k.Takeover().Programs != ""
		h.wire.Pair = was.Number
		k.AddLink(h.attachment(links[i]))
	}
	return true
}

// pinName is what the hook of a pair is called where it is pinned.
func pinName(number uint32, i int) string { return fmt.Sprintf("%d_%d", number, i) }

// sumOf tells apart pairs: by all that their rule says, and by what that has become here.
func sumOf(spec *rules.PairSpec, hooks []*hookProgram) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, textOf(spec)) // a hash takes all
	for _, h := range hooks {
		wire, file := h.wire, ""
		wire.Pair = 0
		if h.site.file != nil {
			var err error
			if file, err = h.site.file(); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(sum, "%q %d %q %q %q %d %q %v\n", h.hook.Text, h.role, h.site.template, h.site.place, h.site.attachTo, h.site.attachType, file, wire)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// pinRule decides, before the hooks of a rule are attached, whether they are pinned.
func (p *Set) pinRule(rule string, k *kernel.Objects) {
	if !k.Pinned() {
		return
	}
	n := 0
	for _, h := range p.hooks {
		if h.pin != "" {
			n++
		}
	}
	hooks := p.hooksOf(rule)
	if n+len(hooks) > maxPinned || hooks[0].pin != "" {
		return
	}
	sum, err := sumOf(p.specs[rule], hooks) // before: what takes the place of the file meanwhile is another one
	if err != nil {
		return
	}
	for i, h := range hooks {
		h.pin, h.sum = pinName(h.wire.Pair, i), sum
	}
}

// Keep keeps what the next daemon needs to take these pairs over. All that are attached are
// as they should be.
func (p *Set) Keep(k *kernel.Objects) {
	if !k.Pinned() || len(p.hooks) == 0 {
		return
	}
	state := keptPairs{Last: p.last, Pairs: map[string]keptPair{}}
	for rule, number := range p.Numbers {
		hooks := p.hooksOf(rule)
		if len(hooks) == 0 || hooks[0].pin == "" || p.failed[rule] != nil {
			continue
		}
		was := keptPair{Number: number, Sum: hooks[0].sum}
		for _, h := range hooks {
			id, err := h.jump.Runs()
			if err != nil {
				k.Unpin(fmt.Errorf("ask which program %s runs: %w", h.name(), err))
				return
			}
			was.Runs = append(was.Runs, id)
		}
		state.Pairs[rule] = was
	}
	k.KeepPairs(&state)
}

// Same reports whether p has the hooks of other.
func (p *Set) Same(other *Set) bool { return slices.Equal(p.hooks, other.hooks) }
