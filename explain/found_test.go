package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// foundCase is what simulated machines have found, in short.
type foundCase struct {
	name    string
	trace   func(s *script)
	outlier func(o *Outlier)
	covered map[int][]Interval
	says    string
	not     string
	sure    Confidence
}

func (c *foundCase) run(t *testing.T) {
	s := &script{}
	for cpu := range 2 {
		s.add(100, trace.CPUIdle, cpu, 0, trace.Idle{CPU: cpu})
	}
	c.trace(s)
	o := Outlier{Rule: "r", Track: "pair", TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}
	if c.outlier != nil {
		c.outlier(&o)
	}
	names := timerNames
	names.Covered = c.covered
	r := explained(t, &s.list, []Outlier{o}, names).Outliers[0]
	assert.Check(t, strings.Contains(r.Verdict, c.says), "%s\nwant\n%s", r.Verdict, c.says)
	assert.Check(t, c.not == "" || !strings.Contains(r.Verdict, c.not), r.Verdict)
	assert.Check(t, r.Confidence == c.sure, "%s, want %s: %s", r.Confidence, c.sure, r.Verdict)
}

// calledAs is a switch to a task of a name.
func calledAs(sw trace.Switch, from, to string) trace.Switch {
	sw.PrevComm, sw.NextComm = trace.MakeComm(from), trace.MakeComm(to)
	return sw
}

// missing makes CPU 1 incomplete between two times, in microseconds.
func missing(from, to uint64) map[int][]Interval {
	return map[int][]Interval{0: {{100_000, 20_000_000}}, 1: {{100_000, from * 1000}, {to * 1000, 20_000_000}}}
}

