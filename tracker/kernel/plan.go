package kernel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// laterProgram copies the user stack of a task that a switch has given the CPU.
const laterProgram = "irq_work_entry"

// Plan says which parts of the kernel side the rules and the recorder need.
type Plan struct {
	Tracks            map[rules.Track]bool
	Groups            map[string]bool
	Contexts          bool // the contexts of threads are read (otel_thread_ctx_v1)
	Attributes        bool // with Contexts: and the attributes in them
	userStacksLater   bool // a rule at sched_switch wants user stacks, and copies of them can be had
	switchesLater     bool // a rule at sched_switch is there, and what is in its task's memory can be had
	wakerStacksAlways bool // a wakeup rule wants waker stacks
	wakerStacksSlow   bool // an offcpu rule wants waker stacks
	softirqRaise      bool // a softirq rule wants how long they wait to run
	wakersNeeded      bool // a rule that tells of waits cannot do without who wakes whom
	locksShed         bool // no program runs at contended locks, for now
	wakersShed        bool // no program runs at wake-ups, for now
	askersNeeded      bool // a rule on block requests cannot do without who asks for them
	askersShed        bool // no program runs where block requests begin, for now
	queuesTellWaits   bool // the kernel's run queues tell how long tasks wait
	softirqsShed      bool // only chains have their hooks, for now
	taskKfuncs        bool // the kernel hands out a task by its id
	preempted         bool // tasks are preempted in programs at tracepoints
	Timeouts          bool // a rule or override has a timeout
	progress          bool // a syscall rule wants progress stacks
	chainUser         bool // a chain rule wants the return to user space
	allCalls          bool // a syscall rule wants every system call
	// Calls are those that syscall rules name and whose functions are attached to.
	Calls CallFunctions
	// Calls32 are those of 32-bit programs, which are attached to once there is such a program.
	Calls32    CallFunctions
	missing    map[string]error // hooks of the kernel that are not here, by program
	Unrecorded map[string]error // those that the recorder's groups would have, by where they are attached
}

// NewPlan drops what this kernel cannot serve and says why, by rule name.
func NewPlan(list []rules.Rule, groups []string, kernel *btf.Spec) (*Plan, []rules.Rule, map[string]error, error) {
	return newPlan(list, groups, kernel, false)
}

// Next is NewPlan for other rules while what was loaded for p runs.
func (p *Plan) Next(list []rules.Rule, kernel *btf.Spec) (*Plan, []rules.Rule, map[string]error, error) {
	q, served, inactive, err := newPlan(list, nil, kernel, p.allCalls)
	if err == nil {
		q.Contexts, q.Attributes = p.Contexts, p.Attributes
	}
	return q, served, inactive, err
}

func newPlan(list []rules.Rule, groups []string, kernel *btf.Spec, allCalls bool) (*Plan, []rules.Rule, map[string]error, error) {
	for _, g := range groups {
		if !slices.Contains(kinds.Groups, g) {
			return nil, nil, nil, fmt.Errorf("unknown group of recorder events %q: allowed are %v", g, kinds.Groups)
		}
	}
	preemption, err := PreemptionHere()
	if err != nil {
		return nil, nil, nil, err
	}
	p := &Plan{
		allCalls: allCalls, taskKfuncs: hasTaskKfuncs(kernel), preempted: preemption.Tracepoints,
		queuesTellWaits: queuesTellWaits(kernel),
		Tracks:          map[rules.Track]bool{}, Groups: map[string]bool{},
	}
	missing := p.probe(groups, kernel)
	var served []rules.Rule
	inactive := p.planCalls(list, kernel)
	for _, r := range list {
		if inactive[r.Name] != nil {
			continue
		}
		if err := missing[r.Track]; err != nil {
			inactive[r.Name] = fmt.Errorf("tracker %s does not work here: %w", r.Track, err)
			continue
		}
		if err := p.lacks(&r); err != nil {
			inactive[r.Name] = err
			continue
		}
		served = append(served, r)
		p.Tracks[r.Track] = true
		run := r.Track == rules.Chain && slices.Contains(r.When.Ends, rules.ToRun)
		sched := r.Track == rules.Wakeup || r.Track == rules.OffCPU || run
		waker := slices.Contains(r.Stacks, rules.WakerStack)
		later := sched && p.missing[laterProgram] == nil
		p.switchesLater = p.switchesLater || later
		p.userStacksLater = p.userStacksLater || later && slices.Contains(r.Stacks, rules.UserStack)
		p.wakersNeeded = p.wakersNeeded || needsWakers(&r)
		p.askersNeeded = p.askersNeeded || needsAskers(&r)
		p.wakerStacksAlways = p.wakerStacksAlways || waker && r.Track == rules.Wakeup
		p.Timeouts = p.Timeouts || hasTimeout(&r)
		p.progress = p.progress || slices.Contains(r.Stacks, rules.ProgressStacks)
		p.wakerStacksSlow = p.wakerStacksSlow || waker && r.Track == rules.OffCPU
		p.softirqRaise = p.softirqRaise || r.Track == rules.Softirq && kinds.Admits(r.When.Phase, nil, rules.Raise)
		p.chainUser = p.chainUser || r.Track == rules.Chain && slices.Contains(r.When.Ends, rules.ToUser)
	}
	return p, served, inactive, nil
}

