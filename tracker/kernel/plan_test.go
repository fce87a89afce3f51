package kernel

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// kernelWith makes the types of a kernel that has no tracepoint but these,
// with arguments of any kind.
func kernelWith(t *testing.T, tracepoints ...string) *btf.Spec {
	t.Helper()
	var list []btf.Type
	for _, name := range tracepoints {
		proto := &btf.FuncProto{Return: (*btf.Void)(nil), Params: []btf.FuncParam{
			{Type: &btf.Pointer{Target: (*btf.Void)(nil)}}, {Type: &btf.Pointer{Target: &btf.Int{Name: "int", Size: 4}}},
		}}
		list = append(list, &btf.Typedef{Name: "btf_trace_" + name, Type: &btf.Pointer{Target: proto}})
	}
	b, err := btf.NewBuilder(list, nil)
	assert.NilError(t, err)
	raw, err := b.Marshal(nil, nil)
	assert.NilError(t, err)
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	assert.NilError(t, err)
	return spec
}

// TestMissingHooks takes tracepoints away from a kernel: a group goes on with
// what is left, is absent without any, and a tracker needs all of its own.
func TestMissingHooks(t *testing.T) {
	kernel := kernelWith(t, "contention_begin", "sched_waking", "kvm_entry")
	p, served, inactive, err := NewPlan([]rules.Rule{{Name: "r", Track: rules.Wakeup}},
		[]string{"lock", "net", "sched", "throttle", "kvm"}, kernel)
	assert.NilError(t, err)
	assert.Check(t, len(served) == 0 && inactive["r"] != nil, "served %v, inactive %v", served, inactive)
	for group, want := range map[string]bool{"lock": true, "sched": true, "net": false, "throttle": false, "kvm": false} {
		assert.Check(t, is.Equal(p.Groups[group], want), "group %s", group)
	}
	for site, want := range map[string]string{
		"tp_btf:contention_end":  "this kernel has no tracepoint contention_end",
		"tp_btf:napi_poll":       "this kernel has no tracepoint napi_poll",
		"fexit:throttle_cfs_rq":  "this kernel has no function throttle_cfs_rq that can be traced",
		"tp_btf:kvm_entry":       "tracepoint kvm_entry has other arguments here: struct kvm_vcpu is not the first",
		"tp_btf:sched_switch":    "this kernel has no tracepoint sched_switch",
		"tp_btf:page_fault_user": "", // nobody asked for it
	} {
		got := ""
		if why := p.Unrecorded[site]; why != nil {
			got = why.Error()
		}
		assert.Check(t, is.Equal(got, want), "%s", site)
	}
	_, _, _, err = NewPlan(nil, []string{"locks"}, kernel)
	assert.Check(t, err != nil, "a group that does not exist is taken")
}

// TestUserStacksNeedNoSyscallHook: nothing is attached to system calls for them.
func TestUserStacksNeedNoSyscallHook(t *testing.T) {
	hooks := []string{
		"sched_switch", "sched_waking", "sched_wakeup_new", "sched_migrate_task", "sched_process_exec", "sched_process_exit",
		"sys_enter", "sys_exit", "hrtimer_expire_entry",
	}
	list := []rules.Rule{{Name: "r", Track: rules.OffCPU, Stacks: []rules.Stack{rules.UserStack}}}
	for _, has := range []bool{true, false} {
		if has {
			hooks = append(hooks, laterProgram)
		} else {
			hooks = hooks[:len(hooks)-1]
		}
		p, served, _, err := NewPlan(list, nil, kernelWith(t, hooks...))
		assert.Assert(t, err == nil && len(served) == 1)
		for i := range kinds.Hooks {
			h := &kinds.Hooks[i]
			switch h.Program {
			case "sys_enter", "sys_exit":
				assert.Check(t, !p.wants(h), "%s is attached", h.Program)
			case laterProgram:
				assert.Check(t, p.wants(h) == has, "on a kernel that has it: %t", has)
			}
		}
	}
}

// TestWakersShed: where the scheduler's own account will do, nothing is attached to wake-ups.
func TestWakersShed(t *testing.T) {
	hooks := []string{"sched_switch", "sched_waking", "sched_wakeup_new", "sched_migrate_task", "hrtimer_expire_entry"}
	kernel := kernelWith(t, hooks...)
	wakeup, asleep := rules.Rule{Name: "w", Track: rules.Wakeup}, rules.Rule{Name: "o", Track: rules.OffCPU, Timeout: time.Second}
	late, counted := wakeup, wakeup
	late.Overrides = []rules.Override{{Timeout: time.Second}}
	counted.Histogram = &rules.Histogram{}
	for name, tt := range map[string]struct {
		list   []rules.Rule
		groups []string
		knows  bool // the kernel does
		want   bool
	}{
		"both":              {[]rules.Rule{wakeup, asleep}, nil, true, true},
		"sleeps":            {[]rules.Rule{asleep}, []string{"irq"}, true, true},
		"recorded":          {[]rules.Rule{wakeup}, []string{"sched"}, true, false},
		"a timeout":         {[]rules.Rule{asleep, late}, nil, true, false},
		"a histogram":       {[]rules.Rule{counted}, nil, true, false},
		"no rule":           {nil, nil, true, false},
		"an ignorant queue": {[]rules.Rule{wakeup}, nil, false, false},
	} {
		p, _, _, err := NewPlan(tt.list, tt.groups, kernel)
		assert.NilError(t, err)
		p.queuesTellWaits = tt.knows
		q := p.without(&Shedding{Wakers: true})
		for _, program := range wakerHooks {
			wants := len(tt.list) > 0 || slices.Contains(tt.groups, "sched")
			assert.Check(t, is.Equal(q.keeps(kinds.HookOf(program)), wants && !tt.want), "%s: %s", name, program)
		}
		assert.Check(t, is.Equal(q.keeps(kinds.HookOf("sched_switch")), len(tt.list) > 0), name)
	}
}

