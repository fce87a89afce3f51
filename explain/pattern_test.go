package explain

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// patternCase is a trace with a pattern, or with what looks like it.
type patternCase struct {
	name   string
	trace  func(s *script)
	want   Pattern
	advice string // among other things; "": none
	track  string // pair by default
	end    uint64 // us; 11000 by default
	user   []string
	names  func(n *Names)
	sure   Confidence
}

// timed is a sleep of the victim on CPU 0 that a timer ends.
func (s *script) timed(from, to uint64, sw trace.Switch) *script {
	return s.swap(from, 0, victim, 0, sw).add(to, trace.HrtimerEntry, 0, 0, trace.Hrtimer{Hrtimer: 1, Function: 9}).wake(to, 0, 0, victim, 0).
		add(to, trace.HrtimerExit, 0, 0, trace.Hrtimer{Hrtimer: 1}).swap(to+10, 0, 0, victim, sleeps(0))
}

// backedOff: the victim sleeps for so many µs each time, with little work between, and then
// until the end.
func backedOff(us ...uint64) func(s *script) {
	return func(s *script) {
		at := uint64(900)
		for _, n := range us {
			at -= n + 50
		}
		s.swap(at-50, 0, 0, victim, sleeps(0))
		for _, n := range us {
			s.timed(at, at+n, sleeps(230))
			at += n + 50
		}
		s.timed(1000, 11000, sleeps(230))
	}
}

// lockHeld: the victim, of a priority, waits for the lock of other, which waits behind hog.
func lockHeld(prio, hog int, wait trace.Switch) func(s *script) {
	return func(s *script) {
		s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0))
		s.add(1000, trace.SchedSwitch, 0, victim, func() trace.Switch { w := wait; w.PrevPrio = prio; w.NextPrio = 120; return w }())
		s.add(1500, trace.SchedSwitch, 1, other, trace.Switch{PrevPrio: 120, NextPrio: hog, NextTID: 40, NextPID: 40, NextComm: trace.MakeComm("hog"), Call: trace.CallNone})
		s.add(10500, trace.SchedSwitch, 1, 40, trace.Switch{PrevPrio: hog, NextPrio: 120, NextTID: other, NextPID: other, PrevState: 1, Call: trace.CallNone, PrevComm: trace.MakeComm("hog")})
		s.wake(11000, 1, other, victim, 0)
	}
}

// atFrequency: the victim waits behind other on CPU 0, which is at one frequency from before and at
// another one after a time.
func atFrequency(before, after uint32, at ...uint64) func(s *script) {
	return func(s *script) {
		s.add(200, trace.CPUFrequency, 0, 0, trace.Frequency{CPU: 0, KHz: before})
		s.add(200, trace.CPUFrequency, 0, 0, trace.Frequency{CPU: 1, KHz: 400_000})
		s.swap(300, 1, 0, 90, sleeps(0)).swap(400, 0, 0, other, sleeps(0)).wake(1000, 1, 90, victim, 0)
		for _, at := range append(at, 10_000) {
			s.add(at, trace.CPUFrequency, 1, 90, trace.Frequency{CPU: 0, KHz: after})
		}
		s.swap(11000, 0, other, victim, sleeps(0))
	}
}

// TestFrequencyIsSaid: the evidence has the CPU, its frequency and its maximum.
func TestFrequencyIsSaid(t *testing.T) {
	c := patternCase{track: "wakeup", trace: atFrequency(800_000, 1_200_000), names: frequencies("3600000")}
	assert.Equal(t, c.explain(t).PatternWhy, "CPU 0 ran at 800 to 1200 of 3600 MHz for 10.0 ms of it")
}

func frequencies(maximum string) func(n *Names) {
	return func(n *Names) {
		n.Setting = func(name string) string {
			return map[string]string{"cpu0/cpufreq/cpuinfo_max_freq": maximum, "cpufreq/scaling_governor": "powersave"}[name]
		}
	}
}

// timedFutex is how a thread waits for work that it does not mind if it does not come.
var timedFutex = trace.Switch{PrevState: 1, Call: trace.CallFutex, Futex: trace.MakeFutex(trace.FutexWaitBitset, 0, false, true)}