// probe asks the kernel for every hook. It notes what is missing, and which
// groups are left with any, and returns the trackers that lack one.
func (p *Plan) probe(groups []string, kernel *btf.Spec) map[rules.Track]error {
	missing := map[rules.Track]error{}
	p.missing, p.Unrecorded = map[string]error{}, map[string]error{}
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		wanted := slices.ContainsFunc(h.Groups, func(g string) bool { return slices.Contains(groups, g) })
		wanted = wanted || namesSwitches(groups) && slices.Contains(kinds.NameHooks, h.Program)
		if !wanted && len(h.Trackers()) == 0 && h.Program != laterProgram {
			continue // to ask costs something for some
		}
		err := probe(h, kernel)
		if err == nil {
			for _, g := range h.Groups {
				if slices.Contains(groups, g) {
					p.Groups[g] = true
				}
			}
			continue
		}
		p.missing[h.Program] = err
		for _, t := range h.Trackers() {
			missing[t] = err
		}
		if wanted {
			p.Unrecorded[h.Site()] = err
		}
	}
	return missing
}

// lacks tells which part of a rule needs a hook that its tracker does without and that
// this kernel has not. Without it, the rule would silently never do that part.
func (p *Plan) lacks(r *rules.Rule) error {
	for _, need := range []struct {
		wanted        bool
		what, program string
	}{
		{hasTimeout(r), "timeouts do", tickProgram},
		{slices.Contains(r.Stacks, rules.ProgressStacks), "progress stacks do", "sched_switch"},
		{r.Track == rules.Chain && slices.Contains(r.When.Ends, rules.ToUser), "to: user does", "sys_exit"},
	} {
		if err := p.missing[need.program]; need.wanted && err != nil {
			return fmt.Errorf("%s not work here: %w", need.what, err)
		}
	}
	return nil
}

// needsWakers reports whether a rule needs more of wake-ups than the scheduler's own account has: those
// that have not been followed by a switch yet, or each that has.
func needsWakers(r *rules.Rule) bool {
	switch {
	case r.Track != rules.Wakeup && r.Track != rules.OffCPU:
		return slices.Contains(r.Stacks, rules.ProgressStacks)
	case r.Histogram != nil || r.IsAdaptive():
		return true
	}
	return r.Track == rules.Wakeup && hasTimeout(r)
}

// needsAskers reports whether a rule on block requests needs to know who asked for them.
func needsAskers(r *rules.Rule) bool {
	who := func(m *rules.Match) bool {
		all, not := m.Places()
		return !all.Empty() || !not.Empty() || len(m.Comm)+len(m.NotComm) > 0 ||
			len(m.PID)+len(m.NotPID)+len(m.TID)+len(m.NotTID)+len(m.UID)+len(m.NotUID)+len(m.Thread) > 0
	}
	return r.Track == rules.Block && (r.Histogram != nil || r.IsAdaptive() || who(&r.When) ||
		slices.ContainsFunc(r.Overrides, func(o rules.Override) bool { return who(&o.When) }))
}

