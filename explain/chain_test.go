package explain

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// convoy has so many tasks hand a mutex on, 5 ms each; the last one is the victim.
func convoy(tasks int) (*script, Outlier) {
	s := &script{}
	const first = 100
	for i := range tasks { // each waits on a CPU of its own, the first one runs
		s.swap(500, i, 0, first+i, sleeps(0))
		if i > 0 {
			s.swap(1000, i, first+i, 0, waitsFor(trace.FutexWait, 2, false))
		}
	}
	for i := range tasks - 1 {
		at := uint64(1000 + 5000*(i+1))
		s.wake(at, i, first+i, first+i+1, i+1).swap(at+1, i+1, 0, first+i+1, sleeps(0))
	}
	end := uint64(1000 + 5000*(tasks-1))
	return s, Outlier{Rule: "r", Track: "offcpu", TID: first + tasks - 1, Start: 1_000_000, End: end * 1000}
}

// TestConvoy: after four links the rest is counted, and where the depth ends it says so.
func TestConvoy(t *testing.T) {
	for _, c := range []struct {
		tasks  int
		links  int
		more   string
		cutOff bool
	}{{tasks: 4, links: 3}, {tasks: 6, links: 5}, {tasks: 10, links: 9, more: ", … and 4 more holders, 5.0 ms each, the last of which ran for 5.0 ms"},
		{tasks: 30, links: 11, more: ", … and 6 more holders, 5.0 ms each, the last of which waited 90.0 ms for a mutex that ", cutOff: true}} {
		t.Run(fmt.Sprint(c.tasks), func(t *testing.T) {
			s, o := convoy(c.tasks)
			r := explained(t, &s.list, []Outlier{o}, Names{}).Outliers[0]
			assert.Check(t, len(r.Chain) == c.links, "%d links: %s", len(r.Chain), r.Verdict)
			assert.Check(t, strings.Contains(r.Verdict, c.more), "%s", r.Verdict)
			assert.Check(t, strings.Contains(r.Verdict, "deeper than 12 levels") == c.cutOff && r.Chain[c.links-1].Cut == c.cutOff, "%s", r.Verdict)
			assert.Check(t, c.more == "" || strings.Count(r.Verdict, ", which ") == maxLinks, "%s", r.Verdict)
		})
	}
}

// TestGroupInChain: a link behind many names them as a part does.
func TestGroupInChain(t *testing.T) {
	s := &script{}
	s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, waitsFor(trace.FutexWait, 2, false))
	last := other
	for i := range 60 {
		s.swap(uint64(1500+150*i), 1, last, 200+i, trace.Switch{NextComm: trace.MakeComm("hackbench")})
		last = 200 + i
	}
	s.swap(10500, 1, last, other, trace.Switch{}).wake(11000, 1, other, victim, 0)
	o := Outlier{Rule: "r", Track: "offcpu", TID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}
	r := explained(t, &s.list, []Outlier{o}, Names{}).Outliers[0]
	assert.Check(t, regexp.MustCompile(`, which waited 9.0 ms to run behind 60 tasks`).MatchString(r.Verdict), "%s", r.Verdict)
	assert.Check(t, len(r.Chain) == 1 && r.Chain[0].Culprits == 60 && r.Chain[0].GroupNS == 9_000_000, "%+v", r.Chain)
}
