package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

func TestCompileTable(t *testing.T) {
	list := []rules.Rule{
		{Name: "b", Track: rules.Block, Threshold: time.Second},
		{Name: "w1", Track: rules.Wakeup, Threshold: time.Millisecond},
		{Name: "s", Track: rules.Syscall, Threshold: time.Second},
		{Name: "w2", Track: rules.Wakeup, Threshold: 2 * time.Millisecond},
	}
	c, err := New(list, 3, 0, nil)
	assert.NilError(t, err)
	var order []string
	for _, r := range c.Sources {
		order = append(order, r.Name)
	}
	// Grouped by tracker in the kernel's order, and as written within one.
	got := strings.Join(order, " ")
	assert.Check(t, got == "w1 w2 s b", "order %q", got)
	want := [abi.Trackers]uint32{0, 2, 2, 3, 4, 4, 4, 4, 4, 4}
	assert.Check(t, c.Table.First == want, "first %v, want %v", c.Table.First, want)
	want = [abi.Trackers]uint32{2, 0, 1, 1}
	assert.Check(t, c.Table.Count == want, "count %v, want %v", c.Table.Count, want)
}

func TestCompileConditions(t *testing.T) {
	yes := true
	c, err := New([]rules.Rule{{
		Name: "r", Track: rules.Wakeup, Threshold: time.Millisecond,
		When: rules.Match{
			Comm: []string{"a*", "b"}, NotComm: []string{"c?"}, PID: []uint32{7, 8}, NotUID: []uint32{0},
			Cgroup: []string{"/x/**"}, NotCgroup: []string{"/y"}, Thread: []rules.Thread{rules.KernelThread}, Preempted: &yes,
		},
		Overrides: []rules.Override{
			{When: rules.Match{Cgroup: []string{"/x/**"}}, Threshold: time.Second},
			{When: rules.Match{Cgroup: []string{"/z"}}, Threshold: time.Second},
		},
		Snapshot: rules.SnapshotPolicy{Enabled: true, Every: time.Second, Burst: 3},
	}}, 1, 10, nil)
	assert.NilError(t, err)
	r := c.Rules[0]
	const want = abi.MatchComm | abi.MatchNotComm | abi.MatchPid | abi.MatchNotUid | abi.MatchCgroup | abi.MatchNotCgroup | abi.MatchThread | abi.MatchPreempted
	assert.Check(t, r.When.Fields == want, "fields %#x, want %#x", r.When.Fields, want)
	assert.Check(t, r.When.Comm.First == 0 && r.When.Comm.Count == 2 && r.When.NotComm.First == 2 &&
		r.When.NotComm.Count == 1, "glob ranges %+v %+v", r.When.Comm, r.When.NotComm)
	assert.Check(t, r.When.PidSet == 11 && r.When.NotUidSet == 12 && len(c.Sets) == 3,
		"sets %d %d, %d members", r.When.PidSet, r.When.NotUidSet, len(c.Sets))
	assert.Check(t, r.When.Threads == 2 && r.When.Preempted == 1,
		"threads %d, preempted %d", r.When.Threads, r.When.Preempted)
	// Equal lists share a bit.
	if r.When.Cgroups != 1 || r.When.NotCgroups != 2 || c.Overrides[0].When.Cgroups != 1 || c.Overrides[1].When.Cgroups != 4 {
		t.Errorf("cgroup bits %d %d %d %d", r.When.Cgroups, r.When.NotCgroups, c.Overrides[0].When.Cgroups, c.Overrides[1].When.Cgroups)
	}
	got := c.CgroupVerdict(&rules.Place{Cgroup: "/x/y"})
	assert.Check(t, got == 1, "verdict %b, want 1", got)
	assert.Check(t, r.EveryNs == 1e9 && r.AllowNs == 2e9, "limiter every %d, allow %d", r.EveryNs, r.AllowNs)
}

// Conditions on units and pods are verdicts on cgroups: one bit for all lists of a when, and
// one for all that must not match.
func TestCompilePlaces(t *testing.T) {
	shop := rules.Match{Namespace: []string{"shop"}, Pod: []string{"web-*"}, NotContainer: []string{"proxy"}, NotUnit: []string{"x.scope"}}
	g, err := New([]rules.Rule{
		{Name: "a", Track: rules.Wakeup, Threshold: time.Second, When: shop},
		{Name: "b", Track: rules.Wakeup, Threshold: time.Second, When: rules.Match{NotPod: []string{"*"}}},
		{Name: "c", Track: rules.Block, Threshold: time.Second, When: shop},
	}, 1, 0, nil)
	assert.NilError(t, err)
	for _, i := range []int{0, 2} {
		w := g.Rules[i].When
		assert.Check(t, w.Fields == abi.MatchCgroup|abi.MatchNotCgroup && w.Cgroups == 1 && w.NotCgroups == 2, "%+v", w)
	}
	assert.Check(t, g.Rules[1].When.Fields == abi.MatchNotCgroup && g.Rules[1].When.NotCgroups == 4 && g.NeedRuntime())
	for _, test := range []struct {
		at   rules.Place
		want uint64
	}{
		{rules.Place{Cgroup: "/"}, 0},
		{rules.Place{Pod: "web-1", Namespace: "shop", ContainerName: "app", Unit: "y.scope"}, 1 | 4},
		{rules.Place{Pod: "web-1", Namespace: "shop", ContainerName: "proxy", Unit: "y.scope"}, 1 | 2 | 4},
		{rules.Place{Pod: "web-1", Namespace: "test", Unit: "x.scope"}, 2 | 4},
		{rules.Place{Unit: "x.scope"}, 2},
	} {
		assert.Check(t, g.CgroupVerdict(&test.at) == test.want, "%+v: %b, want %b", test.at, g.CgroupVerdict(&test.at), test.want)
	}
}