// poolTrace: the victim waits for worker 22; idle: how another worker leaves its CPU, which a
// timer gives it back; nil: it does not; by: the worker that serves somebody else before; 0: none.
func poolTrace(idle *trace.Switch, by int) func(s *script) {
	named := func(n int) trace.Switch {
		return trace.Switch{NextComm: trace.MakeComm("worker"), NextPID: 20, PrevState: 1}
	}
	return func(s *script) {
		run := func(us uint64, cpu, from, to int) {
			sw := named(to)
			s.swap(us, cpu, from, to, sw)
			s.list[len(s.list)-1].Body = func() trace.Switch {
				b := s.list[len(s.list)-1].Body.(trace.Switch)
				if b.NextPID = 20; to == 0 || to == victim {
					b.NextPID = to
				}
				b.Call = trace.CallNone
				return b
			}()
		}
		run(300, 1, 0, 21)
		run(310, 2, 0, 22)
		s.swap(400, 3, 0, 30, sleeps(0)).swap(450, 3, 30, 0, waitsFor(trace.FutexWaitBitset, 0, false))
		s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, waitsFor(trace.FutexWaitBitset, 0, false))
		if idle != nil {
			s.swap(2000, 1, 21, 0, *idle)
			s.add(8000, trace.HrtimerEntry, 1, 0, trace.Hrtimer{Function: 9}).wake(8001, 1, 0, 21, 1).add(8002, trace.HrtimerExit, 1, 0, trace.Hrtimer{})
			run(8010, 1, 0, 21)
		}
		if by != 0 {
			s.wake(9000, by-20, by, 30, 3)
		}
		s.wake(11000, 2, 22, victim, 0)
	}
}

func polls(n *Names) { n.Syscall = timerNames.Syscall }

// behindLoop: the victim waits for a loop, which has two threads do the work. One of them hands it
// something earlier on, and the loop replies to somebody else; or the other one is idle first.
func behindLoop(earlier, others, idle bool) func(s *script) {
	const loop, client = 23, 30
	return func(s *script) {
		sw := func(us uint64, cpu, from, to int, comm string, leaves trace.Switch) {
			leaves.NextComm = trace.MakeComm(comm)
			s.swap(us, cpu, from, to, leaves)
			b := s.list[len(s.list)-1].Body.(trace.Switch)
			b.NextPID = 20
			s.list[len(s.list)-1].Body = b
		}
		sw(300, 1, 0, 21, "worker", trace.Switch{})
		sw(310, 2, 0, 22, "worker", trace.Switch{})
		sw(320, 3, 0, loop, "loop", trace.Switch{})
		s.swap(330, 3, loop, 0, sleeps(7)).swap(340, 4, 0, client, sleeps(0)).swap(350, 4, client, 0, sleeps(7))
		s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(77))
		if idle {
			s.swap(2000, 1, 21, 0, waitsFor(trace.FutexWaitBitset, 0, false)).wake(6000, 3, 0, 21, 1)
			sw(6010, 1, 0, 21, "worker", trace.Switch{})
		}
		if earlier {
			s.wake(9000, 2, 22, loop, 3)
			sw(9010, 3, 0, loop, "loop", trace.Switch{})
			s.wake(9020, 3, loop, client, 4).swap(9030, 3, loop, 0, sleeps(7))
		}
		s.wake(10900, 2, 22, loop, 3)
		sw(10910, 3, 0, loop, "loop", trace.Switch{})
		if others && !earlier {
			s.wake(10920, 3, loop, client, 4)
		}
		s.wake(11000, 3, loop, victim, 0)
	}
}

func herdTrace(size int, together bool) func(s *script) {
	return func(s *script) {
		s.swap(300, 1, 0, other, sleeps(0)).swap(400, 0, 0, 50, sleeps(0))
		for i := range size {
			at := uint64(900)
			if !together {
				at = 300 + uint64(i)
			}
			s.list = append(s.list, trace.Event{Time: at*1000 + uint64(i), CPU: 1, Type: trace.SchedWaking, TID: other, Body: trace.Wake{TID: 60 + i, PID: 60 + i, Prio: 120, TargetCPU: 0}})
		}
		if !together { // the others were woken long before
			for i := range s.list {
				if w, ok := s.list[i].Body.(trace.Wake); ok && w.TID >= 60 {
					s.list[i].CPU, s.list[i].TID = 2, 51
				}
			}
		}
		s.wake(1000, 1, other, victim, 0)
		last := 50
		for i := range size {
			s.swap(1100+uint64(i)*9900/uint64(size), 0, last, 60+i, sleeps(0))
			last = 60 + i
		}
		s.swap(11000, 0, last, victim, sleeps(0))
		byTime(s)
	}
}