// TestFoundByMachines: each general fault that simulated machines have found.
func TestFoundByMachines(t *testing.T) {
	const reused = 900
	ours := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
	theirs := trace.Block{RQ: 8, Sector: 80, Dev: 1, Bytes: 4096}
	onDisk := trace.Switch{PrevState: 2, Call: 0, IOWait: true}
	softirqWake := trace.Wake{TID: victim, PID: victim, Prio: 120, Context: 1<<14 | 1}
	for _, c := range []foundCase{
		{
			name: "an id is used again", says: "behind first 900, which", not: "second", sure: Seen,
			trace: func(s *script) {
				s.swap(500, 0, 0, reused, calledAs(sleeps(0), "", "first")).wake(1000, 1, 0, victim, 0).
					swap(11000, 0, reused, victim, calledAs(trace.Switch{PrevState: taskDead}, "first", "victim")).
					add(11020, trace.ProcessFork, 1, other, trace.Fork{ChildTID: reused, ChildPID: reused, ChildComm: trace.MakeComm("second")}).
					swap(11040, 1, other, reused, calledAs(sleeps(0), "other", "second"))
			},
		},
		{
			name: "its first event is a migration", says: "5.0 ms behind third 3 (SCHED_FIFO 50), 5.0 ms behind other 2", not: "unexplained", sure: Seen,
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).swap(400, 0, 0, third, sleeps(0)).
					add(6000, trace.SchedMigrate, 0, third, trace.Migrate{TID: victim, Prio: 120, OrigCPU: 1, DestCPU: 0}).
					swap(11000, 0, third, victim, sleeps(0))
			},
		},
		{
			name: "a request that ended before a timer did", says: "asleep until a timer", not: "vda", sure: Seen,
			trace: func(s *script) {
				s.add(300, trace.BlockIssue, 1, other, theirs).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(0)).
					add(10960, trace.BlockComplete, 0, 0, theirs).add(10990, trace.SchedWaking, 0, 0, softirqWake).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "a request of another that ended before an interrupt", says: "until interrupt 4", not: "vda", sure: Seen,
			trace: func(s *script) {
				s.swap(200, 1, 0, other, sleeps(0)).add(300, trace.BlockIssue, 1, other, theirs).swap(500, 0, 0, victim, sleeps(0)).
					swap(1000, 0, victim, 0, sleeps(0)).add(10950, trace.BlockComplete, 0, 0, theirs).
					add(10990, trace.SchedWaking, 0, 0, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: 2<<14 | 4}).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "a journal's wake-up after the end of a request", says: "10.0 ms waiting for the journal of its file system", not: "waiting for vda", sure: Inferred,
			trace: func(s *script) {
				s.swap(200, 1, 0, 5, calledAs(sleeps(0), "", "jbd2/vda-8")).add(300, trace.BlockIssue, 1, 5, theirs).swap(500, 0, 0, victim, sleeps(0)).
					swap(1000, 0, victim, 0, onDisk).add(10985, trace.BlockComplete, 1, 5, theirs).wake(10990, 1, 5, victim, 0).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "a busy device is asked again", says: "10.0 ms waiting for vda (read of 4 KiB)", not: "queued", sure: Seen,
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).add(1000, trace.BlockIssue, 0, victim, ours).swap(1000, 0, victim, 0, onDisk).
					add(8000, trace.BlockIssue, 1, other, ours).add(10990, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: softirqBlock}).
					add(10999, trace.BlockComplete, 0, 0, ours).wake(10999, 0, 0, victim, 0).add(10999, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: softirqBlock}).
					swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "what overtakes was not alone in the device", says: "waiting for vda", sure: Inferred,
			trace: func(s *script) {
				s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).add(900, trace.BlockIssue, 1, other, theirs).
					add(1000, trace.BlockIssue, 0, victim, ours).swap(1000, 0, victim, 0, onDisk).
					add(10990, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: softirqBlock}).
					add(10999, trace.BlockComplete, 0, 0, ours).wake(10999, 0, 0, victim, 0).add(10999, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: softirqBlock}).
					swap(11000, 0, 0, victim, sleeps(0)).add(11010, trace.BlockComplete, 1, other, theirs)
			},
		},
		{
			name: "a quota that may be its own", says: "throttled", sure: Inferred,
			outlier: func(o *Outlier) { o.TID = 901 },
			trace: func(s *script) {
				s.swap(500, 0, 0, 900, sleeps(0)).wake(800, 1, 0, 901, 0).swap(900, 0, 900, 0, trace.Switch{Throttled: true}).
					swap(11000, 0, 0, 901, sleeps(0))
			},
		},
		{
			name: "a thread of the kernel that had nothing to do since", says: "10.0 ms waiting for kworker/0:1 4, which ran", not: "other", sure: Inferred,
			trace: func(s *script) {
				s.swap(200, 1, 0, other, sleeps(0)).wake(300, 1, other, worker, 1).swap(310, 1, other, worker, sleeps(0)).
					swap(500, 1, worker, 0, trace.Switch{PrevState: 0x402}).swap(600, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(0)).
					swap(5000, 1, 0, worker, sleeps(0)).wake(10999, 1, worker, victim, 0).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "who had a lock before it was passed on", says: "10.0 ms waiting for a mutex of the kernel (spinning", not: "other", sure: Seen,
			outlier: func(o *Outlier) { o.Start = 6_000_000; o.End = 16_000_000 },
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(600, 1, 0, other, sleeps(0)).
					add(4900, trace.LockBegin, 0, victim, trace.Lock{Lock: 9, OwnerTID: other, Flags: lockMutex}).swap(5000, 0, victim, 0, trace.Switch{PrevState: 2}).
					wake(5900, 1, other, victim, 0).swap(6000, 0, 0, victim, sleeps(0)).add(16000, trace.LockEnd, 0, victim, trace.Lock{Lock: 9})
			},
		},
		{
			name: "a packet of this machine, without events of softirqs", says: "10.0 ms waiting for other 2", not: "network", sure: Inferred,
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(0)).
					add(10980, trace.NetQueue, 1, other, trace.Net{SKB: 5, Dev: "lo"}).add(10990, trace.NetReceive, 0, 0, trace.Net{SKB: 5, Dev: "lo"}).
					add(10995, trace.SchedWaking, 0, 0, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: 1<<14 | 1<<12 | softirqNetRX}).
					swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "ready, until records are missing", says: "5.0 ms unexplained: records of that time were overwritten before they were read", sure: Seen,
			covered: missing(6000, 7000),
			trace: func(s *script) {
				s.swap(500, 0, 0, other, sleeps(0)).wake(900, 0, other, victim, 0).swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "asleep, while records are missing", says: "10.0 ms waiting for other 2", sure: Inferred,
			covered: missing(6000, 7000),
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, other, sleeps(0)).wake(10990, 0, other, victim, 0).swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "a sleep whose beginning is missing", says: "asleep until a timer", sure: Inferred,
			trace: func(s *script) {
				s.expire(10999, fnTimeout, trace.TCPTimer{}, victim).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "it has left its CPU unseen", says: "5.0 ms unexplained: records are missing", sure: Seen,
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).add(1000, trace.CPUIdle, 0, victim, trace.Idle{}).add(6000, trace.CPUIdle, 0, other, trace.Idle{}).
					wake(10990, 0, other, victim, 0).swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "the tracker knows that it was ready", says: "unexplained", not: "asleep", sure: "",
			outlier: func(o *Outlier) { o.Track = "wakeup" },
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(0)).expire(10999, fnSleep, trace.TCPTimer{}, victim).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "a priority that is known later", says: "behind third 3 (SCHED_FIFO 50)", not: "same priority", sure: Seen,
			trace: func(s *script) {
				s.add(500, trace.CPUIdle, 0, third, trace.Idle{}).wake(900, 1, 0, victim, 0).swap(11000, 0, third, victim, sleeps(0))
			},
		},
		{
			name: "another request at the address of a lost one", says: "10.0 ms waiting for vda", not: "other", sure: Inferred,
			trace: func(s *script) {
				lost := trace.Block{RQ: 7, Sector: 4000, Dev: 1, Bytes: 4096}
				s.swap(200, 1, 0, other, sleeps(0)).add(300, trace.BlockIssue, 1, other, lost).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, onDisk).
					add(10990, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: softirqBlock}).
					add(10999, trace.BlockComplete, 0, 0, ours).wake(10999, 0, 0, victim, 0).add(10999, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: softirqBlock}).
					swap(11000, 0, 0, victim, sleeps(0))
			},
		},
	} {
		t.Run(c.name, c.run)
	}
}