// queuesTellWaits reports whether the kernel's run queues tell how long tasks wait: CONFIG_SCHED_INFO and
// CONFIG_FAIR_GROUP_SCHED.
func queuesTellWaits(kernel *btf.Spec) bool {
	var task, entity *btf.Struct
	return kernel.TypeByName("task_struct", &task) == nil && hasMember(task, "sched_info") &&
		kernel.TypeByName("sched_entity", &entity) == nil && hasMember(entity, "cfs_rq")
}

// hasTimeout reports whether a rule fires for work that is still pending.
func hasTimeout(r *rules.Rule) bool {
	return r.Timeout > 0 || slices.ContainsFunc(r.Overrides, func(o rules.Override) bool { return o.Timeout > 0 })
}

// Grow returns the plan for q beside what was loaded for p: what was loaded for rules that
// have gone stays, as what they saw begin would be found when they come back.
func (p *Plan) Grow(q *Plan) *Plan {
	n := *q
	n.Tracks, n.Groups = maps.Clone(q.Tracks), maps.Clone(p.Groups)
	maps.Copy(n.Tracks, p.Tracks)
	for _, flag := range []struct {
		into *bool
		had  bool
	}{
		{&n.userStacksLater, p.userStacksLater},
		{&n.switchesLater, p.switchesLater},
		{&n.wakerStacksAlways, p.wakerStacksAlways},
		{&n.wakerStacksSlow, p.wakerStacksSlow},
		{&n.softirqRaise, p.softirqRaise},
		{&n.wakersNeeded, p.wakersNeeded},
		{&n.askersNeeded, p.askersNeeded},
		{&n.Timeouts, p.Timeouts},
		{&n.progress, p.progress},
		{&n.chainUser, p.chainUser},
		{&n.allCalls, p.allCalls},
	} {
		*flag.into = *flag.into || flag.had
	}
	n.missing, n.Unrecorded = maps.Clone(q.missing), maps.Clone(p.Unrecorded)
	for i := range kinds.RecorderHooks { // which q has not asked for
		if h := kinds.RecorderHooks[i].Program; p.missing[h] != nil {
			n.missing[h] = p.missing[h]
		}
	}
	return &n
}

// Record returns p for other groups of the recorder.
func (p *Plan) Record(groups []string, kernel *btf.Spec) (*Plan, error) {
	q, _, _, err := newPlan(nil, groups, kernel, p.allCalls)
	if err != nil {
		return nil, err
	}
	n := *p
	n.Groups, n.missing, n.Unrecorded = q.Groups, q.missing, q.Unrecorded
	return &n, nil
}

// Covers reports whether a kernel side loaded for p can also carry out q.
func (p *Plan) Covers(q *Plan) bool {
	for t := range q.Tracks {
		if !p.Tracks[t] && t != rules.Pair { // declared pairs have programs of their own
			return false
		}
	}
	has := func(p, q bool) bool { return p || !q }
	return has(p.allCalls, q.allCalls) && has(p.chainUser, q.chainUser) && has(p.Timeouts, q.Timeouts) && has(p.progress, q.progress) &&
		has(p.userStacksLater, q.userStacksLater) && has(p.contextsLater(), q.contextsLater()) && has(p.wakerStacksAlways, q.wakerStacksAlways) &&
		has(p.wakerStacksSlow || p.wakerStacksAlways, q.wakerStacksSlow) && has(p.softirqRaise, q.softirqRaise) &&
		has(p.wakersNeeded, q.wakersNeeded) && has(p.askersNeeded, q.askersNeeded)
}

// namesSwitches reports whether records go without the names of their threads.
func namesSwitches(groups []string) bool { return slices.Contains(groups, "sched") }

