package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Flags of trace.Wake.Context.
const (
	forSignal = 1 << 16
	forThaw   = 1 << 17
)

// notify is a wake-up of the victim by a task, with flags.
func (s *script) notify(us uint64, by int, flags uint32) *script {
	return s.add(us, trace.SchedWaking, 1, by, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: flags})
}

// TestSignals: who sends a signal is not who the task waits for, if that goes on.
func TestSignals(t *testing.T) {
	read := trace.Switch{PrevState: 1, Call: 77}
	stopped := trace.Switch{PrevState: taskStopped, Call: 77}
	// interrupted has third send the victim a signal in each of three waits but the last.
	interrupted := func(first, then trace.Switch, gap uint64, last func(s *script)) func(*script) {
		return func(s *script) {
			s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, first).
				notify(4000, third, forSignal).swap(4001, 0, 0, victim, sleeps(0)).swap(4001+gap, 0, victim, 0, then).
				notify(7000+gap, third, forSignal).swap(7001+gap, 0, 0, victim, sleeps(0)).swap(7001+2*gap, 0, victim, 0, then)
			last(s)
			s.swap(11000, 0, 0, victim, sleeps(0))
		}
	}
	woken := func(s *script) { s.notify(10999, other, 0) }
	for _, c := range []timerCase{
		{name: "read goes on", cause: Task, says: "10.0 ms waiting in system call 77 for other 2", not: "third", trace: interrupted(read, read, 5, woken)},
		{
			name: "a limited call goes on by another name", cause: Task, says: "10.0 ms waiting in restart_syscall for other 2", not: "third",
			trace: interrupted(timedFutex, trace.Switch{PrevState: 1, Call: 219}, 5, woken),
		},
		{name: "something else in between", cause: Task, wait: "signal", says: "waiting for a signal of third 3", trace: interrupted(read, read, 1200, woken)},
		{name: "it stops then", cause: Stopped, says: "stopped by third 3", not: "other", trace: interrupted(read, stopped, 5, woken)},
		{
			name: "nothing else ends it", cause: Task, wait: "signal", says: "waiting for a signal of third 3", not: "other",
			trace: interrupted(read, read, 5, func(s *script) { s.notify(10999, third, forSignal) }),
		},
	} {
		t.Run(c.name, c.run)
	}
}

// TestSignalsOfChildren: a child whose end was waited for sends a signal with it; another signal
// ends the wait itself.
func TestSignalsOfChildren(t *testing.T) {
	for _, c := range []struct {
		call string
		ends bool
		says string
	}{
		{"wait4", true, "10.0 ms waiting for other 2"},
		{"waitid", true, "10.0 ms waiting for other 2"},
		{"wait4", false, "waiting for a signal of other 2"},
		{"rt_sigsuspend", true, "waiting for a signal of other 2"},
	} {
		s := &script{}
		s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(61)).notify(11000, other, forSignal)
		if c.ends {
			s.swap(11001, 1, other, 0, trace.Switch{PrevState: taskDead})
		}
		s.swap(11002, 0, 0, victim, sleeps(0))
		names := caseNames
		names.Syscall = func(int) string { return c.call }
		r := explained(t, &s.list, []Outlier{{
			Rule: "r", Track: "syscall", Start: 1_000_000, End: 11_000_000, TID: victim, Comm: "victim", Syscall: c.call,
		}}, names).Outliers[0]
		assert.Check(t, strings.Contains(r.Verdict, c.says), "%s, ends: %t: %s", c.call, c.ends, r.Verdict)
	}
}

// TestLimitedInside: a call that has no time limit of its own waits by one, again and again, until
// somebody ends that.
func TestLimitedInside(t *testing.T) {
	in := func(call int, state uint32) trace.Switch { return trace.Switch{PrevState: state, Call: call} }
	again := func(function uint64, sw trace.Switch, gap uint64, last func(s *script)) func(*script) {
		return func(s *script) {
			s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sw)
			for at := uint64(4000); at < 10000; at += 3000 {
				s.expire(at, function, trace.TCPTimer{}, victim).swap(at+5, 0, 0, victim, sleeps(0)).swap(at+5+gap, 0, victim, 0, sw)
			}
			last(s)
			s.swap(11000, 0, 0, victim, sleeps(0))
		}
	}
	woken := func(s *script) { s.notify(10999, other, 0) }
	expired := func(s *script) { s.expire(10999, fnTimeout, trace.TCPTimer{}, victim) }
	for _, c := range []timerCase{
		{name: "within connect", cause: Task, says: "10.0 ms waiting in connect for other 2", trace: again(fnTimeout, in(42, 1), 5, woken)},
		{name: "within another call", cause: Task, says: "10.0 ms waiting in system call 77 for other 2", trace: again(fnTimeout, in(77, 1), 5, woken)},
		{name: "by another timer", cause: Timer, says: "asleep until a timer", trace: again(fnSleep, in(77, 1), 5, woken)},
		{name: "uninterruptible", cause: Limited, wait: "kernel_delay", says: "held up by", trace: again(fnTimeout, in(77, 2), 5, woken)},
		{name: "something else in between", cause: Timer, says: "asleep until a timer", trace: again(fnTimeout, in(77, 1), 1000, woken)},
		{name: "a socket's limit", cause: Timer, wait: "time_limit", says: "its own time limit in connect: what it waited for did not come", not: "other", trace: again(fnTimeout, in(42, 1), 5, expired)},
		{name: "the kernel's limit", cause: Timer, says: "asleep until a timer", not: "its own", trace: again(fnTimeout, in(77, 1), 5, expired)},
	} {
		t.Run(c.name, c.run)
	}
}

