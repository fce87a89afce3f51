package explain

import (
	"cmp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestDiskWorker: a wait for a disk that is a file is a wait for what the worker of its driver
// waits for, as far as the records say which worker that is.
func TestDiskWorker(t *testing.T) {
	upper := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
	ahead := trace.Block{RQ: 9, Dev: 1}
	lower := trace.Block{RQ: 8, Sector: 80, Dev: 2, Bytes: 4096}
	// asks has the victim wait for the disk, and somebody queue the work for it.
	asks := func(s *script, queue string, by int) {
		s.swap(400, 1, 0, by, sleeps(0))
		s.swap(500, 0, 0, victim, sleeps(0)).add(1000, trace.BlockIssue, 0, victim, upper)
		cpu := map[int]int{victim: 0}[by]
		if by != victim {
			cpu = 1
		}
		s.add(1010, trace.WorkQueued, cpu, by, trace.WorkQueue{Work: 50, Function: 80, Name: queue}).wake(1020, cpu, by, worker, 1).
			swap(1100, 0, victim, other, trace.Switch{PrevState: 2, IOWait: true, Call: 0}).
			swap(1200, 1, by, worker, sleeps(0)).add(1210, trace.WorkStart, 1, worker, trace.Work{Work: 50, Function: 80})
	}
	// ends completes requests in a softirq on CPU 1, on top of a task.
	ends := func(s *script, on int, requests ...trace.Block) {
		s.add(10800, trace.SoftirqEntry, 1, on, trace.Softirq{Vec: 4})
		for _, r := range requests {
			s.add(10810, trace.BlockComplete, 1, on, r)
		}
		s.wake(10900, 1, on, victim, 0).add(10910, trace.SoftirqExit, 1, on, trace.Softirq{Vec: 4})
	}
	asleep := func(s *script) { // until another task answers
		s.swap(1300, 1, worker, 0, trace.Switch{PrevState: 2}).wake(10000, 0, other, worker, 1).swap(10100, 1, 0, worker, sleeps(0))
		ends(s, worker, upper)
		s.add(10950, trace.WorkEnd, 1, worker, trace.Work{Work: 50, Function: 80})
	}
	for _, c := range []struct {
		name  string
		trace func(s *script)
		want  string // of the verdict
		not   string
		more  string // in the advice
		disk  string // "": loop0
	}{
		{
			name: "its worker waits for a task", want: "waiting for loop0 (read of 4 KiB), whose worker kworker/0:1 4 spent 8.7 ms waiting for other 2, which ran for 8.7 ms",
			more:  "perf record -g -t 2",
			trace: func(s *script) { asks(s, "loop0", victim); asleep(s) },
		},
		{
			name: "another hands the request on", want: "waiting for loop0 (read of 4 KiB), whose worker kworker/0:1 4 waited 9.5 ms for vdb",
			more: "vdb itself took that long",
			trace: func(s *script) {
				asks(s, "loop0", victim)
				s.add(1300, trace.BlockIssue, 1, worker, lower).add(1310, trace.WorkEnd, 1, worker, trace.Work{Work: 50, Function: 80}).
					swap(1320, 1, worker, 0, trace.Switch{PrevState: 0x402})
				ends(s, 0, lower, upper)
			},
		},
		{
			name: "a work queue of something else", want: "waiting for loop0 (read of 4 KiB)", not: "worker", more: "loop0 itself took that long",
			trace: func(s *script) { asks(s, "loop01", victim); asleep(s) },
		},
		{
			name: "one of two work items, which is not the one for it", want: "waiting for loop0 (read of 4 KiB)", not: "worker", more: "loop0 itself took that long",
			trace: func(s *script) {
				s.add(300, trace.WorkQueued, 1, third, trace.WorkQueue{Work: 51, Function: 80, Name: "loop0"}).add(350, trace.WorkStart, 1, 5, trace.Work{Work: 51, Function: 80})
				asks(s, "loop0", third)
				asleep(s)
			},
		},
		{
			name: "a worker that receives answers all the time", want: "waiting for nbd0 (read of 4 KiB), whose worker kworker/u4:1+nbd0-recv 4 spent 8.9 ms waiting for other 2, which ran for",
			more: "perf record -g -t 2", disk: "nbd0",
			trace: func(s *script) {
				s.swap(400, 1, 0, worker, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(900, 1, worker, 0, sleeps(0)).add(1000, trace.BlockIssue, 0, victim, upper).
					swap(1100, 0, victim, other, trace.Switch{PrevState: 2, IOWait: true, Call: 0}).wake(10000, 0, other, worker, 1).swap(10100, 1, 0, worker, sleeps(0))
				ends(s, worker, upper)
			},
		},
		{
			name: "behind another's request", want: "9.2 ms behind requests of third 3: read of 4 KiB was behind others in loop0", not: "vdb",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0)).add(900, trace.BlockIssue, 1, third, ahead).
					add(910, trace.WorkQueued, 1, third, trace.WorkQueue{Work: 50, Function: 80, Name: "loop0"}).wake(920, 1, third, worker, 1).
					swap(930, 1, third, worker, sleeps(0)).add(940, trace.WorkStart, 1, worker, trace.Work{Work: 50, Function: 80}).
					add(1000, trace.BlockIssue, 0, victim, upper).swap(1100, 0, victim, other, trace.Switch{PrevState: 2, IOWait: true, Call: 0}).
					swap(1300, 1, worker, 0, trace.Switch{PrevState: 2}).wake(10000, 0, other, worker, 1).swap(10100, 1, 0, worker, sleeps(0)).
					add(10300, trace.BlockComplete, 1, worker, ahead)
				ends(s, worker, upper)
				s.add(10950, trace.WorkEnd, 1, worker, trace.Work{Work: 50, Function: 80})
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			c.trace(s)
			s.swap(11000, 0, other, victim, sleeps(0))
			names := caseNames
			names.Device = func(dev uint32) string { return map[uint32]string{1: cmp.Or(c.disk, "loop0"), 2: "vdb"}[dev] }
			names.Task = func(tid int) (TaskInfo, bool) {
				f, ok := caseNames.Task(tid)
				if tid == worker && c.disk != "" {
					f.Comm = "kworker/u4:1+" + c.disk + "-recv"
				}
				return f, ok
			}
			r := explained(t, &s.list, []Outlier{{
				Rule: "r", Track: "syscall", Start: 1_000_000, End: 11_100_000, TID: victim, PID: victim, Comm: "victim", Syscall: "pread64",
			}}, names).Outliers[0]
			assert.Check(t, strings.Contains(r.Verdict, c.want), "%s", r.Verdict)
			assert.Check(t, c.not == "" || !strings.Contains(r.Verdict, c.not), "%s", r.Verdict)
			assert.Check(t, strings.Contains(r.Advice, c.more), "%s", r.Advice)
		})
	}
}
