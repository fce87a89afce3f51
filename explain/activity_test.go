package explain

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// carrying is names with activities.
func carrying(list ...Carried) Names {
	names := caseNames
	names.Activities = func() []Carried { return list }
	return names
}

// by is an activity that one task carried, times being microseconds.
func by(tid int, name, token string, from, to uint64) Carried {
	return Carried{Activity: Activity{Name: name, Token: token}, Times: []CarriedTime{{tid, from * 1000, to * 1000}}}
}

// behindThird has the victim wait for a CPU that third has.
func behindThird(s *script) {
	s.swap(500, 0, 0, third, sleeps(0)).swap(600, 1, 0, other, sleeps(0)).wake(1000, 1, other, victim, 0).swap(11000, 0, third, victim, sleeps(0))
}

// TestActivity: the request that a culprit worked for is named if its token was carried for
// half of the time, whatever its program calls it.
func TestActivity(t *testing.T) {
	const behind = "victim 1 waited 10.0 ms to run on CPU 0: 10.0 ms behind third 3 (SCHED_FIFO 50)"
	for _, c := range []struct {
		name    string
		carried []Carried
		want    string
	}{
		{"nobody carried one", nil, behind + ", woken"},
		{"all the time", []Carried{by(third, "report", "1.9.1", 0, 20000)}, behind + ` (at work on request "report", token 1.9.1), woken`},
		{"another thread", []Carried{by(other, "report", "1.9.1", 0, 20000)}, behind + ", woken"},
		{"another time", []Carried{by(third, "report", "1.9.1", 11000, 20000)}, behind + ", woken"},
		{"too short", []Carried{by(third, "report", "1.9.1", 0, 5900)}, behind + ", woken"},
		{"most of it", []Carried{by(third, "report", "1.9.1", 0, 8000), by(third, "x", "1.9.3", 8000, 20000)},
			behind + ` (at work on request "report", token 1.9.1, 7.0 ms of it), woken`},
		{"its own", []Carried{{Activity{Name: "a", Token: "1.9.1"}, []CarriedTime{{victim, 0, 2e7}, {third, 0, 2e7}}, nil}},
			`victim 1 waited 10.0 ms to run on CPU 0 (at work on request "a", token 1.9.1): 10.0 ms behind third 3 (SCHED_FIFO 50) (at work on the same request "a", token 1.9.1), woken`},
		{"without a name", []Carried{by(third, "", "1.9.1", 0, 20000)}, behind + ` (at work on a request, token 1.9.1), woken`},
		{"a trace alone", []Carried{{Activity{TraceID: "4bf9"}, []CarriedTime{{third, 0, 2e7}}, nil}}, behind + ` (at work on a request, trace 4bf9), woken`},
		{"backwards", []Carried{by(third, "report", "1.9.1", 20000, 0)}, behind + ", woken"},
		{"hostile trace", []Carried{{Activity{TraceID: "a\n" + strings.Repeat("b", 1000)}, []CarriedTime{{third, 0, 2e7}}, nil}}, behind + ` (at work on a request, trace a bbb`},
		{"hostile", []Carried{by(third, "a\n\x1b[31m\u202e"+strings.Repeat("x", 1000), "1.9.1", 0, 20000)}, behind + ` (at work on request "a \x1b[31m\u202exxx`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			behindThird(s)
			o := Outlier{Track: "wakeup", TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}
			r := explained(t, &s.list, []Outlier{o}, carrying(c.carried...)).Outliers[0]
			assert.Check(t, strings.HasPrefix(r.Verdict, c.want), "verdict\n%s\nwant\n%s", r.Verdict, c.want)
			assert.Check(t, len(r.Verdict) < 500 && utf8.ValidString(r.Verdict) && !strings.ContainsFunc(r.Verdict, func(c rune) bool { return !unicode.IsPrint(c) }))
			named := strings.Contains(c.want, "third 3 (SCHED_FIFO 50) (at work")
			assert.Check(t, (r.Blame.Activity != nil) == named)
			text, err := json.Marshal(r.Blame)
			assert.NilError(t, err)
			assert.Check(t, strings.Contains(string(text), `"activity":{`) == named, "%s", text)
		})
	}
}

