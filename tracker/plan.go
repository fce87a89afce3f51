package tracker

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/rules"
)

// plan says which parts of the kernel side the rules and the recorder need.
type plan struct {
	tracks            map[rules.Track]bool
	groups            map[string]bool
	userStacksLater   bool             // a wakeup or offcpu rule wants user stacks
	wakerStacksAlways bool             // a wakeup rule wants waker stacks
	wakerStacksSlow   bool             // an offcpu rule wants waker stacks
	softirqRaise      bool             // a softirq rule wants how long they wait to run
	taskKfuncs        bool             // the kernel hands out a task by its id
	timeouts          bool             // a rule or override has a timeout
	progress          bool             // a syscall rule wants progress stacks
	chainUser         bool             // a chain rule wants the return to user space
	missing           map[string]error // hooks of the kernel that are not here, by program
	unrecorded        map[string]error // those that the recorder's groups would have, by where they are attached
}

// newPlan drops what this kernel cannot serve and says why, by rule name.
func newPlan(list []rules.Rule, groups []string, kernel *btf.Spec) (*plan, []rules.Rule, map[string]error, error) {
	for _, g := range groups {
		if !slices.Contains(Groups, g) {
			return nil, nil, nil, fmt.Errorf("unknown group of recorder events %q: allowed are %v", g, Groups)
		}
	}
	p := &plan{taskKfuncs: hasTaskKfuncs(kernel), tracks: map[rules.Track]bool{}, groups: map[string]bool{}}
	missing := p.probe(groups, kernel)
	var served []rules.Rule
	inactive := map[string]error{}
	for _, r := range list {
		if err := missing[r.Track]; err != nil {
			inactive[r.Name] = fmt.Errorf("tracker %s does not work here: %w", r.Track, err)
			continue
		}
		served = append(served, r)
		p.tracks[r.Track] = true
		run := r.Track == rules.Chain && slices.Contains(r.When.Ends, rules.ToRun)
		sched := r.Track == rules.Wakeup || r.Track == rules.OffCPU || run
		waker := slices.Contains(r.Stacks, rules.WakerStack)
		p.userStacksLater = p.userStacksLater || sched && slices.Contains(r.Stacks, rules.UserStack)
		p.wakerStacksAlways = p.wakerStacksAlways || waker && r.Track == rules.Wakeup
		p.timeouts = p.timeouts || hasTimeout(&r)
		p.progress = p.progress || slices.Contains(r.Stacks, rules.ProgressStacks)
		p.wakerStacksSlow = p.wakerStacksSlow || waker && r.Track == rules.OffCPU
		p.softirqRaise = p.softirqRaise || r.Track == rules.Softirq && admits(r.When.Phase, nil, rules.Raise)
		p.chainUser = p.chainUser || r.Track == rules.Chain && slices.Contains(r.When.Ends, rules.ToUser)
	}
	return p, served, inactive, nil
}

// probe asks the kernel for every hook. It notes what is missing, and which
// groups are left with any, and returns the trackers that lack one.
func (p *plan) probe(groups []string, kernel *btf.Spec) map[rules.Track]error {
	missing := map[rules.Track]error{}
	p.missing, p.unrecorded = map[string]error{}, map[string]error{}
	for i := range hooks {
		h := &hooks[i]
		wanted := slices.ContainsFunc(h.groups, func(g string) bool { return slices.Contains(groups, g) })
		if !wanted && len(h.trackers) == 0 {
			continue // to ask costs something for some
		}
		err := h.probe(kernel)
		if err == nil {
			for _, g := range h.groups {
				if slices.Contains(groups, g) {
					p.groups[g] = true
				}
			}
			continue
		}
		p.missing[h.program] = err
		for _, t := range h.trackers {
			missing[t] = err
		}
		if wanted {
			p.unrecorded[h.site()] = err
		}
	}
	return missing
}

// hasTimeout reports whether a rule fires for work that is still pending.
func hasTimeout(r *rules.Rule) bool {
	return r.Timeout > 0 || slices.ContainsFunc(r.Overrides, func(o rules.Override) bool { return o.Timeout > 0 })
}

// covers reports whether a kernel side loaded for p can also carry out q.
func (p *plan) covers(q *plan) bool {
	for t := range q.tracks {
		if !p.tracks[t] {
			return false
		}
	}
	return (p.chainUser || !q.chainUser) && (p.timeouts || !q.timeouts) && (p.progress || !q.progress) &&
		(p.userStacksLater || !q.userStacksLater) &&
		(p.wakerStacksAlways || !q.wakerStacksAlways) &&
		(p.wakerStacksSlow || p.wakerStacksAlways || !q.wakerStacksSlow) &&
		(p.softirqRaise || !q.softirqRaise)
}

// wants reports whether the program of h is needed.
func (p *plan) wants(h *hook) bool {
	if h.program == "sched_switch" && p.progress || h.program == tickProgram && p.timeouts {
		return true
	}
	if h.program == "sys_exit" && (p.userStacksLater || p.chainUser) {
		return true
	}
	if h.program == "softirq_raise" {
		return p.softirqRaise || p.tracks[rules.Chain]
	}
	return slices.ContainsFunc(h.trackers, func(t rules.Track) bool { return p.tracks[t] }) ||
		slices.ContainsFunc(h.groups, func(g string) bool { return p.groups[g] })
}

// configure sets the knobs of spec, and removes the programs that no one needs.
func (p *plan) configure(spec *ebpf.CollectionSpec) error {
	knobs := map[string]bool{
		"track_wakeup":        p.tracks[rules.Wakeup],
		"track_offcpu":        p.tracks[rules.OffCPU],
		"track_syscall":       p.tracks[rules.Syscall],
		"track_block":         p.tracks[rules.Block],
		"track_irq":           p.tracks[rules.IRQ],
		"track_pair":          p.tracks[rules.Pair],
		"track_softirq":       p.tracks[rules.Softirq],
		"track_softirq_raise": p.softirqRaise,
		"track_chain":         p.tracks[rules.Chain],
		"track_span":          p.tracks[rules.Span],
		"chain_user":          p.chainUser,
		"user_stacks_later":   p.userStacksLater,
		"timeouts":            p.timeouts,
		"task_kfuncs":         p.taskKfuncs,
		"progress_stacks":     p.progress,
		"waker_stacks_always": p.wakerStacksAlways,
		"waker_stacks_slow":   p.wakerStacksSlow,
	}
	for _, g := range Groups {
		knobs["record_"+g] = p.groups[g]
	}
	for name, on := range knobs {
		v, ok := spec.Variables[name]
		if !ok {
			continue // no program reads it: the compiler dropped it
		}
		if err := v.Set(on); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if !p.timeouts || p.taskKfuncs {
		delete(spec.Programs, stackProgram)
	}
	for i := range hooks {
		if !p.wants(&hooks[i]) || p.missing[hooks[i].program] != nil {
			delete(spec.Programs, hooks[i].program)
		}
	}
	return nil
}
