package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// readAgain has the victim read from a disk for so many times, 1 ms each, 2 ms apart, and then
// for 10 ms; behind has the last one wait behind another task's request.
func readAgain(times int, behind bool) (*script, Outlier) {
	s := &script{}
	s.swap(100, 0, 0, victim, sleeps(0)).swap(101, 1, 0, other, sleeps(0))
	own := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
	theirs := trace.Block{RQ: 8, Sector: 80, Dev: 1, Bytes: 1 << 20, Flags: 1}
	at := uint64(1000)
	read := func(us uint64) {
		s.add(at, trace.BlockIssue, 0, victim, own).swap(at, 0, victim, 0, trace.Switch{PrevState: 2, Call: 74, IOWait: true})
		if behind && us > 1000 {
			s.add(at+us-1000, trace.BlockComplete, 1, other, theirs)
		}
		at += us
		s.add(at, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: 4}).add(at, trace.BlockComplete, 0, 0, own).
			wake(at, 0, 0, victim, 0).add(at, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: 4}).swap(at+1, 0, 0, victim, sleeps(0))
		at += 1000
	}
	for range times {
		read(1000)
	}
	if behind {
		s.add(at-500, trace.BlockIssue, 1, other, theirs)
	}
	o := Outlier{Rule: "r", Track: "offcpu", TID: victim, PID: victim, Comm: "victim", Start: at * 1000, End: (at + 10001) * 1000, Syscall: "fsync"}
	read(10_000)
	return s, o
}

// TestBefore: earlier waits in the same call are counted, and what is new or longer is named;
// of too few nothing is said.
func TestBefore(t *testing.T) {
	for _, c := range []struct {
		name   string
		times  int
		behind bool
		change func(o *Outlier)
		want   string
	}{
		{name: "too few", times: minPast - 1},
		{
			name: "longer", times: 20,
			want: "Within 39.0 ms before: 20 waits of this thread in fsync took 1.0 ms at the median and 1.0 ms at most; this one took 10.0 ms. " +
				"Unlike in the last 16 that took less than half of that, it waited 10.0 ms for vda (1.0 ms at their median).",
		},
		{
			name: "new", times: 20, behind: true,
			want: "Within 39.0 ms before: 20 waits of this thread in fsync took 1.0 ms at the median and 1.0 ms at most; this one took 10.0 ms. " +
				"Unlike in the last 16 that took less than half of that, it waited 9.0 ms for a disk behind requests of other 2.",
		},
		{
			name: "a system call whose entries are not recorded", times: 20,
			change: func(o *Outlier) { o.Track = "syscall"; o.Start -= 100_000 },
			want: "Within 39.0 ms before: 20 waits of this thread in fsync took 1.0 ms at the median and 1.0 ms at most; this one took 10.0 ms. " +
				"Unlike in the last 16 that took less than half of that, it waited 10.0 ms for vda (1.0 ms at their median).",
		},
		{
			name: "its request", times: 20,
			change: func(o *Outlier) { o.Track = "block"; o.Device = "vda"; o.Sector = 8; o.End -= 1000 },
			want: "Within 39.0 ms before: 20 requests such as this read of 4 KiB on vda took 1.0 ms at the median and 1.0 ms at most; this one took 10.0 ms. " +
				"Unlike in the last 16 that took less than half of that, it waited 10.0 ms for vda (1.0 ms at their median).",
		},
		{
			name: "of no thread", times: 20,
			change: func(o *Outlier) { o.Track = "pair"; o.Key = map[string]uint64{"x": 1} },
		},
		{
			name: "another thread of the process", times: 20,
			change: func(o *Outlier) { o.TID = 77 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, o := readAgain(c.times, c.behind)
			if c.change != nil {
				c.change(&o)
			}
			r := explained(t, &s.list, []Outlier{o}, caseNames).Outliers[0]
			got := ""
			if r.Before != nil {
				got = r.Before.Text(r.Cause)
			}
			assert.Equal(t, got, c.want)
			var text strings.Builder
			r.WriteText(&text)
			assert.Check(t, strings.Contains(text.String(), c.want), "%s", &text)
		})
	}
}

// TestBeforeAgain: an earlier outlier does not make this one ordinary.
func TestBeforeAgain(t *testing.T) {
	s, first := readAgain(20, false)
	more, last := readAgain(20, false)
	for _, ev := range more.list {
		if ev.Time += first.End; ev.Time > first.End+1_000_000 {
			s.list = append(s.list, ev)
		}
	}
	last.Start, last.End = last.Start+first.End, last.End+first.End
	b := explained(t, &s.list, []Outlier{last}, caseNames).Outliers[0].Before
	assert.Assert(t, b != nil && b.MaxNS > 9_000_000 && b.Count > 30 && len(b.Changes) == 1, "%+v", b)
}

// TestBeforeManyOutliers: each is compared with what ended before it, the second one partly
// with what came after the first.
func TestBeforeManyOutliers(t *testing.T) {
	s, last := readAgain(40, true)
	first := last
	first.Start, first.End = 21_000_000, 22_001_000 // the 11th
	r := explained(t, &s.list, []Outlier{first, last}, caseNames)
	a, b := r.Outliers[0].Before, r.Outliers[1].Before
	assert.Assert(t, a != nil && a.Count == 10 && len(a.Changes) == 0, "%+v", a)
	assert.Assert(t, b != nil && b.Count == 40 && b.Compared == maxCompared && len(b.Changes) == 1 && b.Changes[0].New, "%+v", b)
}

// TestPasts: the latest are kept, in their order.
func TestPasts(t *testing.T) {
	var p pasts
	const n = maxPast + 10
	for i := range uint64(n) {
		p.add(past{from: 10 * i, to: 10*i + 5})
	}
	list := p.until(10*(n-1), func(*past) bool { return true })
	assert.Equal(t, len(list), maxPast-1)
	for i := range list {
		assert.Equal(t, list[i].from, uint64(10*(10+i)))
	}
}