// TestThaw: a task that was frozen in its sleep did not wait for who thawed it.
func TestThaw(t *testing.T) {
	thawed := func(flags uint32) func(*script) {
		return func(s *script) {
			s.swap(300, 1, 0, other, sleeps(0)).wait(sleeps(0), func(s *script) { s.notify(10999, other, flags) })
		}
	}
	for _, c := range []timerCase{
		{name: "thawed", cause: Stopped, says: "stopped by other 2 (frozen in its sleep with its cgroup, until it was thawed)", trace: thawed(forThaw)},
		{name: "woken", cause: Task, says: "for other 2", not: "frozen", trace: thawed(0)},
		{
			name: "by an interrupt", cause: Stopped, says: "stopped by cgroup /app", not: "other",
			trace: func(s *script) { thawed(forThaw | 2<<14 | 24)(s) },
		},
	} {
		t.Run(c.name, c.run)
	}
}

// TestDeadlineRuntime: a SCHED_DEADLINE task that loses its CPU to nobody has met its own limit,
// not that of all real-time tasks.
func TestDeadlineRuntime(t *testing.T) {
	lose := func(prio int) func(*script) {
		return func(s *script) {
			s.swap(400, 0, 0, other, sleeps(0)).
				add(500, trace.SchedSwitch, 0, other, trace.Switch{PrevState: 1, Call: trace.CallNone, PrevPrio: 120, NextTID: victim, NextPID: victim, NextPrio: prio}).
				add(1000, trace.SchedSwitch, 0, victim, trace.Switch{PrevPrio: prio, NextPrio: 120, Call: trace.CallNone}).
				add(11000, trace.SchedSwitch, 0, 0, trace.Switch{PrevPrio: 120, NextTID: victim, NextPID: victim, NextPrio: prio, Call: trace.CallNone})
		}
	}
	for _, c := range []timerCase{
		{name: "deadline", cause: Limited, wait: "dl_runtime", says: "held up by its own runtime of SCHED_DEADLINE", not: "sched_rt_runtime_us", trace: lose(-1)},
		{name: "real time", cause: Limited, wait: "rt_runtime", says: "sched_rt_runtime_us", not: "DEADLINE", trace: lose(49)},
	} {
		t.Run(c.name, c.run)
	}
}

// TestPriorityWhileItRuns: a task that became a real-time one while it ran was one.
func TestPriorityWhileItRuns(t *testing.T) {
	c := timerCase{cause: Preempted, says: "behind other 2 (real-time priority 50)", trace: func(s *script) {
		s.swap(300, 0, 0, other, sleeps(0)).swap(400, 1, 0, victim, sleeps(0)).swap(1000, 1, victim, 0, sleeps(0)).
			wake(1000, 1, third, victim, 0).
			add(11000, trace.SchedSwitch, 0, other, trace.Switch{PrevState: 1, Call: trace.CallNone, PrevPrio: 49, NextTID: victim, NextPID: victim, NextPrio: 120})
	}}
	c.run(t)
}

// TestTimerKinds: a time limit, an alarm and a timerfd are no sleep.
func TestTimerKinds(t *testing.T) {
	ended := func(sw trace.Switch, function uint64) func(*script) {
		return func(s *script) {
			s.wait(sw, func(s *script) { s.expire(10999, function, trace.TCPTimer{}, victim) })
		}
	}
	for _, c := range []timerCase{
		{name: "poll", cause: Timer, wait: "time_limit", says: "asleep until a timer, its own time limit in poll: what it waited for did not come", trace: ended(sleeps(7), fnSleep)},
		{name: "poll, in ticks", cause: Timer, wait: "time_limit", says: "its own time limit in poll", trace: ended(sleeps(7), fnTimeout)},
		{name: "futex", cause: Timer, wait: "time_limit", says: "its own time limit in futex", trace: ended(timedFutex, fnSleep)},
		{name: "no limit of the call's", cause: Timer, says: "asleep until a timer", not: "limit", trace: ended(sleeps(1), fnSleep)},
		{name: "setitimer", cause: Timer, wait: "alarm", says: "waiting in poll until a timer of its process sent a signal", trace: ended(sleeps(7), fnAlarm)},
		{name: "timerfd", cause: Timer, wait: "timerfd", says: "until the timer of a timerfd", not: "limit", trace: ended(sleeps(7), fnTimerFD)},
	} {
		t.Run(c.name, c.run)
	}
}