func byTime(s *script) {
	for i := range s.list { // insertion sort: they are nearly in order
		for j := i; j > 0 && s.list[j].Time < s.list[j-1].Time; j-- {
			s.list[j], s.list[j-1] = s.list[j-1], s.list[j]
		}
	}
}

// diskTrace: the victim waits for its read behind a task's writes.
func diskTrace(by int, theirs uint32, more func(s *script)) func(s *script) {
	own := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
	big := trace.Block{RQ: 8, Sector: 80, Dev: 1, Bytes: theirs, Flags: 1}
	return func(s *script) {
		s.swap(400, 1, 0, by, sleeps(0)).swap(500, 0, 0, victim, sleeps(0))
		if more != nil {
			more(s)
		}
		s.add(600, trace.BlockIssue, 1, by, big).add(1000, trace.BlockIssue, 0, victim, own).
			swap(1000, 0, victim, 0, trace.Switch{PrevState: 2, Call: 0, IOWait: true}).
			add(9000, trace.BlockComplete, 1, by, big).
			add(11000, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: 4}).add(11000, trace.BlockComplete, 0, 0, own).wake(11000, 0, 0, victim, 0)
	}
}

// reclaimers: so many tasks reclaim memory, the victim among them.
func reclaimers(n int) func(s *script) {
	return func(s *script) {
		s.swap(500, 0, 0, victim, sleeps(0)).add(2000, trace.ReclaimBegin, 0, victim, trace.Reclaim{})
		for i := 1; i < n; i++ {
			s.swap(2100, i, 0, 70+i, sleeps(0)).add(2200, trace.ReclaimBegin, i, 70+i, trace.Reclaim{})
		}
		s.add(10900, trace.ReclaimEnd, 0, victim, trace.Reclaim{})
	}
}

// behindOthers: the victim waits for CPU 0 behind tasks in turn, while CPU 1 is busy or not.
func behindOthers(first, tasks int, busy bool) func(s *script) {
	return func(s *script) {
		s.swap(300, 1, 0, 90, sleeps(0)).swap(400, 0, 0, first, sleeps(0))
		for i := range tasks {
			s.wake(500+uint64(i), 1, 90, first+i, i%2)
		}
		s.wake(1000, 1, 90, victim, 0)
		if !busy {
			s.swap(1010, 1, 90, 0, sleeps(0))
		}
		for i := 1; i < tasks; i++ {
			s.swap(1000+uint64(i)*10000/uint64(tasks), 0, first+i-1, first+i, trace.Switch{})
		}
		s.swap(11000, 0, first+tasks-1, victim, sleeps(0))
	}
}

func interpreter(waits int, process int) func(s *script) {
	return func(s *script) {
		s.add(400, trace.SchedSwitch, 1, 0, trace.Switch{NextTID: 80, NextPID: process, NextPrio: 120, NextComm: trace.MakeComm("python3"), Call: trace.CallNone})
		s.swap(500, 0, 0, victim, sleeps(0))
		w := waitsFor(trace.FutexWaitBitset, 0, false)
		w.Futex = trace.MakeFutex(trace.FutexWaitBitset, 0, false, true)
		for i := range waits {
			s.timed(1000+uint64(i)*5100, 6000+uint64(i)*5100, w)
		}
		s.swap(uint64(1000+waits*5100), 0, victim, 0, w).wake(uint64(1200+waits*5100), 1, 80, victim, 0).swap(uint64(1250+waits*5100), 0, 0, victim, sleeps(0))
	}
}

func groups(of map[int]string) func(n *Names) {
	return func(n *Names) {
		n.Task = func(tid int) (TaskInfo, bool) {
			return TaskInfo{PID: tid, Comm: fmt.Sprint("t", tid), Cgroup: of[tid], CPUs: []int{0, 1}}, of[tid] != ""
		}
		n.Limit = func(cgroup, name string) string {
			return map[string]string{"/b cpu.weight": "900", "/a cpu.weight": "100", "/b cpu.max": "max 100000"}[cgroup+" "+name]
		}
	}
}

