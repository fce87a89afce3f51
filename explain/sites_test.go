package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Code of the cases, by address.
var siteNames = map[uint64]string{
	100: "jbd2_log_wait_commit+0x12b", 101: "ext4_sync_file+0x3", 102: "do_fsync+0x3d",
	110: "copy_pte_of_ours+0x1", 111: "copy_page_range+0x2", 112: "copy_process+0x3",
	120: "rcu_barrier+0x4", 130: "do_epoll_wait+0x1",
}

func stackOf(pid int, user bool, addresses ...uint64) trace.Stack {
	s := trace.Stack{PID: pid, User: user}
	copy(s.Frames[:], addresses)
	return s
}

// TestWhose: whom to look for is no advice where he is known.
func TestWhose(t *testing.T) {
	const find = "Check the process that serves the file system."
	for by, want := range map[string]string{KindTask: "", KindTimer: find} {
		r := Result{Blame: Part{By: &Who{Kind: by}, Site: Site{Function: "request_wait_answer", NS: 1}}}
		assert.Check(t, siteAdvice(&r) == want, "%s: %q", by, siteAdvice(&r))
	}
	assert.Equal(t, siteAdvice(&Result{Blame: Part{Site: Site{Function: "request_wait_answer", NS: 1}}}), find)
}

// TestSites: stacks of waits and samples say where, of the slow task and of culprits.
func TestSites(t *testing.T) {
	for _, c := range []struct {
		name  string
		trace func(s *script)
		want  []string // of the verdict
		not   string
		site  string // of the largest part
	}{
		{
			name: "behind a task that forks", want: []string{"10.0 ms behind other 2, which has the same priority (copying page tables for fork, in copy_page_range: 2 of 3 samples)"},
			trace: func(s *script) {
				s.swap(500, 0, 0, other, sleeps(0)).wake(1000, 0, other, victim, 0).
					add(2000, trace.Sample, 0, other, stackOf(other, false, 110, 111, 112)).
					add(5000, trace.Sample, 0, other, stackOf(other, false, 111, 112)).
					add(8000, trace.Sample, 0, other, stackOf(other, true, 300)).
					swap(11000, 0, other, victim, sleeps(0))
			},
			site: "copy_page_range",
		},
		{
			name: "behind a program", want: []string{"(in luaV_execute: 2 of 2 samples)"},
			trace: func(s *script) {
				s.swap(500, 0, 0, other, sleeps(0)).wake(1000, 0, other, victim, 0).
					add(1990, trace.HrtimerEntry, 0, other, trace.Hrtimer{Hrtimer: 1, Function: 9}).
					add(2000, trace.Sample, 0, other, stackOf(other, true, 200, 1, 2)).
					add(2010, trace.HrtimerExit, 0, other, trace.Hrtimer{Hrtimer: 1}).
					add(5000, trace.Sample, 0, other, stackOf(other, true, 201)).
					add(500_000, trace.Sample, 0, other, stackOf(other, true, 300)).
					swap(11000, 0, other, victim, sleeps(0))
			},
			site: "luaV_execute",
		},
		{
			name: "behind one that runs for long", want: []string{"(in luaV_execute: 2 of 2 samples)"},
			trace: func(s *script) {
				s.swap(500, 0, 0, other, sleeps(0)).wake(1000, 0, other, victim, 0).
					add(6000, trace.RunStack, 0, other, stackOf(other, true, 200, 1, 2)).
					add(10000, trace.RunStack, 0, other, stackOf(other, true, 201)).
					swap(11000, 0, other, victim, sleeps(0))
			},
			site: "luaV_execute",
		},
		{
			name: "said by the outer frames", want: []string{"(copying page tables for fork, in copy_page_range: 2 of 2 samples)"},
			trace: func(s *script) {
				outer := stackOf(other, false, 111, 112)
				outer.Outer = true
				s.swap(500, 0, 0, other, sleeps(0)).wake(1000, 0, other, victim, 0).
					add(6000, trace.RunStack, 0, other, stackOf(other, false, 110)).add(6000, trace.RunStack, 0, other, outer).
					add(10000, trace.RunStack, 0, other, stackOf(other, false, 110)).add(10000, trace.RunStack, 0, other, outer).
					add(10500, trace.RunStack, 0, other, outer). // the other one was lost
					swap(11000, 0, other, victim, sleeps(0))
			},
			site: "copy_page_range",
		},
		{
			// Of its three runs, the shorter two have no samples: nothing is known of most of the time.
			name: "behind one that ran for long, but mostly not", not: "samples",
			trace: func(s *script) {
				s.swap(500, 0, 0, other, sleeps(0)).wake(1000, 0, other, victim, 0).
					swap(4000, 0, other, third, trace.Switch{}).swap(4001, 0, third, other, trace.Switch{}).
					swap(7000, 0, other, third, trace.Switch{}).swap(7001, 0, third, other, trace.Switch{}).
					add(10900, trace.RunStack, 0, other, stackOf(other, true, 200)).
					swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "functions of a program that differ, called from one", want: []string{"(in luaV_execute: 3 of 3 samples)"},
			trace: func(s *script) {
				s.swap(500, 0, 0, other, sleeps(0)).wake(1000, 0, other, victim, 0).
					add(6000, trace.RunStack, 0, other, stackOf(other, true, 401, 9, 200, 300)).
					add(8000, trace.RunStack, 0, other, stackOf(other, true, 402, 200, 300)).
					add(10000, trace.RunStack, 0, other, stackOf(other, true, 403, 201, 300)).
					swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "a program without symbols", want: []string{"(code without symbols, in redis-server: 2 of 2 samples)"},
			trace: func(s *script) {
				s.swap(500, 0, 0, other, sleeps(0)).wake(1000, 0, other, victim, 0).
					add(6000, trace.RunStack, 0, other, stackOf(other, true, 350, 360, 360)).
					add(10000, trace.RunStack, 0, other, stackOf(other, true, 351, 360)).
					swap(11000, 0, other, victim, sleeps(0))
			},
			site: "redis-server",
		},
		{
			name: "a single caller may be chance", not: "luaV_execute",
			trace: func(s *script) {
				s.swap(500, 0, 0, other, sleeps(0)).wake(1000, 0, other, victim, 0).
					add(6000, trace.RunStack, 0, other, stackOf(other, true, 401, 200)).
					add(10000, trace.RunStack, 0, other, stackOf(other, true, 402, 9)).
					swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "samples of others, and of before, do not count", not: "samples",
			trace: func(s *script) {
				s.add(300, trace.Sample, 0, third, stackOf(third, false, 111)).swap(500, 0, 0, other, sleeps(0)).
					add(600, trace.Sample, 0, other, stackOf(other, false, 111)).wake(1000, 0, other, victim, 0).
					add(3000, trace.Sample, 1, third, stackOf(third, false, 111)).swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "a wait of its own", want: []string{"other 2 (in jbd2_log_wait_commit: for the commit of the journal)"},
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 74}).wake(10000, 1, other, victim, 0).
					swap(11000, 0, 0, victim, sleeps(0)).add(11000, trace.WaitStack, 0, victim, stackOf(victim, false, 100, 101, 102))
			},
			site: "jbd2_log_wait_commit",
		},
		{
			name: "the stack of another wait is not its", not: "jbd2",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 74}).wake(10000, 1, other, victim, 0).
					swap(11000, 0, 0, victim, sleeps(0)).add(11900, trace.WaitStack, 0, victim, stackOf(victim, false, 100, 101, 102))
			},
		},
		{
			name: "the wait of a culprit", want: []string{"for other 2, which", "(in rcu_barrier: until all that others gave to RCU to free is freed)"},
			trace: func(s *script) {
				s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(900, 1, other, 0, trace.Switch{PrevState: 2, Call: 74}).
					swap(1000, 0, victim, 0, sleeps(0)).wake(9000, 0, third, other, 1).swap(9100, 1, 0, other, sleeps(0)).
					add(9100, trace.WaitStack, 1, other, stackOf(other, false, 120)).wake(10900, 1, other, victim, 0).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "what the system call says is not said again", not: "do_epoll_wait", site: "do_epoll_wait",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(74)).wake(10900, 1, other, victim, 0).
					swap(11000, 0, 0, victim, sleeps(0)).add(11000, trace.WaitStack, 0, victim, stackOf(victim, false, 130))
			},
		},
		{
			name: "nobody knows the functions", not: "(in", want: []string{"behind third 3"},
			trace: func(s *script) {
				s.swap(500, 0, 0, third, sleeps(0)).wake(1000, 1, other, victim, 0).add(5000, trace.Sample, 0, third, stackOf(third, true, 9999)).
					swap(11000, 0, third, victim, sleeps(0))
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			c.trace(s)
			slices.SortStableFunc(s.list, func(a, b trace.Event) int { return int(a.Time) - int(b.Time) })
			names := caseNames
			names.Function = func(a uint64) string { return siteNames[a] }
			names.Code = func(pid int, a uint64) string {
				switch {
				case pid == other && a >= 200 && a < 300:
					return "luaV_execute+0x7 (redis-server)"
				case pid == other && a == 300:
					return "main+0x1 (redis-server)"
				case pid == other && a > 340 && a < 400:
					return fmt.Sprintf("[unknown] (redis-server+0x%x)", a)
				case pid == other && a > 400:
					return fmt.Sprintf("leaf%d+0x1 (redis-server)", a)
				}
				return ""
			}
			r, err := Explain(&s.list, []Outlier{{
				Rule: "r", Track: "syscall", Start: 1_000_000, End: 11_000_000, TID: victim, Comm: "victim", Syscall: "accept",
			}}, names)
			assert.NilError(t, err)
			got := r.Outliers[0]
			for _, want := range c.want {
				assert.Check(t, strings.Contains(got.Verdict, want), "%s", got.Verdict)
			}
			assert.Check(t, c.not == "" || !strings.Contains(got.Verdict, c.not), "%s", got.Verdict)
			if c.site != "" {
				assert.Equal(t, got.Parts[0].Site.Function, c.site)
			}
		})
	}
}