func TestCompileLimits(t *testing.T) {
	many := func(n int, f func(i int) rules.Rule) []rules.Rule {
		var list []rules.Rule
		for i := range n {
			list = append(list, f(i))
		}
		return list
	}
	plain := func(i int) rules.Rule {
		return rules.Rule{Name: fmt.Sprintf("r%d", i), Track: rules.Wakeup, Threshold: time.Second}
	}
	for _, tc := range []struct {
		list []rules.Rule
		want string
	}{
		{many(65, plain), "65 rules, but the kernel side holds 64"},
		{many(1, func(i int) rules.Rule {
			r := plain(i)
			r.Overrides = make([]rules.Override, 257)
			return r
		}), "more than 256 overrides"},
		{many(60, func(i int) rules.Rule {
			r := plain(i)
			r.When.Cgroup, r.When.NotCgroup = []string{fmt.Sprint("/a", i)}, []string{fmt.Sprint("/b", i)}
			return r
		}), "more than 64 different lists"},
		{many(1, func(i int) rules.Rule {
			r := plain(i)
			r.When.Comm = []string{"sixteen-bytes-xx"}
			return r
		}), "at most 15 bytes"},
		{many(1, func(i int) rules.Rule {
			r := plain(i)
			r.When.Comm = strings.Split(strings.Repeat("x ", 512)+"x", " ")
			return r
		}), "more than 512 comm patterns"},
	} {
		_, err := New(tc.list, 1, 0, nil)
		assert.Check(t, is.ErrorContains(err, tc.want))
	}
}

func TestFloors(t *testing.T) {
	number := func(name string) int {
		nr, ok := rules.SyscallNumber(name)
		assert.Assert(t, ok, "no call %s", name)
		return nr
	}
	read, write, exit := number("read"), number("write"), number("exit_group")
	f := floorsOf([]rules.Rule{
		{
			Track: rules.Wakeup, Threshold: 5, When: rules.Match{Thread: []rules.Thread{rules.UserThread}},
			Overrides: []rules.Override{
				{Threshold: 2},
				{Threshold: 1, When: rules.Match{Thread: []rules.Thread{rules.KernelThread}}}, // can abi.Never hold
			},
		},
		{Track: rules.OffCPU, Threshold: 7, When: rules.Match{State: []rules.State{rules.Uninterruptible}}},
		{Track: rules.Syscall, Threshold: 9, When: rules.Match{Syscall: []int{read}}},
		{Track: rules.Syscall, Threshold: 11, When: rules.Match{NotSyscall: []int{read}}},
		{
			Track: rules.Block, Threshold: 20,
			Overrides: []rules.Override{{Threshold: 3, When: rules.Match{Op: []rules.Op{rules.Flush}}}},
		},
	})
	for _, tc := range []struct {
		what      string
		got, want uint64
	}{
		{"wakeup of user threads", f.of[abi.TrackWakeup][0], 2},
		{"wakeup of kernel threads", f.of[abi.TrackWakeup][1], abi.Never},
		{"offcpu interruptible", f.of[abi.TrackOffcpu][0], abi.Never},
		{"offcpu uninterruptible", f.of[abi.TrackOffcpu][1], 7},
		{"offcpu of kernel threads", f.of[abi.TrackOffcpu][4], 7},
		{"read", f.of[abi.TrackSyscall][read], 9},
		{"write", f.of[abi.TrackSyscall][write], 11},
		{"exit_group", f.of[abi.TrackSyscall][exit], abi.Never},
		{"block read", f.of[abi.TrackBlock][0], 20},
		{"block flush", f.of[abi.TrackBlock][2], 3},
	} {
		assert.Check(t, is.Equal(tc.got, tc.want), "floor of %s", tc.what)
	}
	other := floorsOf([]rules.Rule{{Track: rules.Wakeup, Threshold: 1, When: rules.Match{Thread: []rules.Thread{rules.KernelThread}}}})
	both := f.Lowest(&other)
	got := both.of[abi.TrackWakeup]
	assert.Check(t, slices.Equal(got, []uint64{2, 1}), "lowest of both is %v", got)
}

// floorsOf is NewFloors of a list that is not compiled.
func floorsOf(list []rules.Rule) Floors {
	sources := make([]*rules.Rule, len(list))
	for i := range list {
		sources[i] = &list[i]
	}
	return NewFloors(sources, nil)
}

