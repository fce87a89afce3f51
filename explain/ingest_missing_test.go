package explain

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestUnseenSwitch: a task that was woken for a CPU whose history begins later
// may have run there and slept since: nobody says that it waited.
func TestUnseenSwitch(t *testing.T) {
	s := &script{}
	s.swap(100, 1, 0, other, sleeps(0)).wake(900, 1, other, victim, 0).swap(6000, 0, 0, third, sleeps(0)).swap(11000, 0, third, victim, sleeps(0))
	o := Outlier{Rule: "r", Track: "syscall", Syscall: "read", TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}
	names := caseNames
	names.Covered = map[int][]Interval{0: {{5_000_000, forever}}, 1: {{0, forever}}}
	r := explained(t, &s.list, []Outlier{o}, names).Outliers[0]
	assert.Check(t, len(r.Parts) == 1 && r.Blame.Cause == Unexplained &&
		r.Blame.Reason == "the history is too short", "%s: %+v", r.Verdict, r.Parts)
	names.Covered[0] = []Interval{{0, forever}}
	s = &script{}
	s.swap(100, 1, 0, other, sleeps(0)).wake(900, 1, other, victim, 0).swap(950, 0, 0, third, sleeps(0)).swap(11000, 0, third, victim, sleeps(0))
	r = explained(t, &s.list, []Outlier{o}, names).Outliers[0]
	assert.Check(t, len(r.Parts) == 1 && r.Blame.Cause == Preempted, "%s: %+v", r.Verdict, r.Parts)
}