var patternCases = []patternCase{
	{name: "inversion", trace: lockHeld(69, 89, waitsFor(trace.FutexWait, 2, false)), want: PriorityInversion, advice: "PTHREAD_PRIO_INHERIT", sure: Inferred},
	{name: "inversion of nice values", trace: lockHeld(115, 118, waitsFor(trace.FutexWait, 2, false)), want: PriorityInversion, advice: "give the holder a priority", sure: Inferred},
	{name: "the hog goes before both", trace: lockHeld(120, 49, waitsFor(trace.FutexWait, 2, false)), want: PreemptedHolder, advice: "check what it waits behind, hog 40", sure: Inferred},
	{name: "a condition has no holder", trace: lockHeld(69, 89, waitsFor(trace.FutexWaitBitset, 0, false)), want: "", advice: "real-time priority"},

	{name: "spins for a lock", trace: spinTrace(victim, 0), want: PreemptedHolder, advice: "If task 2 holds what it spins for, that waits behind task 40", sure: Guess, names: spinsIn("pthread_spin_lock")},
	{name: "runs elsewhere", trace: spinTrace(victim, 0), want: "", advice: "CPU time of", names: spinsIn("compute")},
	{name: "runs in a loop", trace: spinTrace(other, 0), want: "", advice: "CPU time of", names: spinsIn("spin_until")},
	{name: "another process lost its CPU", trace: spinTrace(other, 0), want: "", advice: "victim 1 is in pthread_spin_lock, which by its name waits for another thread's lock", names: spinsIn("pthread_spin_lock")},
	{name: "another thread runs all that time", trace: func(s *script) {
		spinTrace(victim, 0)(s)
		s.list = slices.DeleteFunc(s.list, func(ev trace.Event) bool { // it is not preempted
			sw, ok := ev.Body.(trace.Switch)
			return ok && sw.NextTID == 40
		})
	}, want: "", advice: "perf record -g -a; of its process, task 2 ran all that time.", names: spinsIn("pthread_spin_lock")},
	{name: "either of two may have it", trace: spinTrace(victim, 61), want: "", advice: "victim 1 is in pthread_spin_lock, which by its name waits for another thread's lock", names: spinsIn("pthread_spin_lock")},

	{name: "Python", trace: interpreter(3, victim), want: InterpreterLock, end: 16500, user: []string{"take_gil+0x1 (python3.13)"}, advice: "multiprocessing", sure: Inferred,
		names: func(n *Names) { n.Task = nil }},
	{name: "not Python", trace: interpreter(3, victim), want: "", end: 16500, advice: "CPU time of"},
	{name: "another process ran", trace: interpreter(3, 80), want: "", end: 16500, user: []string{"take_gil"}, advice: "CPU time of"},
	{name: "one timed wait", trace: interpreter(1, victim), want: "", end: 6400, user: []string{"take_gil"}, advice: "CPU time of"},

	{name: "pool", trace: poolTrace(nil, 22), want: ExhaustedPool, advice: "larger pool", sure: Inferred},
	{name: "pool with an idle thread", trace: poolTrace(&timedFutex, 22), want: "", advice: "CPU time of worker 22"},
	{name: "pool with a thread that sleeps", trace: poolTrace(&trace.Switch{PrevState: 1, Call: 230}, 22), want: ExhaustedPool, advice: "larger pool", sure: Inferred},
	{name: "pool of which another one served somebody", trace: poolTrace(nil, 21), want: "", advice: "CPU time of worker 22"},
	{name: "pool that served nobody else", trace: poolTrace(nil, 0), want: "", advice: "CPU time of worker 22"},

	{name: "pool behind a loop", trace: behindLoop(true, true, false), want: ExhaustedPool, advice: "All threads named worker were at work", sure: Inferred},
	{name: "pool behind a loop, both at once", trace: behindLoop(false, true, false), want: ExhaustedPool, advice: "All threads named worker were at work", sure: Inferred, names: polls},
	{name: "pool behind a loop that did nothing else", trace: behindLoop(false, false, false), want: "", advice: "CPU time of worker 22"},
	{name: "pool behind a loop, with an idle thread", trace: behindLoop(true, true, true), want: "", advice: "CPU time of worker 22"},

	{name: "pool of numbered threads", trace: numbered("worker", poolTrace(nil, 22)), want: ExhaustedPool, advice: "All threads named worker* were at work", sure: Inferred},
	{name: "threads of a redacted snapshot", trace: numbered("command-", poolTrace(nil, 22)), want: "", advice: "CPU time of command-22 22"},
	{name: "pool with a thread without any event", trace: poolTrace(nil, 22), want: "", advice: "CPU time of worker 22", names: beside(23, 20, 0)},
	{name: "pool of processes", trace: processes(poolTrace(nil, 22)), want: ExhaustedPool, advice: "All processes named worker were at work", names: beside(0, 0, 0)},
	{name: "a process without any event", trace: processes(poolTrace(nil, 22)), want: "", advice: "CPU time of worker 22", names: beside(23, 23, 0)},
	{name: "processes that do different things", trace: processes(poolTrace(nil, 22)), want: "", advice: "CPU time of worker 22", names: beside(0, 0, 21)},

	{name: "retries", want: RetryLoop, advice: "again and again", sure: Inferred, trace: func(s *script) {
		s.swap(500, 0, 0, victim, sleeps(0))
		for i := range uint64(5) {
			s.timed(1000+i*2000, 2900+i*2000, sleeps(230))
		}
	}},
	{name: "one long sleep", want: "", trace: func(s *script) {
		s.swap(500, 0, 0, victim, sleeps(0))
		s.timed(1000, 10000, sleeps(230))
		for i := range uint64(4) {
			s.timed(10100+i*100, 10150+i*100, sleeps(230))
		}
	}},
	{name: "the last of some sleeps that are ever longer", want: RetryLoop, advice: "again and again", sure: Inferred, track: "offcpu", trace: backedOff(40, 40, 80, 160, 160)},
	{name: "a sleep after short ones with work between", want: "", track: "offcpu", trace: backedOff(10, 11, 9, 10, 10)},
	{name: "a sleep after some that are not ever longer", want: "", track: "offcpu", trace: backedOff(200, 100, 200)},
	{name: "ever longer, but not within one wait", want: "", trace: backedOff(40, 40, 80, 160, 160)},
	{name: "sleeps in a write", want: "", trace: func(s *script) { // the kernel's own
		s.swap(500, 0, 0, victim, sleeps(0))
		for i := range uint64(5) {
			s.timed(1000+i*2000, 2900+i*2000, sleeps(0))
		}
	}},
	{name: "the last seconds of a daemon", want: "", track: "trigger", trace: func(s *script) {
		s.swap(500, 0, 0, victim, sleeps(0))
		for i := range uint64(5) {
			s.timed(1000+i*2000, 2900+i*2000, sleeps(230))
		}
	}},

	{name: "herd", trace: herdTrace(12, true), want: ThunderingHerd, track: "wakeup", advice: "Wake one instead of all", sure: Seen},
	{name: "few", trace: herdTrace(4, true), want: CPUSaturation, track: "wakeup", advice: "may use 1 of 2 CPUs"},
	{name: "many, not woken together", trace: herdTrace(12, false), want: CPUSaturation, track: "wakeup", advice: "may use 1 of 3 CPUs"},

	{name: "bulk", trace: diskTrace(other, 4<<20, nil), want: BulkIO, advice: "io.max", sure: Inferred},
	{name: "little more than its own", trace: diskTrace(other, 128<<10, nil), want: "", advice: "io.max"},
	{name: "writeback", trace: diskTrace(worker, 8<<20, func(s *script) { s.add(550, trace.WorkStart, 1, worker, trace.Work{Work: 3, Function: 90}) }), want: WritebackStorm,
		advice: "vm.dirty_background_bytes (now 0), vm.dirty_bytes (now 123)", sure: Inferred},
	{name: "writeback that had all under way before", trace: diskTrace(worker, 8<<20, func(s *script) {
		s.add(550, trace.WorkStart, 1, worker, trace.Work{Work: 3, Function: 90}).add(650, trace.WorkEnd, 1, worker, trace.Work{Work: 3})
	}), want: WritebackStorm, sure: Inferred, advice: "vm.dirty_background_bytes (now 0), vm.dirty_bytes (now 123)"},
	{name: "writeback that had ended before", trace: diskTrace(worker, 8<<20, func(s *script) {
		s.add(550, trace.WorkStart, 1, worker, trace.Work{Work: 3, Function: 90}).add(590, trace.WorkEnd, 1, worker, trace.Work{Work: 3})
	}), want: BulkIO, sure: Inferred, advice: "io.max"},
	{name: "a worker that does something else", trace: diskTrace(worker, 8<<20, func(s *script) { s.add(550, trace.WorkStart, 1, worker, trace.Work{Work: 3, Function: 80}) }), want: BulkIO,
		advice: "io.max", sure: Inferred},
	{name: "checkpoint", trace: diskTrace(6, 8<<20, nil), want: CheckpointStorm, advice: "checkpoint_completion_target", sure: Inferred,
		names: func(n *Names) {
			of := n.Task
			n.Task = func(tid int) (TaskInfo, bool) {
				if tid == 6 {
					return TaskInfo{PID: 6, Comm: "postgres", Title: "postgres: checkpointer", Cgroup: "/app"}, true
				}
				return of(tid)
			}
		}},
	{name: "a checkpointer with little to write", trace: diskTrace(6, 64<<10, nil), want: "", advice: "io.max",
		names: func(n *Names) {
			n.Task = func(tid int) (TaskInfo, bool) { return TaskInfo{PID: tid, Comm: "checkpointer"}, true }
		}},

	{name: "reclaim by many", trace: reclaimers(4), want: ReclaimStorm, advice: "vm.watermark_scale_factor (now 10)", sure: Seen},
	{name: "reclaim by one", trace: reclaimers(1), want: "", advice: "vm.watermark_scale_factor (now 10)"},

	{name: "neighbour", trace: behindOthers(20, 4, true), track: "wakeup", want: NoisyNeighbour, names: groups(map[int]string{victim: "/a", 20: "/b", 21: "/b", 22: "/b", 23: "/b"}),
		advice: "cpu.max (now no limit), or give it a smaller cpu.weight (now 900) than /a has (now 100)", sure: Seen},
	{name: "neighbours of two cgroups", trace: behindOthers(20, 4, true), track: "wakeup", want: CPUSaturation, names: groups(map[int]string{victim: "/a", 20: "/b", 21: "/c", 22: "/d", 23: "/e"}),
		advice: "more to run", sure: Seen},
	{name: "its own cgroup", trace: behindOthers(20, 4, true), track: "wakeup", want: CPUSaturation, names: groups(map[int]string{victim: "/b", 20: "/b/x", 21: "/b", 22: "/b", 23: "/b"}), advice: "more to run", sure: Seen},
	{name: "cgroups not known", trace: behindOthers(20, 4, true), track: "wakeup", want: CPUSaturation, names: func(n *Names) { n.Task = nil }, advice: "more to run", sure: Seen},
	{name: "another CPU was idle", trace: behindOthers(20, 4, false), track: "wakeup", want: "", names: func(n *Names) { n.Task = nil }},

	{name: "idle", track: "wakeup", want: IdleWakeup, sure: Inferred, advice: "no driver for the hardware", trace: func(s *script) {
		s.swap(300, 1, 0, other, sleeps(0)).swap(400, 0, victim, 0, sleeps(0)).wake(1000, 1, other, victim, 0).swap(11000, 0, 0, victim, sleeps(0))
	}},
	{name: "idle, with its state", track: "wakeup", want: IdleWakeup, sure: Seen, advice: "scaling_governor (now powersave)", trace: func(s *script) {
		s.swap(300, 1, 0, other, sleeps(0)).swap(400, 0, victim, 0, sleeps(0)).add(450, trace.CPUIdle, 0, 0, trace.Idle{CPU: 0, State: 3}).
			wake(1000, 1, other, victim, 0).swap(11000, 0, 0, victim, sleeps(0))
	}, names: func(n *Names) {
		n.Setting = func(name string) string {
			return map[string]string{"cpuidle/current_driver": "intel_idle", "cpufreq/scaling_governor": "powersave"}[name]
		}
	}},
	{name: "slow CPU", track: "wakeup", want: FrequencyDelay, sure: Inferred, advice: "scaling_governor (now powersave)", trace: atFrequency(800_000, 3_600_000), names: frequencies("3600000")},
	{name: "slow CPU, for less than half of it", track: "wakeup", want: "", advice: "same nice value", trace: atFrequency(800_000, 3_600_000, 5000), names: frequencies("3600000")},
	{name: "CPU at more than half of its frequency", track: "wakeup", want: "", advice: "same nice value", trace: atFrequency(1_900_000, 3_600_000), names: frequencies("3600000")},
	{name: "slow CPU whose maximum is not known", track: "wakeup", want: "", advice: "same nice value", trace: atFrequency(800_000, 3_600_000), names: frequencies("")},
	{name: "maximum that is none", track: "wakeup", want: "", advice: "same nice value", trace: atFrequency(800_000, 3_600_000), names: frequencies("99999999999")},
	{name: "frequency that is not known yet", track: "wakeup", want: "", advice: "same nice value", trace: atFrequency(0, 800_000, 9000), names: frequencies("3600000")},

	{name: "one CPU, one other task", track: "wakeup", want: "", advice: "same nice value", trace: func(s *script) {
		s.swap(300, 1, 0, 90, sleeps(0)).swap(400, 0, 0, other, sleeps(0)).wake(1000, 1, 90, victim, 0).swap(11000, 0, other, victim, sleeps(0))
	}},
}