// wants reports whether the program of h is needed.
func (p *Plan) wants(h *kinds.Hook) bool {
	if h.Skipped != "" {
		return p.preempted && p.missing[h.Skipped] == nil && p.wants(kinds.HookOf(h.Skipped))
	}
	if h.Program == "sched_switch" && p.progress || h.Program == tickProgram && p.Timeouts {
		return true
	}
	if h.Program == "sys_exit" && p.chainUser || h.Program == laterProgram && (p.userStacksLater || p.contextsLater()) {
		return true
	}
	if p.Groups["sched"] && slices.Contains(kinds.NameHooks, h.Program) || p.Groups["run"] && slices.Contains(kinds.RunHooks, h.Program) {
		return true
	}
	tracks := h.Trackers()
	if h.Program == "sys_enter" || h.Program == "sys_exit" {
		tracks = slices.DeleteFunc(tracks, func(t rules.Track) bool { return t == rules.Syscall && !p.allCalls })
	}
	if h.Program == "softirq_raise" {
		return p.softirqRaise || p.Tracks[rules.Chain]
	}
	if p.locksShed && strings.HasPrefix(h.Program, "contention_") {
		return false
	}
	if p.wakersShed && slices.Contains(wakerHooks, h.Program) {
		return false
	}
	if p.askersShed && slices.Contains(askerHooks, h.Program) {
		return false
	}
	if p.softirqsShed && (h.Program == "softirq_entry" || h.Program == "softirq_exit") {
		return p.Tracks[rules.Chain]
	}
	return slices.ContainsFunc(tracks, func(t rules.Track) bool { return p.Tracks[t] }) ||
		slices.ContainsFunc(h.Groups, func(g string) bool { return p.Groups[g] })
}

// contextsLater reports whether contexts are read after a switch.
func (p *Plan) contextsLater() bool { return p.Contexts && p.switchesLater }

// CallsByTracepoint reports whether every system call of the machine is seen.
func (p *Plan) CallsByTracepoint() bool { return p.Tracks[rules.Syscall] && p.allCalls }

// callsByFunction reports whether syscall rules attach to the functions of their calls.
func (p *Plan) callsByFunction() bool { return p.Tracks[rules.Syscall] && !p.allCalls }

// softirqs tells whether the hooks of softirqs are attached.
func (p *Plan) softirqs() bool {
	return p.Tracks[rules.Chain] || !p.softirqsShed && (p.Groups["irq"] || p.Tracks[rules.Softirq])
}

// interrupts tells whether the hooks of interrupts are attached.
func (p *Plan) interrupts() bool {
	return p.Groups["irq"] || p.Tracks[rules.IRQ] || p.Tracks[rules.Softirq] || p.Tracks[rules.Chain]
}

// configure sets the knobs of the plan, and removes the programs that no one needs.
func (p *Plan) configure(spec *ebpf.CollectionSpec, v *bpf.TailcamVariableSpecs) error {
	knobs := []knob{
		{v.TrackSoftirqRaise, p.softirqRaise},
		{v.ChainUser, p.chainUser},
		{v.CallsByTracepoint, p.allCalls},
		{v.UserStacksLater, p.userStacksLater},
		{v.ThreadContexts, p.Contexts},
		{v.ThreadContextsLater, p.contextsLater()},
		{v.ThreadAttributes, p.Contexts && p.Attributes},
		{v.Timeouts, p.Timeouts},
		{v.TaskKfuncs, p.taskKfuncs},
		{v.ProgressStacks, p.progress},
		{v.WakerStacksAlways, p.wakerStacksAlways},
		{v.WakerStacksSlow, p.wakerStacksSlow},
	}
	for i := range kinds.All {
		if kind := &kinds.All[i]; kind.Enabled != nil {
			knobs = append(knobs, knob{kind.Enabled(v), p.Tracks[kind.Track]})
		}
	}
	for _, g := range kinds.Groups {
		if recorded := kinds.Recorded(g, v); recorded != nil {
			knobs = append(knobs, knob{recorded, p.Groups[g]})
		}
	}
	if !p.Timeouts || p.taskKfuncs {
		delete(spec.Programs, stackProgram)
	}
	if !p.Timeouts {
		delete(spec.Programs, seedTasksProgram)
	}
	if !p.Groups["sched"] {
		delete(spec.Programs, seedProgram)
	}
	if !p.callsByFunction() {
		delete(spec.Programs, narrowProgram)
	}
	for i := range kinds.Hooks {
		if h := &kinds.Hooks[i]; !p.wants(h) || p.missing[h.Program] != nil {
			delete(spec.Programs, h.Program)
		}
	}
	return set(knobs)
}

// knob is a constant of the kernel side, set before it is loaded.
type knob struct {
	variable *ebpf.VariableSpec
	value    any
}

func set(knobs []knob) error {
	for _, k := range knobs {
		if err := k.variable.Set(k.value); err != nil {
			return fmt.Errorf("set %s: %w", k.variable.Name, err)
		}
	}
	return nil
}