// TestBeforeItWasMade: nobody has done anything before he was there, but who made him may have.
func TestBeforeItWasMade(t *testing.T) {
	s := &script{}
	s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(0)).
		add(8000, trace.ProcessFork, 1, other, trace.Fork{ChildTID: 900, ChildPID: 900}).
		add(8000, trace.SchedWakeupNew, 1, other, trace.Wake{TID: 900, PID: 900, Prio: 120, TargetCPU: 1}).swap(8010, 1, other, 900, sleeps(0)).
		wake(10990, 1, 900, victim, 0).swap(11000, 0, 0, victim, sleeps(0))
	o := Outlier{Rule: "r", Track: "pair", TID: victim, Start: 1_000_000, End: 11_000_000}
	r := explained(t, &s.list, []Outlier{o}, timerNames).Outliers[0]
	assert.Check(t, is.Contains(r.Verdict, "task 900, which spent 7.0 ms waiting until other 2 started it, which ran for 7.0 ms"))
}

// TestManyLives: an id that is used again and again, by whoever sends such a trace.
func TestManyLives(t *testing.T) {
	s := &script{}
	for i := range uint64(5000) {
		s.add(1000+i, trace.ProcessFork, 0, int(i%3), trace.Fork{ChildTID: 900 - int(i%2), ChildPID: 900}).
			swap(1000+i, 0, 900, 901, trace.Switch{PrevState: taskDead}).swap(1000+i, 0, 901, -5, trace.Switch{PrevState: taskDead})
	}
	var list []Outlier
	for _, tid := range []int{900, 901, 899, 0, -5} {
		list = append(list, Outlier{Track: "offcpu", TID: tid, Start: 1_000_000, End: 5_000_000})
	}
	for _, o := range explained(t, &s.list, list, Names{}).Outliers {
		assert.Check(t, o.Task.TID < 1<<lifeShift)
	}
}