// TestPatterns: each is recognised by its evidence, and by nothing less; the verdict begins
// with its words, and advice names today's values.
func TestPatterns(t *testing.T) {
	seen := map[Pattern]bool{LockConvoy: true} // TestConvoyIsNamed
	for i := range patternCases {
		c := &patternCases[i]
		t.Run(c.name, func(t *testing.T) {
			r := c.explain(t)
			assert.Check(t, r.Pattern == c.want, "%q (%s): %s", r.Pattern, r.PatternWhy, r.Verdict)
			assert.Check(t, strings.HasPrefix(r.Verdict, c.want.prefix()) && (r.PatternWhy != "") == (c.want != ""), "%s: %s", r.PatternWhy, r.Verdict)
			assert.Check(t, strings.Contains(r.Advice, c.advice) && (r.Advice == "") == (c.advice == ""), "advice %q: %s", r.Advice, r.Verdict)
			assert.Check(t, c.sure == "" || r.Confidence == c.sure, "%s: %s", r.Confidence, r.Verdict)
		})
		seen[c.want] = true
	}
	for i := range recognisers {
		p := recognisers[i].pattern
		assert.Check(t, seen[p] && patternAdvice[p] != nil, "%s", p)
	}
	assert.Check(t, len(patternAdvice) == len(recognisers))
}

