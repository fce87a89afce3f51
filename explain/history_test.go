package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestRequestBeforeTheHistory: a history that is shorter than the wait is said to be, and is
// no group that is off.
func TestRequestBeforeTheHistory(t *testing.T) {
	other := trace.Block{RQ: 8, Sector: 80, Dev: 1, Bytes: 4096}
	own := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
	for _, c := range []struct {
		name    string
		covered uint64
		trace   func(s *script)
		cause   string
		says    string
		advice  string
	}{
		{"too short", 900_000_000, func(*script) {}, "timeout", "unexplained: the history is too short: it begins 899.0 ms after the request", "recorder.cover to more than 2.00 s"},
		{"too short, others complete", 900_000_000, func(s *script) { s.add(950_000, trace.BlockComplete, 0, 0, other) }, "timeout", "the history is too short", "recorder.cover"},
		{"its completion is there", 900_000_000, func(s *script) { s.add(2_001_000, trace.BlockComplete, 0, 0, own) }, "threshold", "waiting for vda (read of 4 KiB)", "vda itself took that long"},
		{"not recorded", 0, func(*script) {}, "timeout", "the recorder's event group block is off", "Add block to recorder.events"},
		{"recorded, but not this one", 0, func(s *script) { s.add(950_000, trace.BlockComplete, 0, 0, other) }, "timeout", "unexplained: the trace does not have its request", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			s.add(c.covered/1000+100, trace.CPUIdle, 0, 0, trace.Idle{}).swap(c.covered/1000+200, 0, 0, victim, sleeps(0))
			c.trace(s)
			names := caseNames
			names.Covered = map[int][]Interval{0: {{c.covered, forever}}}
			o := Outlier{Rule: "r", Track: "block", Cause: c.cause, TID: victim, Device: "vda", Sector: 8, Start: 1_000_000, End: 2_001_000_000}
			r := explained(t, &s.list, []Outlier{o}, names).Outliers[0]
			assert.Check(t, strings.Contains(r.Verdict, c.says), "%s", r.Verdict)
			assert.Check(t, strings.Contains(r.Advice, c.advice) && (c.advice == "") == (r.Advice == ""), "%s", r.Advice)
			assert.Check(t, strings.Contains(c.says, "is off") || !strings.Contains(r.Verdict, "is off"), "%s", r.Verdict)
		})
	}
}

// TestShortHistoryBeforeSwitches: a task of which the history has nothing yet is not said to
// lack the group sched.
func TestShortHistoryBeforeSwitches(t *testing.T) {
	s := &script{}
	s.add(9_900, trace.IRQEntry, 0, 0, trace.IRQ{IRQ: 9}).add(9_901, trace.IRQExit, 0, 0, trace.IRQ{IRQ: 9})
	names := caseNames
	names.Covered = map[int][]Interval{0: {{9_900_000, forever}}}
	r := explained(t, &s.list, []Outlier{{Rule: "r", Track: "syscall", Cause: "timeout", TID: victim, Start: 1_000_000, End: 10_000_000}}, names).Outliers[0]
	assert.Check(t, r.Blame.Reason == reasonShort, "%s", r.Verdict)
}

// TestDeadThread: a thread that has ended has the cgroup and the title of its process.
func TestDeadThread(t *testing.T) {
	s := &script{}
	s.add(500, trace.SchedSwitch, 0, 0, trace.Switch{NextTID: 300, NextPID: 3000, NextPrio: 120, NextComm: trace.MakeComm("pool-1"), Call: trace.CallNone}).
		wake(1000, 1, other, victim, 0).swap(11000, 0, 300, victim, trace.Switch{PrevComm: trace.MakeComm("pool-1"), PrevState: taskDead})
	names := caseNames
	names.Task = func(tid int) (TaskInfo, bool) {
		return TaskInfo{PID: 3000, Comm: "java", Title: "app.jar", Cgroup: "/shop"}, tid == 3000
	}
	r := explained(t, &s.list, []Outlier{{Rule: "r", Track: "wakeup", TID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}}, names).Outliers[0]
	assert.Check(t, r.Blame.By.Cgroup == "/shop" && r.Blame.By.Name == "pool-1 of app.jar 300" && r.Blame.By.PID == 3000, "%+v", r.Blame.By)
}

// TestQuota: the cgroup with the quota is named, which may be above the task's; the root,
// where tasks are that have left theirs, never has one.
func TestQuota(t *testing.T) {
	limits := map[string]string{"/svc/a cpu.max": "max 100000", "/svc cpu.max": "20000 100000", "/v1 cpu.cfs_quota_us": "5000", "/v1 cpu.cfs_period_us": "100000"}
	for cgroup, want := range map[string][2]string{
		"/svc/a": {"cgroup /svc (cpu.max 20000 100000) had used up", "Raise cpu.max of cgroup /svc (now 20000 100000)"},
		"/v1":    {"cgroup /v1 (cpu.cfs_quota_us 5000 of cpu.cfs_period_us 100000) had used up", "Raise cpu.cfs_quota_us of cgroup /v1 (now 5000 of cpu.cfs_period_us 100000)"},
		"/":      {"its cgroup had used up", "Raise cpu.max of its cgroup"},
		"/b":     {"cgroup /b had used up", "Raise cpu.max of cgroup /b,"},
	} {
		s := &script{}
		s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, other, trace.Switch{Throttled: true}).
			add(10000, trace.CgroupUnthrottle, 1, 0, trace.Throttle{CPU: 0, Cgroup: 4}).swap(11000, 0, other, victim, sleeps(0))
		names := caseNames
		names.Task = func(tid int) (TaskInfo, bool) { return TaskInfo{PID: tid, Comm: "t", Cgroup: cgroup}, true }
		names.Limit = func(cgroup, name string) string { return limits[cgroup+" "+name] }
		r := explained(t, &s.list, []Outlier{{Rule: "r", Track: "wakeup", TID: victim, Start: 1_000_000, End: 11_000_000}}, names).Outliers[0]
		assert.Check(t, strings.Contains(r.Verdict, want[0]) && strings.Contains(r.Advice, want[1]), "%s: %s %s", cgroup, r.Verdict, r.Advice)
	}
}
