package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestWorkWithoutThread: who runs at the exit of a pair, and was interrupted, is not followed.
func TestWorkWithoutThread(t *testing.T) {
	request := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
	disk := func(s *script) {
		s.add(1000, trace.BlockIssue, 1, other, request).add(11000, trace.SoftirqEntry, 0, victim, trace.Softirq{Vec: 4}).
			add(11000, trace.BlockComplete, 0, victim, request).add(11001, trace.SoftirqExit, 0, victim, trace.Softirq{Vec: 4})
	}
	for _, c := range []struct {
		name       string
		trace      func(s *script)
		outlier    Outlier
		want       string
		confidence Confidence
	}{
		{"a request", disk, Outlier{Key: map[string]uint64{"rq": 7}}, "r (rq 7) took 10.0 ms: 10.0 ms waiting for vda (read of 4 KiB).", Seen},
		{"its sector", disk, Outlier{Key: map[string]uint64{"dev": 1, "sector": 8}}, "r (dev 0:1, sector 8) took 10.0 ms: 10.0 ms waiting for vda (read of 4 KiB).", Seen},
		{"its sector alone", disk, Outlier{Key: map[string]uint64{"sector": 8}}, "r (sector 8) took 10.0 ms: 10.0 ms unexplained: not followed: its key (sector) is not a thread, and the history has no request, work item or packet of it.", ""},
		{"what nobody knows", disk, Outlier{Key: map[string]uint64{"req": 0xffff888012345678}}, "r (req 0xffff888012345678) took 10.0 ms: 10.0 ms unexplained: not followed: its key (req) is not a thread, and", ""},
		{
			"a packet", func(s *script) {
				s.add(3000, trace.NetQueue, 1, other, trace.Net{SKB: 9, Dev: "veth0"}).add(9000, trace.NetReceive, 0, victim, trace.Net{SKB: 9, Dev: "veth0"})
			}, Outlier{Key: map[string]uint64{"skb": 9}},
			"r (skb 9) took 10.0 ms: 6.0 ms waiting for the network (veth0), 4.0 ms unexplained: not followed: its key (skb) is not a thread.", Seen,
		},
		{
			"a work item", func(s *script) {
				s.add(1000, trace.WorkQueued, 1, other, trace.WorkQueue{Work: 100, Function: 81, Name: "events"}).
					swap(7000, 1, other, worker, sleeps(0)).add(7000, trace.WorkStart, 1, worker, trace.Work{Work: 100, Function: 81}).
					add(11000, trace.WorkEnd, 1, worker, trace.Work{Work: 100})
			}, Outlier{Key: map[string]uint64{"work": 100}},
			"r (work 100) took 10.0 ms: 10.0 ms waiting for work my_fn, queued by other 2 (its work waited in the queue)", Seen,
		},
		{
			"a work item that an interrupt queued", func(s *script) {
				s.add(1000, trace.WorkQueued, 1, other, trace.WorkQueue{Work: 100, Function: 81, Name: "events", Context: abi.WakerIrq | 5}).
					swap(7000, 1, other, worker, sleeps(0)).add(7000, trace.WorkStart, 1, worker, trace.Work{Work: 100, Function: 81}).
					add(11000, trace.WorkEnd, 1, worker, trace.Work{Work: 100})
			}, Outlier{Key: map[string]uint64{"work": 100}}, "r (work 100) took 10.0 ms: 10.0 ms waiting for work my_fn (its work waited in the queue)", Seen,
		},
		{"a span of two threads", disk, Outlier{Track: "span", Began: "other 2"}, "r took 10.0 ms: 10.0 ms unexplained: not followed: other 2 began it, and another thread ended it.", ""},
		{
			"a span of one thread", func(*script) {}, Outlier{Track: "span", Loose: true},
			"r of victim 1 took 10.0 ms: 10.0 ms running (a guess: followed is the thread that began and ended it, which may have done other work meanwhile).", Guess,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			s.swap(500, 0, 0, victim, sleeps(0)).swap(500, 1, 0, other, sleeps(0))
			c.trace(s)
			o := c.outlier
			if o.Track == "" {
				o.Track = "pair"
			}
			o.Rule, o.TID, o.Comm, o.Start, o.End = "r", victim, "victim", 1_000_000, 11_000_000
			r := explained(t, &s.list, []Outlier{o}, caseNames).Outliers[0]
			assert.Check(t, strings.HasPrefix(r.Verdict, c.want), "%s\nwant\n%s", r.Verdict, c.want)
			assert.Check(t, r.Confidence == c.confidence, "%s", r.Confidence)
			assert.Check(t, o.Loose || !namedTasks(t, &r)[victim] && !strings.Contains(r.Verdict, "victim"), "%s", r.Verdict)
		})
	}
}

// TestInterruptedSender: a packet that an interrupt sends on top of a task is not the task's.
func TestInterruptedSender(t *testing.T) {
	for _, c := range []struct {
		context uint32
		cause   Cause
	}{{0, Task}, {abi.WakerSoftirq | abi.WakerNumber, Network}} {
		s := &script{}
		s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, third, trace.Switch{PrevState: 1, Call: 0}).
			add(10900, trace.NetQueue, 1, other, trace.Net{SKB: 77, Dev: "lo", Context: c.context}).
			add(11000, trace.SoftirqEntry, 0, third, trace.Softirq{Vec: 3}).add(11000, trace.NetReceive, 0, third, trace.Net{SKB: 77, Dev: "lo"}).wake(11000, 0, third, victim, 0)
		o := Outlier{Rule: "r", Track: "offcpu", TID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}
		r := explained(t, &s.list, []Outlier{o}, caseNames).Outliers[0]
		assert.Check(t, r.Blame.Cause == c.cause && !strings.Contains(r.Verdict, "third"), "%s", r.Verdict)
	}
}