// TestSubmittedByAnother: until a worker submits a request, the task waits for what that does.
func TestSubmittedByAnother(t *testing.T) {
	first, second := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}, trace.Block{RQ: 8, Sector: 80, Dev: 1, Bytes: 4096}
	disk := func(s *script, us uint64, b trace.Block, tid int) {
		s.add(us, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: softirqBlock}).add(us+1, trace.BlockComplete, 0, 0, b)
		s.wake(us+2, 0, 0, tid, 0).add(us+3, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: softirqBlock})
	}
	c := timerCase{cause: Task, says: "waiting before the read of 4 KiB of other 2 was queued for other 2, which waited 7.0 ms for vda", trace: func(s *script) {
		s.swap(900, 1, 0, other, sleeps(0))
		s.wait(trace.Switch{PrevState: 1, Call: 77}, func(s *script) {
			s.add(1000, trace.BlockIssue, 1, other, first).swap(1001, 1, other, 0, trace.Switch{PrevState: 2, Call: trace.CallNone, IOWait: true})
			disk(s, 8000, first, other)
			s.swap(8010, 1, 0, other, sleeps(0)).add(8020, trace.BlockIssue, 1, other, second).swap(8030, 1, other, 0, sleeps(0))
			disk(s, 10990, second, victim)
		})
	}}
	c.run(t)
}

// TestAround: what is made of many things is named by what they are within.
func TestAround(t *testing.T) {
	names := Names{
		Function: func(a uint64) string {
			return []string{"", "memcpy", "ext4_da_write_begin", "dump_user_range", "elf_core_dump", "vfs_coredump", "generic_perform_write", "rmqueue_bulk", "main"}[a]
		},
		Code: func(_ int, a uint64) string {
			return map[uint64]string{1: "main.(*server).handle+0x12", 2: "0x1234"}[a]
		},
	}
	m := newModel(nil, names)
	stack := func(frames ...uint64) trace.Stack {
		var s trace.Stack
		copy(s.Frames[:], frames)
		return s
	}
	for _, c := range []struct {
		name   string
		stacks []trace.Stack
		want   Site
	}{
		{"a core dump", []trace.Stack{stack(1, 2, 3), stack(2, 1, 4), stack(1, 6, 5), stack(7)}, Site{Function: "dump_user_range", Words: "writing a core dump", Samples: 3, Of: 4}},
		{"less than half", []trace.Stack{stack(1, 3), stack(2), stack(1), stack(7)}, Site{}},
		{"a general place gives way", []trace.Stack{stack(6, 5), stack(6, 4), stack(6), stack(6, 3)}, Site{Function: "dump_user_range", Words: "writing a core dump", Samples: 3, Of: 4}},
		{"if there is another", []trace.Stack{stack(1, 6), stack(2, 6)}, Site{Function: "generic_perform_write", Words: "writing to the page cache", Samples: 2, Of: 2}},
		{"a program's", []trace.Stack{{User: true, Frames: stack(1).Frames}}, Site{}},
	} {
		a := activity{samples: len(c.stacks)}
		for i := range c.stacks {
			a.enclose(m.frames(&c.stacks[i]), c.stacks[i].User)
		}
		got, ok := a.around()
		assert.Check(t, ok == (c.want.Function != ""), c.name)
		assert.Check(t, got == c.want, "%s: %+v", c.name, got)
	}
	assert.Equal(t, workSite(m.frames(&trace.Stack{User: true, Frames: stack(1).Frames}), true), Site{Function: "main.(*server).handle"})
	assert.Equal(t, workSite(m.frames(&trace.Stack{User: true, Frames: stack(2).Frames}), true), Site{})
}

// TestLimitBySite: where the stack is that of a limit, whoever raised it took no part.
func TestLimitBySite(t *testing.T) {
	for site, want := range map[string]string{
		"mem_cgroup_oom_synchronize":         "memory_max",
		"__mem_cgroup_handle_over_high":      "memory_high",
		"blkcg_maybe_throttle_current":       "io_delay",
		"balance_dirty_pages_ratelimited":    "dirty_pages",
		"folio_wait_bit_common":              "",
		"balance_dirty_pages_ratelimited_no": "",
	} {
		s := &script{}
		s.swap(300, 1, 0, other, sleeps(0)).wait(trace.Switch{PrevState: 2, Call: trace.CallException}, func(s *script) { s.notify(10999, other, 0) })
		o := Outlier{
			Track: "offcpu", TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000,
			Stacks: []Stack{{At: 1_000_000, Frames: []string{site + "+0x12", "exc_page_fault"}}},
		}
		r := explained(t, &s.list, []Outlier{o}, timerNames).Outliers[0]
		assert.Check(t, r.Blame.Wait == want && (r.Blame.Cause == Limited) == (want != ""), "%s: %+v", site, r.Blame)
		assert.Check(t, want == "" || !strings.Contains(r.Verdict, "other"), r.Verdict)
	}
}
