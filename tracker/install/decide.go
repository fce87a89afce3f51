package install

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// Decide finds the rule of an outlier, and for what the kernel side could not
// decide, asks the rule itself and teaches the kernel side the answer. nil: it
// is not wanted, or its rule is gone; or wait, if a container runtime has not
// answered yet what its rule asks for: then it must be decided again soon. last:
// it is decided with what is known.
func (r *Rules) Decide(raw *abi.Outlier, last bool) (o *events.Outlier, wait bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.generation(raw.Generation)
	i := int(raw.Rule) % abi.MaxRules
	if g != nil && r.inherited > 0 && g.Number <= r.inherited {
		r.unread++
	}
	if g == nil || i >= len(g.Sources) || g.Sources[i] == nil {
		r.stale++ // of rules that were replaced too long ago
		return nil, false
	}
	m := &kinds.Message{Outlier: raw, Rule: g.Sources[i], Labels: r.opts.Labels[g.Sources[i].Name]}
	at := r.place(raw.CgroupId)
	open := at.Pending && raw.Undecided&(abi.MatchCgroup|abi.MatchNotCgroup) != 0
	if open && !last && raw.Cause != abi.CauseTimeout && needsRuntime(m.Rule) {
		return nil, true
	}
	o = m.Decode()
	o.Task.Cgroup = at.Cgroup
	if raw.Flags&abi.OutlierUndecided == 0 {
		return o, false
	}
	// Without an answer the same question comes again; nothing is lost.
	if raw.Undecided&(abi.MatchCgroup|abi.MatchNotCgroup) != 0 {
		_ = r.teachCgroup(g, raw.CgroupId, at)
	}
	if raw.Undecided&(abi.MatchDevice|abi.MatchNotDevice) != 0 {
		_ = r.teachDevice(g, uint64(raw.Dev), kinds.Text(raw.Disk[:]))
	}
	if raw.Undecided&(abi.MatchName|abi.MatchNotName) != 0 {
		_ = r.teachName(g, m.Name())
	}
	if raw.Undecided&abi.MatchFunction != 0 {
		_ = r.teachFunction(g, m.Function(), r.symbol(m.Function()))
	}
	if o.Cause == events.CauseTimeout { // asked only to be taught: it fires at the next tick
		return nil, false
	}
	return r.judge(o, m, &at, g.Rules[i].Id), false
}

// needsRuntime reports whether a rule asks for what only a container runtime knows.
func needsRuntime(rule *rules.Rule) bool {
	needs := func(m *rules.Match) bool {
		all, not := m.Places()
		return all.NeedRuntime() || not.NeedRuntime()
	}
	return needs(&rule.When) || slices.ContainsFunc(rule.Overrides, func(o rules.Override) bool { return needs(&o.When) })
}

// judge applies a rule in full to an outlier that the kernel side left open.
func (r *Rules) judge(o *events.Outlier, m *kinds.Message, at *CgroupPlace, id uint8) *events.Outlier {
	facts := m.Facts(o)
	facts.Place = at.Place
	if o.Work != nil {
		facts.Function = r.symbol(o.Work.Address)
	}
	if !m.Rule.When.Matches(&facts) {
		r.countGone(o, &m.Rule.When, &facts, at.Pending)
		return nil
	}
	limits := m.Rule.LimitsFor(&facts)
	limit := limits.Threshold
	if o.Cause != events.CauseThreshold {
		limit = limits.Timeout
	}
	if limit == 0 || o.DelayNS < limit.Nanoseconds() {
		return nil
	}
	if m.Rule.Ratchet && o.Cause == events.CauseThreshold {
		record, err := r.ratchet(id, max(o.DelayNS, 1))
		if !record && err == nil { // rather one too many than none
			return nil
		}
	}
	o.ThresholdNS = limit.Nanoseconds()
	// Decided here, so it is counted here.
	k := r.carried[m.Rule.Name]
	k.Outliers++
	k.WorstNS = max(k.WorstNS, o.DelayNS)
	r.carried[m.Rule.Name] = k
	return o
}

// countGone counts an outlier that a rule may have wanted: all but what its cgroup says
// matches, and that was removed before anybody asked for its path, or a container runtime
// did not answer in time.
func (r *Rules) countGone(o *events.Outlier, when *rules.Match, facts *rules.Facts, pending bool) {
	all, _ := when.Places()
	if all.Empty() || facts.Cgroup != "" && !(pending && all.NeedRuntime()) {
		return
	}
	rest := *when
	if facts.Cgroup == "" {
		rest.Cgroup, rest.Unit = nil, nil
	}
	rest.Container, rest.Pod, rest.Namespace = nil, nil, nil
	if rest.Matches(facts) {
		k := r.carried[o.Rule]
		k.CgroupGone++
		r.carried[o.Rule] = k
	}
}

// ResetRatchet lets a rule with a ratchet begin anew: the next delay past its
// threshold is its first record.
func (r *Rules) ResetRatchet(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.indexOf(name)
	if i < 0 {
		return fmt.Errorf("rule %s does not run", name)
	}
	if !r.current.Sources[i].Ratchet {
		return fmt.Errorf("rule %s has no ratchet", name)
	}
	_, err := r.ratchet(r.current.Rules[i].Id, 0)
	return err
}

// indexOf is the index of a rule in the current generation; -1: it does not run.
func (r *Rules) indexOf(name string) int { return indexOf(r.current.Sources, name) }

// ratchet moves the ratchet of the rule with an id, and tells whether delay was
// a record. 0 resets it.
func (r *Rules) ratchet(id uint8, delay int64) (record bool, err error) {
	arg := abi.RatchetCall{DelayNs: uint64(delay), Id: uint32(id)}
	got, err := r.kernel.Calls().Ratchet.Run(&ebpf.RunOptions{Context: arg})
	if err != nil {
		return false, fmt.Errorf("move the ratchet: %w", err)
	}
	return got == 1, nil
}

func indexOf(list []*rules.Rule, name string) int {
	return slices.IndexFunc(list, func(rule *rules.Rule) bool { return rule != nil && rule.Name == name })
}