func (c *patternCase) explain(t *testing.T) Result {
	s := &script{}
	for cpu := range 2 {
		s.add(100, trace.CPUIdle, cpu, 0, trace.Idle{CPU: cpu, State: -1})
	}
	c.trace(s)
	names := caseNames
	of := caseNames.Function
	names.Function = func(a uint64) string {
		if a == 90 {
			return "wb_workfn"
		}
		return of(a)
	}
	names.Setting = func(name string) string {
		return map[string]string{"vm.dirty_bytes": "123", "vm.dirty_background_bytes": "0", "vm.watermark_scale_factor": "10"}[name]
	}
	if c.names != nil {
		c.names(&names)
	}
	o := Outlier{Rule: "r", Track: c.track, TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000, User: c.user}
	if c.end > 0 {
		o.End = c.end * 1000
	}
	if o.Track == "" {
		o.Track = "pair"
	}
	return explained(t, &s.list, []Outlier{o}, names).Outliers[0]
}

// TestConvoyIsNamed: from four holders on, none of which had the lock for most of the time.
func TestConvoyIsNamed(t *testing.T) {
	for tasks, want := range map[int]Pattern{3: "", 4: "", 5: LockConvoy, 10: LockConvoy} {
		s, o := convoy(tasks)
		r := explained(t, &s.list, []Outlier{o}, Names{}).Outliers[0]
		assert.Check(t, r.Pattern == want && r.Confidence == Inferred, "%d tasks: %q (%s): %s", tasks, r.Pattern, r.PatternWhy, r.Verdict)
		assert.Check(t, want == "" || strings.Contains(r.Advice, "take turns at one lock"), "%s", r.Advice)
	}
}

// TestEveryPatternIsDocumented: with its words, and how it is recognised.
func TestEveryPatternIsDocumented(t *testing.T) {
	docs, err := os.ReadFile("../docs/explain.md")
	assert.NilError(t, err)
	all := constants(t, "pattern.go", "Pattern")
	assert.Check(t, len(all) == len(recognisers))
	for i, name := range all {
		assert.Check(t, recognisers[i].pattern == Pattern(name) && recognisers[i].words != "", "%s is not in its place", name)
		assert.Check(t, strings.Contains(string(docs), "| `"+name+"` |"), "docs/explain.md does not have %s", name)
	}
	assert.Check(t, Pattern("x").prefix() == "" && Pattern("").prefix() == "")
}
