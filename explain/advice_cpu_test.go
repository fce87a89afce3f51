package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestAdviceOnEquals: a nice value is advised only where it does something.
func TestAdviceOnEquals(t *testing.T) {
	limits := map[string]string{"/a cpu.weight": "100", "/b cpu.weight": "900"}
	for _, c := range []struct {
		name           string
		victim, other  TaskInfo
		nice           int // of the victim
		autogroup      string
		want, mustNot  string
		verdict, silly string
	}{
		{name: "one session", victim: TaskInfo{Session: 7}, other: TaskInfo{Session: 7}, autogroup: "1", want: "renice -n -5 -p 1", verdict: "same priority"},
		{name: "two sessions", victim: TaskInfo{Session: 7}, other: TaskInfo{Session: 8}, autogroup: "1", want: "echo -5 > /proc/1/autogroup", mustNot: "renice"},
		{name: "sessions do not count", victim: TaskInfo{Session: 7}, other: TaskInfo{Session: 8}, autogroup: "0", want: "renice", mustNot: "autogroup"},
		{name: "two sessions, in spite of nice values", victim: TaskInfo{Session: 7}, other: TaskInfo{Session: 8}, nice: -20, autogroup: "1", want: "echo -5 > /proc/1/autogroup", mustNot: "renice", verdict: "of another session", silly: "same priority"},
		{name: "another nice value", victim: TaskInfo{Session: 7}, other: TaskInfo{Session: 7}, nice: -20, autogroup: "1", silly: "same priority"},
		{name: "a session that is not known", victim: TaskInfo{Session: 7}, autogroup: "1", want: "renice", mustNot: "autogroup"},
		{name: "sessions in one cgroup", victim: TaskInfo{Session: 7, Cgroup: "/a/x"}, other: TaskInfo{Session: 8, Cgroup: "/a/x"}, autogroup: "1", want: "renice", mustNot: "autogroup"},
		{name: "a cgroup and none", victim: TaskInfo{Session: 7, Cgroup: "/a"}, other: TaskInfo{Session: 8, Cgroup: "/"}, autogroup: "1", want: "renice", mustNot: "autogroup"},
		{name: "idle", victim: TaskInfo{Policy: policyIdle}, other: TaskInfo{Policy: "SCHED_OTHER"}, want: "chrt -o -p 0 1", mustNot: "renice", verdict: "which goes before SCHED_IDLE", silly: "same priority"},
		{name: "both idle", victim: TaskInfo{Policy: policyIdle}, other: TaskInfo{Policy: policyIdle}, verdict: "other 2 (SCHED_IDLE), which has the same priority"},
		{name: "behind an idle one", victim: TaskInfo{Policy: "SCHED_OTHER"}, other: TaskInfo{Policy: policyIdle}, verdict: "other 2 (SCHED_IDLE)", silly: "same priority"},
		{name: "batch", victim: TaskInfo{Policy: "SCHED_BATCH"}, other: TaskInfo{Policy: "SCHED_OTHER"}, want: "renice", verdict: "same priority"},
		{name: "idle, behind who is not known", victim: TaskInfo{Policy: policyIdle}, want: "renice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			s.swap(300, 1, 0, 90, sleeps(0)).swap(400, 0, 0, other, sleeps(0)).wake(1000, 1, 90, victim, 0).swap(11000, 0, other, victim, sleeps(0))
			for i := range s.list {
				switch b := s.list[i].Body.(type) {
				case trace.Wake:
					b.Prio += c.nice
					s.list[i].Body = b
				case trace.Switch:
					if b.NextTID == victim {
						b.NextPrio += c.nice
						s.list[i].Body = b
					}
				}
			}
			c.victim.Comm, c.other.Comm = "victim", "other"
			names := Names{
				Task: func(tid int) (TaskInfo, bool) {
					return map[int]TaskInfo{victim: c.victim, other: c.other}[tid], tid <= other
				},
				Setting: func(name string) string {
					return map[string]string{"kernel.sched_autogroup_enabled": c.autogroup}[name]
				},
				Limit: func(cgroup, name string) string { return limits[cgroup+" "+name] },
			}
			r := explained(t, &s.list, []Outlier{{Rule: "r", Track: "wakeup", TID: victim, PID: victim, Start: 1_000_000, End: 11_000_000}}, names).Outliers[0]
			assert.Check(t, strings.Contains(r.Advice, c.want) && (r.Advice == "") == (c.want == ""), "%q", r.Advice)
			assert.Check(t, c.mustNot == "" || !strings.Contains(r.Advice, c.mustNot), "%q", r.Advice)
			assert.Check(t, strings.Contains(r.Verdict, c.verdict), "%s", r.Verdict)
			assert.Check(t, c.silly == "" || !strings.Contains(r.Verdict, c.silly), "%s", r.Verdict)
		})
	}
}

// TestAdviceOnCgroups: the same of a holder in another cgroup, whose wait is no pattern.
func TestAdviceOnCgroups(t *testing.T) {
	limits := map[string]string{"/a cpu.weight": "100", "/b cpu.weight": "900"}
	for groups, want := range map[[2]string]string{
		{"/a/x", "/b"}: "between which nice values do nothing: the cpu.weight decides, /b (now 900) and /a (now 100).",
		{"/a/x", "/a"}: "renice -n -5 -p 1).",
		{"/c", "/d"}:   "renice -n -5 -p 1), or the cpu.weight of their cgroups, /d and /c.",
	} {
		names := Names{
			Task:  func(tid int) (TaskInfo, bool) { return TaskInfo{Comm: "x", Cgroup: groups[tid-1]}, true },
			Limit: func(cgroup, name string) string { return limits[cgroup+" "+name] },
		}
		w := &walker{m: newModel(nil, names), outlier: &Outlier{TID: victim}}
		got := w.adviseRunnable(&advised{Part: &Part{Cause: Runnable, By: w.m.whoAtPrio(other, 120)}, who: w.m.whoAtPrio(victim, 120)})
		assert.Check(t, strings.HasSuffix(got, want), "%v: %q", groups, got)
	}
}