// TestAskersShed: where no rule asks who it was, only completions of block requests have a program.
func TestAskersShed(t *testing.T) {
	kernel := kernelWith(t, "block_rq_complete", "block_rq_merge", "block_rq_requeue", "block_rq_issue", "block_rq_insert", "hrtimer_expire_entry")
	disk := rules.Rule{Name: "d", Track: rules.Block, Timeout: time.Second, When: rules.Match{Op: []rules.Op{rules.Read}, NotDevice: []string{"loop*"}}}
	of := func(m rules.Match) rules.Rule {
		r := disk
		r.When = m
		return r
	}
	counted, late, other := disk, disk, disk
	counted.Histogram = &rules.Histogram{}
	late.Overrides = []rules.Override{{When: rules.Match{NotContainer: []string{"db"}}, Threshold: time.Second}}
	other.When.Comm = []string{"a*"}
	for name, tt := range map[string]struct {
		list   []rules.Rule
		groups []string
		want   bool
	}{
		"by device":          {[]rules.Rule{disk}, nil, true},
		"recorded":           {[]rules.Rule{disk}, []string{"block"}, false},
		"by name":            {[]rules.Rule{disk, other}, nil, false},
		"by cgroup":          {[]rules.Rule{of(rules.Match{Cgroup: []string{"/a"}})}, nil, false},
		"by kind of thread":  {[]rules.Rule{of(rules.Match{Thread: []rules.Thread{rules.UserThread}})}, nil, false},
		"by an override":     {[]rules.Rule{late}, nil, false},
		"a histogram":        {[]rules.Rule{counted}, nil, false},
		"no rule":            {nil, nil, false},
		"recorded, no rules": {nil, []string{"block"}, false},
	} {
		p, _, _, err := NewPlan(tt.list, tt.groups, kernel)
		assert.NilError(t, err)
		q := p.without(&Shedding{Askers: true})
		assert.Check(t, is.Equal(q.askersShed, tt.want), name)
		needed := len(tt.list)+len(tt.groups) > 0
		assert.Check(t, is.Equal(q.keeps(kinds.HookOf("block_rq_complete")), needed), name)
		for _, program := range []string{"block_rq_insert", "block_rq_issue"} {
			assert.Check(t, is.Equal(q.keeps(kinds.HookOf(program)), needed && !tt.want), "%s: %s", name, program)
		}
	}
}

// TestSkippedRuns: where tasks are preempted in programs at tracepoints, ends have a second one.
func TestSkippedRuns(t *testing.T) {
	p := &Plan{Tracks: map[rules.Track]bool{rules.Block: true, rules.Syscall: true}, Groups: map[string]bool{"workqueue": true}}
	for _, preempted := range []bool{false, true} {
		for _, calls := range []bool{false, true} {
			p.preempted, p.allCalls = preempted, calls
			for program, want := range map[string]bool{
				"block_rq_complete_skipped": true, "workqueue_execute_end_skipped": true, "sys_exit_skipped": calls, "softirq_exit_skipped": false,
			} {
				h := kinds.HookOf(program)
				assert.Assert(t, h != nil, program)
				assert.Check(t, p.wants(h) == (want && preempted), "%s, preempted %t, all calls %t", program, preempted, calls)
			}
		}
	}
}

func TestPlan(t *testing.T) {
	p := &Plan{Tracks: map[rules.Track]bool{rules.Wakeup: true}, Groups: map[string]bool{}, wakerStacksAlways: true}
	for _, tc := range []struct {
		q    Plan
		want bool
	}{
		{Plan{Tracks: map[rules.Track]bool{rules.Wakeup: true}}, true},
		{Plan{Tracks: map[rules.Track]bool{rules.Block: true}}, false},
		{Plan{userStacksLater: true}, false},
		{Plan{wakerStacksSlow: true}, true}, // the running side takes more than that
	} {
		got := p.Covers(&tc.q)
		assert.Check(t, got == tc.want, "covers %+v: %t", tc.q, got)
	}
}

// TestPlanWithoutSoftirqs: their hooks go, unless chains need them; those of interrupts stay.
func TestPlanWithoutSoftirqs(t *testing.T) {
	for _, chain := range []bool{false, true} {
		p := &Plan{
			Tracks: map[rules.Track]bool{rules.Softirq: true, rules.IRQ: true, rules.Chain: chain},
			Groups: map[string]bool{"irq": true}, softirqRaise: true,
		}
		q := p.without(&Shedding{Softirqs: true})
		for i := range kinds.Hooks {
			h := &kinds.Hooks[i]
			switch h.Program {
			case "softirq_entry", "softirq_exit", "softirq_raise":
				assert.Check(t, p.wants(h) && q.wants(h) == chain, "%s, chain %t", h.Program, chain)
			case "irq_handler_entry", "irq_handler_exit":
				assert.Check(t, q.wants(h), "%s, chain %t", h.Program, chain)
			}
		}
		assert.Check(t, p.softirqs() && q.softirqs() == chain, "chain %t", chain)
	}
}

// TestProgramNames: programs that are found by their name are there.
func TestProgramNames(t *testing.T) {
	spec, err := bpf.LoadTailcam()
	assert.NilError(t, err)
	names := []string{tickProgram, stackProgram, seedProgram, narrowProgram, "sched_switch", "sys_exit", "softirq_raise"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Calls]()) {
		names = append(names, f.Tag.Get("ebpf"))
	}
	for _, name := range names {
		assert.Check(t, spec.Programs[name] != nil, "the kernel side has no program %q", name)
	}
}
