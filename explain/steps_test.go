package explain

import (
	"fmt"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// ofPath adds up the slow task's own steps by cause.
func ofPath(r *Result) map[Cause]int64 {
	sums := map[Cause]int64{}
	for i := range r.Path {
		if s := &r.Path[i]; s.Depth == 0 {
			sums[s.Cause] += int64(s.ToMonoNS - s.FromMonoNS)
		}
	}
	return sums
}

func ofParts(parts []Part) map[Cause]int64 {
	sums := map[Cause]int64{}
	for i := range parts {
		sums[parts[i].Cause] += parts[i].NS
	}
	return sums
}

// TestMergedPathKeepsCauses: of a path with more pieces than it may have steps, each cause has
// the time that the parts say, though the longest pieces are of one alone.
func TestMergedPathKeepsCauses(t *testing.T) {
	s := &script{}
	at := uint64(1000)
	s.swap(500, 0, 0, victim, sleeps(0))
	for n := range uint64(3000) { // it runs 40 us, and waits 10 to 39 us for each of three
		at += 40
		by := other + int(n%3)
		s.swap(at, 0, victim, 0, sleeps(0))
		s.swap(at, 1, 0, by, sleeps(0))
		at += 10 + n%30
		s.wake(at, 1, by, victim, 0).swap(at, 1, by, 0, sleeps(0))
		at += 3
		s.swap(at, 0, 0, victim, sleeps(0))
	}
	list := s.list
	r := explained(t, &list, []Outlier{{Track: "pair", Rule: "r", TID: victim, Start: 1_000_000, End: at * 1000}}, caseNames).Outliers[0]
	assert.DeepEqual(t, ofPath(&r), ofParts(r.Parts))
	assert.Check(t, len(ofPath(&r)) >= 3, "%v", ofPath(&r))
	assert.Check(t, len(r.Path) <= maxSteps, "%d steps", len(r.Path))
	merged := 0
	for i := range r.Path {
		if x := &r.Path[i]; x.Merged {
			merged += x.Count
			assert.Check(t, x.Count > 0 && x.Waker == nil && x.Stack == nil, "%+v", x)
		} else {
			assert.Check(t, x.Count == 0, "%+v", x)
		}
	}
	assert.Check(t, merged > 5000, "%d pieces were merged", merged)
}

// TestMergedPathsOfMachines: the same of whatever machines do, and of all that is waited for.
func TestMergedPathsOfMachines(t *testing.T) {
	long := 0
	for seed := range uint64(6) {
		s := newSimulation(seed, 1+int(seed%4), 3+int(seed))
		s.run(12_000)
		all := s.events(t)
		o := Outlier{Track: "pair", Rule: "r", TID: s.tasks[0].tid, Start: 1_000_001, End: s.now}
		r := explained(t, &all, []Outlier{o}, Names{}).Outliers[0]
		assert.DeepEqual(t, ofPath(&r), ofParts(r.Parts))
		if slices.ContainsFunc(r.Path, func(s Step) bool { return s.Merged && s.Depth == 0 }) {
			long++
		}
	}
	assert.Check(t, long > 0, "no path was merged")
}

// TestMergeOthers: beyond the largest, what is left is added up by cause; nothing is lost.
func TestMergeOthers(t *testing.T) {
	m := newModel(nil, caseNames)
	var pieces []piece
	want := map[Cause]int64{}
	for n := range uint64(40) {
		p := piece{from: n * 10, to: n*10 + 10, task: victim, cpu: 0, state: "runnable", cause: Runnable, by: m.whoTask(100 + int(n%8))}
		if n%8 == 7 {
			p.cause, p.state, p.by = Timer, "blocked", m.whoTimer("")
		}
		want[p.cause] += 10
		pieces = append(pieces, p)
	}
	got := map[Cause]int64{}
	var names []string
	at := uint64(0)
	for _, x := range merge(pieces, false) {
		assert.Check(t, x.from == at, "%d, want %d", x.from, at)
		at = x.to
		got[x.cause] += int64(x.to - x.from)
		names = append(names, fmt.Sprintf("%s %s %d", x.cause, x.by.Name, x.sum.Count))
	}
	assert.Check(t, at == 400)
	assert.DeepEqual(t, got, want)
	assert.DeepEqual(t, names, []string{
		"runnable task 100 5", "runnable task 101 5", "runnable task 102 5", "runnable task 103 5",
		"runnable others 15", "timer timer 5",
	})
}
