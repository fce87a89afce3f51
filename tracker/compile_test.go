package tracker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tailcam/tailcam/rules"
)

func TestCompileTable(t *testing.T) {
	list := []rules.Rule{
		{Name: "b", Track: rules.Block, Threshold: time.Second},
		{Name: "w1", Track: rules.Wakeup, Threshold: time.Millisecond},
		{Name: "s", Track: rules.Syscall, Threshold: time.Second},
		{Name: "w2", Track: rules.Wakeup, Threshold: 2 * time.Millisecond},
	}
	c, err := compile(list, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, r := range c.source {
		order = append(order, r.Name)
	}
	// Grouped by tracker in the kernel's order, and as written within one.
	if got := strings.Join(order, " "); got != "w1 w2 s b" {
		t.Errorf("order %q", got)
	}
	if want := [trackers]uint32{0, 2, 2, 3, 4, 4, 4, 4, 4}; c.table.First != want {
		t.Errorf("first %v, want %v", c.table.First, want)
	}
	if want := [trackers]uint32{2, 0, 1, 1}; c.table.Count != want {
		t.Errorf("count %v, want %v", c.table.Count, want)
	}
}

func TestCompileConditions(t *testing.T) {
	yes := true
	c, err := compile([]rules.Rule{{
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
	}}, 1, 10)
	if err != nil {
		t.Fatal(err)
	}
	r := c.rules[0]
	const want = matchComm | matchNotComm | matchPID | matchNotUID | matchCgroup | matchNotCgroup | matchThread | matchPreempted
	if r.When.Fields != want {
		t.Errorf("fields %#x, want %#x", r.When.Fields, want)
	}
	if r.When.Comm.First != 0 || r.When.Comm.Count != 2 || r.When.NotComm.First != 2 || r.When.NotComm.Count != 1 {
		t.Errorf("glob ranges %+v %+v", r.When.Comm, r.When.NotComm)
	}
	if r.When.PidSet != 11 || r.When.NotUidSet != 12 || len(c.sets) != 3 {
		t.Errorf("sets %d %d, %d members", r.When.PidSet, r.When.NotUidSet, len(c.sets))
	}
	if r.When.Threads != 2 || r.When.Preempted != 1 {
		t.Errorf("threads %d, preempted %d", r.When.Threads, r.When.Preempted)
	}
	// Equal lists share a bit.
	if r.When.Cgroups != 1 || r.When.NotCgroups != 2 || c.overrides[0].When.Cgroups != 1 || c.overrides[1].When.Cgroups != 4 {
		t.Errorf("cgroup bits %d %d %d %d", r.When.Cgroups, r.When.NotCgroups, c.overrides[0].When.Cgroups, c.overrides[1].When.Cgroups)
	}
	if got := verdict(c.cgroups, rules.CgroupMatch, "/x/y"); got != 1 {
		t.Errorf("verdict %b, want 1", got)
	}
	if r.EveryNs != 1e9 || r.AllowNs != 2e9 {
		t.Errorf("limiter every %d, allow %d", r.EveryNs, r.AllowNs)
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
		if _, err := compile(tc.list, 1, 0); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

func TestFloors(t *testing.T) {
	number := func(name string) int {
		nr, ok := rules.SyscallNumber(name)
		if !ok {
			t.Fatalf("no call %s", name)
		}
		return nr
	}
	read, write, exit := number("read"), number("write"), number("exit_group")
	f := newFloors([]rules.Rule{
		{
			Track: rules.Wakeup, Threshold: 5, When: rules.Match{Thread: []rules.Thread{rules.UserThread}},
			Overrides: []rules.Override{
				{Threshold: 2},
				{Threshold: 1, When: rules.Match{Thread: []rules.Thread{rules.KernelThread}}}, // can never hold
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
		{"wakeup of user threads", f.wakeup[0], 2},
		{"wakeup of kernel threads", f.wakeup[1], never},
		{"offcpu interruptible", f.offcpu[0][0], never},
		{"offcpu uninterruptible", f.offcpu[0][1], 7},
		{"offcpu of kernel threads", f.offcpu[1][1], 7},
		{"read", f.syscall[read], 9},
		{"write", f.syscall[write], 11},
		{"exit_group", f.syscall[exit], never},
		{"block read", f.block[0], 20},
		{"block flush", f.block[2], 3},
	} {
		if tc.got != tc.want {
			t.Errorf("floor of %s is %d, want %d", tc.what, tc.got, tc.want)
		}
	}
	other := newFloors([]rules.Rule{{Track: rules.Wakeup, Threshold: 1, When: rules.Match{Thread: []rules.Thread{rules.KernelThread}}}})
	both := f.lowest(&other)
	if both.wakeup != [2]uint64{2, 1} {
		t.Errorf("lowest of both is %v", both.wakeup)
	}
}

func TestPlan(t *testing.T) {
	p := &plan{tracks: map[rules.Track]bool{rules.Wakeup: true}, groups: map[string]bool{}, wakerStacksAlways: true}
	for _, tc := range []struct {
		q    plan
		want bool
	}{
		{plan{tracks: map[rules.Track]bool{rules.Wakeup: true}}, true},
		{plan{tracks: map[rules.Track]bool{rules.Block: true}}, false},
		{plan{userStacksLater: true}, false},
		{plan{wakerStacksSlow: true}, true}, // the running side takes more than that
	} {
		if got := p.covers(&tc.q); got != tc.want {
			t.Errorf("covers %+v: %t", tc.q, got)
		}
	}
}