// TestPublished: where no token is known, a trace that was published all the time is named, or one
// that was read at one moment, of the part that this ended.
func TestPublished(t *testing.T) {
	const behind = "victim 1 waited 10.0 ms to run on CPU 0"
	slow := Outlier{Track: "wakeup", TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}
	of := func(change func(o *Outlier)) []Outlier {
		o := slow
		change(&o)
		return []Outlier{o}
	}
	left := func(tid int) []Outlier {
		return of(func(o *Outlier) { o.OnCPU = &Published{TID: tid, TraceID: "4bf9", SpanID: "00f0"} })
	}
	another := func(from, to uint64) []Outlier {
		return []Outlier{slow, {Track: "syscall", TID: third, Start: from, End: to, TraceID: "4bf9", SpanID: "00f0"}}
	}
	for _, c := range []struct {
		name     string
		outliers []Outlier
		names    Names
		want     string
	}{
		{"its own", of(func(o *Outlier) { o.TraceID = "4bf9" }), caseNames, behind + " (at work on a request, trace 4bf9): 10.0 ms behind third 3"},
		{"who left the CPU", left(third), caseNames, "third 3 (SCHED_FIFO 50) (at work on a request, trace 4bf9, as it left the CPU)"},
		{"with a token", left(third), carrying(by(third, "report", "1.9.1", 0, 20000)), `third 3 (SCHED_FIFO 50) (at work on request "report", token 1.9.1)`},
		{"another one left it", left(other), caseNames, "third 3 (SCHED_FIFO 50), woken"},
		{"the same", of(func(o *Outlier) {
			o.TraceID, o.OnCPU = "4bf9", &Published{TID: third, TraceID: "4bf9"}
		}), caseNames, "third 3 (SCHED_FIFO 50) (at work on the same request, trace 4bf9, as it left the CPU)"},
		{"of another outlier", another(1_000_000, 11_000_000), caseNames, "third 3 (SCHED_FIFO 50) (at work on a request, trace 4bf9)"},
		{"for too short a time", another(1_000_000, 4_000_000), caseNames, "third 3 (SCHED_FIFO 50), woken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			behindThird(s)
			r := explained(t, &s.list, c.outliers, c.names).Outliers[0]
			assert.Check(t, strings.Contains(r.Verdict, c.want), "verdict\n%s\nwant\n%s", r.Verdict, c.want)
		})
	}
}

// TestPublishedByWaker: the trace of who ended a wait is of the part that it ended, and of no other.
func TestPublishedByWaker(t *testing.T) {
	explains := func(known *Published) *Result {
		s := &script{}
		s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, trace.Switch{PrevState: 1, Call: 0}).
			wake(11000, 1, other, victim, 0).swap(11010, 0, 0, victim, sleeps(0))
		o := Outlier{Track: "offcpu", TID: victim, Comm: "victim", Start: 1_000_000, End: 11_010_000, Syscall: "read", Waker: known}
		return &explained(t, &s.list, []Outlier{o}, caseNames).Outliers[0]
	}
	known := Published{TID: other, TraceID: "4bf9", SpanID: "00f0", From: 1_000_000, At: 11_000_000}
	r := explains(&known)
	assert.Check(t, strings.Contains(r.Verdict, "other 2 (at work on a request, trace 4bf9, as it woke it)"), "%s", r.Verdict)
	a := r.Blame.Activity
	assert.Assert(t, a != nil && a.TraceID == "4bf9" && a.SpanID == "00f0" && a.Evidence == asItWoke && a.NS == 0, "%+v", a)
	for _, c := range []struct {
		name   string
		change func(p *Published)
	}{
		{"of another task", func(p *Published) { p.TID = third }},
		{"of another sleep", func(p *Published) { p.From, p.At = 100, 900_000 }},
		{"of a short end", func(p *Published) { p.From = 8_000_000 }},
		{"of a wake-up before its end", func(p *Published) { p.At = 9_000_000 }},
		{"backwards", func(p *Published) { p.From, p.At = p.At, p.From }},
	} {
		p := known
		c.change(&p)
		r := explains(&p)
		assert.Check(t, r.Blame.Activity == nil && !strings.Contains(r.Verdict, "trace"), "%s: %s", c.name, r.Verdict)
	}
}