func TestChainFloors(t *testing.T) {
	rule := func(threshold time.Duration, from []rules.Origin, to ...rules.End) rules.Rule {
		return rules.Rule{Name: "c", Track: rules.Chain, Threshold: threshold, When: rules.Match{From: from, Ends: to}}
	}
	f := floorsOf([]rules.Rule{
		rule(5, []rules.Origin{rules.FromIRQ}, rules.ToRun, rules.ToBlock),
		rule(3, []rules.Origin{rules.FromSoftirq}, rules.ToBlock),
	})
	assert.Check(t, slices.Equal(f.of[abi.TrackChain], []uint64{5, abi.Never, 3, abi.Never}) && f.ChainFrom == 1|4,
		"floors %v from %b", f.of[abi.TrackChain], f.ChainFrom)
	f = floorsOf([]rules.Rule{rule(7, nil)})
	assert.Check(t, slices.Equal(f.of[abi.TrackChain], []uint64{7, 7, 7, abi.Never}) && f.ChainFrom == 7,
		"without from and to: floors %v from %b", f.of[abi.TrackChain], f.ChainFrom)
	f = floorsOf(nil)
	assert.Check(t, f.ChainFrom == 0, "without rules: from %b", f.ChainFrom)
}

func TestInterruptFloors(t *testing.T) {
	f := floorsOf([]rules.Rule{
		{
			Track: rules.IRQ, Threshold: 2 * time.Millisecond, When: rules.Match{IRQ: []uint32{4, 260, 300}},
			Overrides: []rules.Override{{When: rules.Match{IRQ: []uint32{300}}, Threshold: time.Millisecond}},
		},
		{
			Track: rules.Softirq, Threshold: 5, When: rules.Match{Phase: []rules.Phase{rules.Raise}, NotVector: []rules.Vector{"rcu"}},
			Overrides: []rules.Override{{When: rules.Match{Vector: []rules.Vector{"timer", "rcu"}}, Threshold: 3}},
		},
	})
	for irq, want := range map[int]uint64{4: 2e6, 44: 1e6, 5: abi.Never, 0: abi.Never, 255: abi.Never} {
		assert.Check(t, is.Equal(f.of[abi.TrackIrq][irq], want), "floor of irq %d", irq)
	}
	for v, want := range map[int]uint64{0: 5, 1: 3, 8: 5, 9: abi.Never} {
		assert.Check(t, is.Equal(f.of[abi.TrackSoftirq][v], want), "floor of raised vector %d", v)
	}
	for v, floor := range f.of[abi.TrackSoftirq][abi.Softirqs:] {
		assert.Check(t, floor == abi.Never, "floor of running vector %d is %d, want none", v, floor)
	}
	// Without conditions, of every interrupt.
	f = floorsOf([]rules.Rule{{Track: rules.IRQ, Threshold: 7}, {Track: rules.Softirq, Threshold: 8}})
	for i := range f.of[abi.TrackIrq] {
		assert.Assert(t, f.of[abi.TrackIrq][i] == 7, "floor of irq %d is %d", i, f.of[abi.TrackIrq][i])
	}
	for class, floor := range f.of[abi.TrackSoftirq] {
		assert.Check(t, floor == 8, "floor of softirq class %d is %d", class, floor)
	}
}

func TestInterruptConditions(t *testing.T) {
	c, err := New([]rules.Rule{
		{Name: "i", Track: rules.IRQ, Threshold: 1, When: rules.Match{IRQ: []uint32{0}, NotIRQ: []uint32{5}, Name: []string{"nvme*"}, NotName: []string{"a", "b"}, NotCPU: []uint32{1}}},
		{Name: "s", Track: rules.Softirq, Threshold: 1, When: rules.Match{NotVector: []rules.Vector{"timer"}, Phase: []rules.Phase{rules.Run}, CPU: []uint32{2, 3}}},
	}, 1, 0, nil)
	assert.NilError(t, err)
	i, s := &c.Rules[0].When, &c.Rules[1].When
	if want := uint32(abi.MatchIrq | abi.MatchNotIrq | abi.MatchName | abi.MatchNotName | abi.MatchNotCpu); i.Fields != want {
		t.Errorf("irq has conditions %#x, want %#x", i.Fields, want)
	}
	if want := uint32(abi.MatchVector | abi.MatchPhase | abi.MatchCpu); s.Fields != want {
		t.Errorf("softirq has conditions %#x, want %#x", s.Fields, want)
	}
	assert.Check(t, i.Names == 1 && i.NotNames == 2 && len(c.Names) == 2,
		"lists of names %b, %b of %v", i.Names, i.NotNames, c.Names)
	assert.Check(t, s.Vectors == 0xfffd && s.Phases == 2, "vectors %#x, phases %b", s.Vectors, s.Phases)
	want := map[abi.SetKey]struct{}{
		{Set: uint32(i.IrqSet), Value: 0}: {}, {Set: uint32(i.NotIrqSet), Value: 5}: {}, {Set: uint32(i.NotCpuSet), Value: 1}: {},
		{Set: uint32(s.CpuSet), Value: 2}: {}, {Set: uint32(s.CpuSet), Value: 3}: {},
	}
	assert.Check(t, is.DeepEqual(want, c.Sets))
}