// TestActivityOfWork: a work item is of the request that had it queued, and so is a worker.
func TestActivityOfWork(t *testing.T) {
	s := &script{}
	s.swap(300, 1, 0, other, sleeps(0)).add(400, trace.WorkQueued, 1, other, trace.WorkQueue{Work: 100, Function: 80, Name: "single"}).
		swap(450, 1, other, worker, sleeps(0)).add(460, trace.WorkStart, 1, worker, trace.Work{Work: 100, Function: 80}).
		swap(500, 0, 0, victim, sleeps(0)).add(900, trace.WorkQueued, 0, victim, trace.WorkQueue{Work: 101, Function: 81, Name: "single"}).
		swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0}).
		add(9000, trace.WorkEnd, 1, worker, trace.Work{Work: 100, Function: 80}).add(9000, trace.WorkStart, 1, worker, trace.Work{Work: 101, Function: 81}).
		wake(11000, 1, worker, victim, 0)
	o := Outlier{Track: "offcpu", TID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000, Syscall: "read"}
	names := carrying(by(other, "report", "1.9.1", 390, 410), by(other, "later", "1.9.3", 410, 20000))
	r := explained(t, &s.list, []Outlier{o}, names).Outliers[0]
	assert.Equal(t, r.Blame.Activity.Token, "1.9.1", "%s", r.Verdict)
	assert.Check(t, strings.Contains(r.Verdict, `behind other work) (at work on request "report", token 1.9.1)`), "%s", r.Verdict)
}

// TestEvicted: who had evicted what is read again is named with the request.
func TestEvicted(t *testing.T) {
	request := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
	s := &script{}
	s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).add(1000, trace.BlockIssue, 0, victim, request).
		swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0, IOWait: true}).
		add(11000, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: 4}).add(11000, trace.BlockComplete, 0, 0, request).wake(11000, 0, 0, victim, 0)
	o := Outlier{Track: "offcpu", TID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000, Syscall: "read", Device: "vda"}
	pages := func(tid int, from uint64, n, byTID int) EvictedPages {
		return EvictedPages{TID: tid, From: from * 1000, To: from*1000 + 1, Pages: n, ByTID: byTID, At: 300_000}
	}
	report, search := by(other, "report", "1.9.1", 100, 200), by(third, "search", "1.9.3", 100, 200)
	report.Evicted = []EvictedPages{pages(victim, 990, 3, other), pages(victim, 20000, 90, other), pages(third, 990, 90, other)}
	search.Evicted = []EvictedPages{pages(victim, 991, 2, third)}
	r := explained(t, &s.list, []Outlier{o}, carrying(report, search)).Outliers[0]
	const want = `waiting for vda (read of 4 KiB), for 3 pages that other 2 had evicted from the page cache 690 us before (at work on request "report", token 1.9.1)`
	assert.Check(t, strings.Contains(r.Verdict, want), "%s", r.Verdict)
	assert.Check(t, r.Blame.Evicted.Pages == 3 && r.Blame.Evicted.By.TID == other && r.Blame.Evicted.Activity.Token == "1.9.1")
}

// TestHandOver: the path of an activity follows its token from thread to thread; while none has
// it, it waits for the one that takes it over, and for what that works on.
func TestHandOver(t *testing.T) {
	s := &script{}
	s.swap(500, 0, 0, other, sleeps(0)).swap(600, 1, 0, third, sleeps(0)).swap(3000, 0, other, 0, sleeps(0)).
		swap(12000, 1, third, 0, sleeps(0))
	mine := Carried{Activity{Name: "checkout", Token: "1.9.1"}, []CarriedTime{{other, 1e6, 3e6}, {third, 9e6, 11e6}}, nil}
	o := Outlier{Track: "activity", TID: third, Comm: "third", Start: 1_000_000, End: 11_000_000, Token: "1.9.1", Account: "checkout took 10.0 ms"}
	r := explained(t, &s.list, []Outlier{o}, carrying(mine, by(third, "report", "1.9.3", 600, 9000))).Outliers[0]
	const want = `checkout took 10.0 ms. Through 2 threads, at last third 3: 6.0 ms waiting in a queue for third 3 (SCHED_FIFO 50) (at work on request "report", token 1.9.3)`
	assert.Check(t, strings.HasPrefix(strings.ReplaceAll(r.Verdict, "third 3 (SCHED_FIFO 50):", "third 3:"), want), "%s", r.Verdict)
	var whole int64
	for _, p := range r.Parts {
		whole += p.NS
	}
	assert.Equal(t, whole, r.DelayNS)
	var tasks []string
	for i := range r.Path {
		if p := &r.Path[i]; p.Depth == 0 {
			tasks = append(tasks, p.Task.Name)
		}
	}
	assert.DeepEqual(t, tasks, []string{"other 2", "no thread", "third 3"})

	// Nothing is known of its token: the last thread alone.
	r = explained(t, &s.list, []Outlier{o}, carrying()).Outliers[0]
	assert.Check(t, strings.HasPrefix(r.Verdict, "checkout took 10.0 ms. In third 3"), "%s", r.Verdict)
}
