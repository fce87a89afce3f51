package explain

import (
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Functions of timers and work items in these tests.
const (
	fnSleep = 9 + iota
	fnTimeout
	fnWrite
	fnDelayedACK
	fnIOCost
	fnDispatch
	fnAlarm
	fnTimerFD
	fnQdisc
	fnPacing
)

var timerNames = func() Names {
	n := caseNames
	n.Syscall = func(nr int) string {
		return map[int]string{0: "read", 1: "write", 7: "poll", 42: "connect", 202: "futex", 219: "restart_syscall", 230: "clock_nanosleep"}[nr]
	}
	n.Function = func(a uint64) string {
		return map[uint64]string{
			fnSleep: "hrtimer_wakeup", fnTimeout: "process_timeout", fnWrite: "tcp_write_timer", fnDelayedACK: "tcp_delack_timer",
			fnIOCost: "iocg_waitq_timer_fn", fnDispatch: "blk_throtl_dispatch_work_fn", fnAlarm: "it_real_fn", fnTimerFD: "timerfd_tmrproc", fnQdisc: "qdisc_watchdog",
			fnPacing: "tcp_pace_kick",
		}[a]
	}
	n.Listener = func(tid, port int) int {
		if tid == victim && port == listened {
			return other
		}
		return 0
	}
	return n
}()

// listened is a port of which it is known who listens.
const listened = 5432

// expire has a timer expire on CPU 0, which wakes a task if that is not 0.
func (s *script) expire(us uint64, function uint64, tcp trace.TCPTimer, tid int) *script {
	s.add(us, trace.TimerEntry, 0, 0, trace.Timer{Timer: 5, Function: function, TCP: tcp})
	if tid != 0 {
		s.wake(us, 0, 0, tid, 0)
	}
	return s.add(us, trace.TimerExit, 0, 0, trace.Timer{Timer: 5})
}

// pace has the timer expire with which TCP sends what it has held back, on top of a task.
func (s *script) pace(us uint64, interrupted int) *script {
	return s.add(us, trace.HrtimerEntry, 0, interrupted, trace.Hrtimer{Hrtimer: 7, Function: fnPacing}).
		add(us+1, trace.HrtimerExit, 0, interrupted, trace.Hrtimer{Hrtimer: 7})
}

var softirqd = trace.MakeComm("ksoftirqd/0")

// softirqsLeft has the timer of a queueing discipline expire, whose softirq is left to ksoftirqd.
func (s *script) softirqsLeft(us uint64) *script {
	return s.add(us, trace.HrtimerEntry, 0, 0, trace.Hrtimer{Hrtimer: 1, Function: fnQdisc}).add(us+1, trace.HrtimerExit, 0, 0, trace.Hrtimer{Hrtimer: 1}).
		add(us+2, trace.SchedWaking, 0, 0, trace.Wake{Comm: softirqd, TID: third, PID: third, Prio: 120})
}

// receive has a packet wake the victim, on top of a task in a system call.
func (s *script) receive(us uint64, cpu, interrupted int) *script {
	return s.add(us, trace.SchedWaking, cpu, interrupted, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: 1<<14 | 1<<13 | softirqNetRX})
}

// wait has the victim wait from 1 ms on, until end.
func (s *script) wait(sw trace.Switch, end func(s *script)) *script {
	s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sw)
	end(s)
	return s.swap(11000, 0, 0, victim, sleeps(0))
}

type timerCase struct {
	name  string
	trace func(s *script)
	says  string
	wait  string // of the blame
	cause Cause
	not   string // the verdict does not say
}

func (c *timerCase) run(t *testing.T) {
	s := &script{}
	for cpu := range 2 {
		s.add(100, trace.CPUIdle, cpu, 0, trace.Idle{CPU: cpu})
	}
	c.trace(s)
	o := Outlier{Rule: "r", Track: "offcpu", TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000}
	r := explained(t, &s.list, []Outlier{o}, timerNames).Outliers[0]
	assert.Check(t, r.Blame.Cause == c.cause && r.Blame.Wait == c.wait, "%+v", r.Blame)
	assert.Check(t, strings.Contains(r.Verdict, c.says), "verdict\n%s\nwant\n%s", r.Verdict, c.says)
	assert.Check(t, c.not == "" || !strings.Contains(r.Verdict, c.not), r.Verdict)
	assert.Check(t, r.Blame.Cause == Unexplained || r.Confidence != "", r.Confidence)
	var sum int64
	for i := range r.Parts {
		sum += r.Parts[i].NS
	}
	assert.Check(t, sum == r.DelayNS, "%d of %d", sum, r.DelayNS)
}

// TestProtocolTimers: what waits for TCP's own timers does not wait for the network, nor for
// whom these interrupt.
func TestProtocolTimers(t *testing.T) {
	peer := trace.TCPTimer{Kind: trace.TCPRetransmit, State: 1, Waiter: victim, Peer: [4]byte{10, 0, 0, 7}, Port: 80}
	syn, probe, keep, ack, cork := peer, peer, peer, peer, peer
	syn.State, probe.Kind, keep.Kind, ack.Kind = trace.TCPSynSent, trace.TCPProbe, trace.TCPKeepAlive, trace.TCPDelayedACK
	cork.Kind = trace.TCPCork
	full, free := syn, syn
	full.Listener, full.AcceptQueue = true, [2]uint32{129, 128}
	free.Listener, free.AcceptQueue = true, [2]uint32{128, 128}
	known := full
	known.Port = listened
	theirs := ack
	theirs.Waiter = other
	for _, c := range []timerCase{
		{
			name: "SYN again", cause: ProtocolTimer, wait: "syn_again", says: "9.0 ms until TCP sent the SYN again to 10.0.0.7:80 (in connect)", not: "accept queue",
			trace: func(s *script) {
				s.wait(sleeps(42), func(s *script) {
					s.expire(9000, fnWrite, syn, 0).expire(10000, fnWrite, free, 0).receive(10500, 1, other)
				})
			},
		},
		{
			name: "accept queue full", cause: ProtocolTimer, wait: "syn_again", says: "as the accept queue there was full, 129 of 129)",
			trace: func(s *script) {
				s.wait(sleeps(42), func(s *script) {
					s.expire(5000, fnWrite, full, 0).expire(10000, fnWrite, free, 0).receive(10900, 1, other)
				})
			},
		},
		{
			name: "accept queue full, of whom is known", cause: ProtocolTimer, wait: "syn_again", says: "as the accept queue of other 2 was full, 129 of 129)",
			trace: func(s *script) {
				s.wait(sleeps(42), func(s *script) {
					s.expire(5000, fnWrite, known, 0).expire(10000, fnWrite, free, 0).receive(10900, 1, other)
				})
			},
		},
		{
			name: "sent again after the end", cause: Task, says: "waiting for other 2", not: "TCP",
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).wait(sleeps(0), func(s *script) { s.receive(10500, 1, other).expire(10600, fnWrite, syn, 0) })
			},
		},
		{
			name: "delayed acknowledgement of its own", cause: ProtocolTimer, wait: "delayed_ack", says: "9.0 ms until TCP sent a delayed acknowledgement to 10.0.0.7:80",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) { s.expire(10000, fnDelayedACK, ack, 0).receive(10500, 1, other) })
			},
		},
		{
			name: "a delayed acknowledgement long before", cause: Task, says: "waiting for other 2", not: "TCP",
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).wait(sleeps(0), func(s *script) { s.expire(2000, fnDelayedACK, ack, 0).receive(10500, 1, other) })
			},
		},
		{
			name: "of another socket, on this machine", cause: ProtocolTimer, wait: "delayed_ack", says: "9.5 ms until TCP sent a delayed acknowledgement", not: "other 2",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) { s.expire(10500, fnDelayedACK, theirs, 0).receive(10520, 0, 0) })
			},
		},
		{
			name: "sent again, and acknowledged late", cause: ProtocolTimer, wait: "data_again",
			says: "9.5 ms until TCP sent data again to 10.0.0.7:80 and until TCP sent a delayed acknowledgement", not: "network",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) {
					s.expire(9000, fnWrite, peer, 0).expire(10500, fnDelayedACK, theirs, 0).receive(10520, 0, 0)
				})
			},
		},
		{
			name: "the softirqs went on in their thread", cause: ProtocolTimer, wait: "delayed_ack", says: "9.5 ms until TCP sent a delayed acknowledgement", not: "network",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) {
					s.expire(10500, fnDelayedACK, theirs, 0)
					s.swap(10510, 0, 0, third, trace.Switch{NextComm: softirqd}).receive(10520, 0, third)
					s.swap(10530, 0, third, 0, trace.Switch{})
				})
			},
		},
		{
			name: "a queueing discipline lets it go, on top of a task", cause: Network, wait: "qdisc", says: "for the network (held back by a queueing discipline: tc -s qdisc)", not: "other",
			trace: func(s *script) {
				s.swap(300, 0, 0, other, sleeps(0)).swap(500, 0, other, victim, trace.Switch{}).swap(1000, 0, victim, other, sleeps(0)).
					add(10500, trace.HrtimerEntry, 0, other, trace.Hrtimer{Hrtimer: 1, Function: fnQdisc}).add(10501, trace.HrtimerExit, 0, other, trace.Hrtimer{Hrtimer: 1}).
					receive(10520, 0, other).swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "it lets it go in the softirqs' thread, behind another", cause: Network, wait: "qdisc", says: "for the network (held back by a queueing discipline: tc -s qdisc)", not: "other",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) {
					s.softirqsLeft(8000).swap(8020, 0, 0, other, sleeps(0)).swap(10500, 0, other, third, trace.Switch{NextComm: softirqd}).receive(10520, 0, third).
						swap(10530, 0, third, 0, trace.Switch{PrevComm: softirqd, PrevState: 1})
				})
			},
		},
		{
			name: "the softirqs' thread was done before", cause: Task, says: "waiting for other 2", not: "held back",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) {
					s.softirqsLeft(10300).swap(10310, 0, 0, third, trace.Switch{NextComm: softirqd}).swap(10320, 0, third, other, trace.Switch{PrevComm: softirqd, PrevState: 1}).
						receive(10520, 0, other).swap(10530, 0, other, 0, sleeps(0))
				})
			},
		},
		{
			name: "it let one go long before", cause: Task, says: "waiting for other 2", not: "held back",
			trace: func(s *script) {
				s.swap(300, 0, 0, other, sleeps(0)).swap(500, 0, other, victim, trace.Switch{}).swap(1000, 0, victim, other, sleeps(0)).
					add(9500, trace.HrtimerEntry, 0, other, trace.Hrtimer{Hrtimer: 1, Function: fnQdisc}).add(9501, trace.HrtimerExit, 0, other, trace.Hrtimer{Hrtimer: 1}).
					receive(10520, 0, other).swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "paced to its end", cause: Network, wait: "pacing", says: "for the network (held back by the pacing of TCP: ss -ti)", not: "other",
			trace: func(s *script) {
				s.swap(300, 0, 0, other, sleeps(0)).swap(500, 0, other, victim, trace.Switch{}).swap(1000, 0, victim, other, sleeps(0)).
					pace(1900, other).pace(10500, other).receive(10520, 0, other).swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "the timer was another one's, of whom it waits for", cause: Task, says: "for other 2, which ran", not: "held back",
			trace: func(s *script) {
				s.swap(110, 0, 0, victim, sleeps(0))
				for at := uint64(200); at < 400; at += 50 {
					s.swap(at, 0, victim, 0, sleeps(7)).swap(at+10, 0, 0, other, sleeps(0)).receive(at+20, 0, other).swap(at+30, 0, other, victim, sleeps(7))
				}
				s.swap(600, 0, victim, other, sleeps(7)).pace(10980, other).receive(11000, 0, other).swap(11010, 0, other, victim, sleeps(7))
			},
		},
		{
			name: "paced at the end only, of a task that had not read before", cause: Task, says: "waiting for other 2", not: "held back",
			trace: func(s *script) {
				s.swap(300, 0, 0, other, sleeps(0)).swap(500, 0, other, victim, trace.Switch{}).swap(1000, 0, victim, other, sleeps(0)).
					pace(9900, other).pace(10100, other).pace(10500, other).receive(10520, 0, other).swap(11000, 0, other, victim, sleeps(0))
			},
		},
		{
			name: "the packet came on another CPU", cause: Task, says: "for other 2", not: "TCP",
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).wait(sleeps(0), func(s *script) { s.expire(10500, fnDelayedACK, theirs, 0).receive(10520, 1, other) })
			},
		},
		{
			name: "the packet came from a device", cause: Network, says: "waiting for the network", not: "held back",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) {
					s.expire(10500, fnDelayedACK, theirs, 0).add(10510, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: softirqNetRX, AfterIRQ: true, IRQ: 24}).
						add(10520, trace.SchedWaking, 0, 0, trace.Wake{TID: victim, PID: victim, Prio: 120}).add(10530, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: softirqNetRX})
				})
			},
		},
		{
			name: "zero-window probe", cause: ProtocolTimer, wait: "window_probe", says: "9.5 ms until a zero-window probe of TCP to 10.0.0.7:80 (in write)",
			trace: func(s *script) {
				s.wait(sleeps(1), func(s *script) {
					s.expire(3000, fnWrite, probe, 0).expire(10500, fnWrite, probe, 0).receive(10520, 0, 0)
				})
			},
		},
		{
			name: "held back by its sender", cause: ProtocolTimer, wait: "corked", says: "9.5 ms until TCP sent what its sender had held back to 10.0.0.7:80",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) { s.expire(10500, fnWrite, cork, 0).receive(10520, 0, 0) })
			},
		},
		{
			name: "a probe while the reader does not read", cause: Task, says: "waiting in write for other 2", not: "TCP",
			trace: func(s *script) {
				s.swap(300, 1, 0, other, sleeps(0)).wait(sleeps(1), func(s *script) { s.expire(3000, fnWrite, probe, 0).receive(10520, 1, other) })
			},
		},
		{
			name: "keep-alive gives up", cause: ProtocolTimer, wait: "keep_alive", says: "until the keep-alive timer of TCP to 10.0.0.7:80",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) { s.expire(10500, fnWrite, keep, victim) })
			},
		},
		{
			name: "without the socket, in connect", cause: ProtocolTimer, wait: "syn_again", says: "until TCP sent the SYN again (in connect)",
			trace: func(s *script) {
				s.wait(sleeps(42), func(s *script) { s.expire(10500, fnWrite, trace.TCPTimer{}, 0).receive(10520, 0, 0) })
			},
		},
		{
			name: "nothing was due", cause: Network, says: "waiting for the network",
			trace: func(s *script) {
				s.expire(200, fnWrite, theirs, 0).wait(sleeps(0), func(s *script) { s.expire(10500, fnWrite, trace.TCPTimer{}, 0).receive(10520, 0, 0) })
			},
		},
	} {
		t.Run(c.name, c.run)
	}
}

// TestLimits: a sleep that the kernel chose is not a wish.
func TestLimits(t *testing.T) {
	asleep := trace.Switch{PrevState: 0x102, Call: 1}
	inIO, reading := asleep, asleep
	inIO.IOWait = true
	reading.IOWait, reading.Call = true, 0
	fault := trace.Switch{PrevState: 0x102, Call: trace.CallException}
	reclaims := func(s *script, at uint64, memcg bool) *script {
		return s.add(at, trace.ReclaimBegin, 0, victim, trace.Reclaim{Memcg: memcg}).add(at+50, trace.ReclaimEnd, 0, victim, trace.Reclaim{Memcg: memcg})
	}
	for _, c := range []timerCase{
		{
			name: "dirty pages", cause: Limited, wait: "dirty_pages", says: "10.0 ms held up by the limit of dirty pages of vda (in write)",
			trace: func(s *script) {
				w := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 1 << 20, Flags: 1}
				s.wait(inIO, func(s *script) {
					s.add(2000, trace.BlockIssue, 1, worker, w).add(8000, trace.BlockComplete, 1, 0, w).expire(10999, fnTimeout, trace.TCPTimer{}, victim)
				})
			},
		},
		{
			name: "I/O controller", cause: Limited, wait: "io_delay", says: "held up by the I/O controller of cgroup /app",
			trace: func(s *script) {
				s.wait(reading, func(s *script) { s.expire(10999, fnSleep, trace.TCPTimer{}, victim) })
			},
		},
		{
			name: "iocost", cause: Limited, wait: "io_delay", says: "held up by the I/O controller of cgroup /app",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) { s.expire(10999, fnIOCost, trace.TCPTimer{}, victim) })
			},
		},
		{
			name: "memory.high", cause: Limited, wait: "memory_high", says: "held up by the limit memory.high of cgroup /app (in write)",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0))
				reclaims(s, 900, true).swap(1000, 0, victim, 0, asleep).expire(10999, fnTimeout, trace.TCPTimer{}, victim).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "memory.high, after a page fault", cause: Limited, wait: "memory_high", says: "held up by the limit memory.high of cgroup /app (in a page fault)",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0))
				reclaims(s, 900, true).swap(1000, 0, victim, 0, fault).expire(10999, fnTimeout, trace.TCPTimer{}, victim).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "reclaim of the machine", cause: Limited, wait: "kernel_delay", says: "held up by a delay of the kernel (in write)", not: "memory",
			trace: func(s *script) {
				s.swap(500, 0, 0, victim, sleeps(0))
				reclaims(s, 900, false).swap(1000, 0, victim, 0, asleep).expire(10999, fnTimeout, trace.TCPTimer{}, victim).swap(11000, 0, 0, victim, sleeps(0))
			},
		},
		{
			name: "a wish", cause: Timer, says: "asleep until a timer", not: "held up",
			trace: func(s *script) {
				s.wait(sleeps(0), func(s *script) { s.expire(10999, fnTimeout, trace.TCPTimer{}, victim) })
			},
		},
		{
			name: "io.max", cause: Limited, wait: "io_max", says: "9.0 ms held up by the limit io.max of cgroup /app (its read of 4 KiB to vda was held back)",
			trace: func(s *script) {
				r := trace.Block{RQ: 7, Sector: 8, Dev: 1, Bytes: 4096}
				s.wait(trace.Switch{PrevState: 2, Call: 0, IOWait: true}, func(s *script) {
					s.swap(9900, 1, 0, worker, sleeps(0)).add(9950, trace.WorkStart, 1, worker, trace.Work{Work: 3, Function: fnDispatch}).
						add(10000, trace.BlockIssue, 1, worker, r).add(10010, trace.WorkEnd, 1, worker, trace.Work{Work: 3}).
						swap(10020, 1, worker, 0, sleeps(0)).
						add(10990, trace.SoftirqEntry, 0, 0, trace.Softirq{Vec: softirqBlock}).add(10991, trace.BlockComplete, 0, 0, r).
						wake(10992, 0, 0, victim, 0).add(10993, trace.SoftirqExit, 0, 0, trace.Softirq{Vec: softirqBlock})
				})
			},
		},
		{
			name: "real-time tasks", cause: Limited, wait: "rt_runtime", says: "10.0 ms held up by the limit of real-time tasks (sched_rt_runtime_us or the fair server)", not: "lower priority",
			trace: func(s *script) {
				lose := func(us uint64, from, to int, state trace.Switch) {
					if state.PrevPrio, state.NextPrio = 49, 120; from == other {
						state.PrevPrio = 120
					}
					state.NextTID, state.NextPID, state.Call = to, to, trace.CallNone
					s.add(us, trace.SchedSwitch, 0, from, state)
				}
				s.swap(500, 0, 0, third, sleeps(0))
				lose(900, third, victim, sleeps(0))
				lose(1000, victim, other, trace.Switch{})
				lose(4000, other, 0, sleeps(0))
				s.swap(11000, 0, 0, victim, sleeps(0))
			},
		},
	} {
		t.Run(c.name, c.run)
	}
}

// TestSeries: of waits with a time limit that are repeated, what ended the last one is the
// cause of all.
func TestSeries(t *testing.T) {
	turn := trace.Switch{PrevState: 1, Call: trace.CallFutex, Futex: trace.MakeFutex(trace.FutexWaitBitset, 0, false, true)}
	poll := sleeps(7)
	untimed := turn
	untimed.Futex = trace.MakeFutex(trace.FutexWaitBitset, 0, false, false)
	// series has the victim wait three times for 3 ms, doing something else in between.
	series := func(sw trace.Switch, between uint64, last func(s *script)) func(*script) {
		return func(s *script) {
			s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sw).
				expire(4000, fnSleep, trace.TCPTimer{}, victim).swap(4001, 0, 0, victim, sleeps(0)).swap(4001+between, 0, victim, 0, sw).
				expire(7000+between, fnSleep, trace.TCPTimer{}, victim).swap(7001+between, 0, 0, victim, sleeps(0)).swap(7001+2*between, 0, victim, 0, sw)
			last(s)
			s.swap(11000, 0, 0, victim, sleeps(0))
		}
	}
	woken := func(s *script) { s.wake(10999, 1, other, victim, 0) }
	// then has the victim's time limit end the outlier, and the wait begun again end as woken.
	then := func(sw trace.Switch, at uint64) func(*script) {
		return func(s *script) {
			s.swap(300, 1, 0, other, sleeps(0)).
				wait(sw, func(s *script) { s.expire(10999, fnSleep, trace.TCPTimer{}, victim) }).
				swap(11200, 0, victim, 0, sw).wake(at, 1, other, victim, 0).swap(at+1, 0, 0, victim, sleeps(0))
		}
	}
	for _, c := range []timerCase{
		{name: "futex, whose last wait is after it", cause: Task, wait: "condition_or_semaphore", says: "until other 2 woke it", trace: then(turn, 11210)},
		{name: "futex, whose last wait is long after it", cause: Timer, wait: "time_limit", says: "asleep until a timer", not: "other", trace: then(turn, 75000)},
		{name: "poll, whose last wait is after it", cause: Timer, wait: "time_limit", says: "asleep until a timer", not: "other", trace: then(poll, 11210)},
		{name: "futex", cause: Task, wait: "condition_or_semaphore", says: "until other 2 woke it", trace: series(turn, 5, woken)},
		{name: "poll", cause: Task, says: "10.0 ms waiting in poll for other 2", trace: series(poll, 5, woken)},
		{name: "much else in between", cause: Timer, wait: "time_limit", says: "asleep until a timer", trace: series(turn, 1200, woken)},
		{name: "kept from its CPU in between", cause: Task, wait: "condition_or_semaphore", says: "until other 2 woke it", trace: func(s *script) {
			s.swap(300, 1, 0, third, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, third, turn).
				expire(4000, fnSleep, trace.TCPTimer{}, victim).swap(6500, 0, third, victim, trace.Switch{}).swap(6510, 0, victim, 0, turn)
			woken(s)
			s.swap(11000, 0, 0, victim, sleeps(0))
		}},
		{name: "without a limit", cause: Timer, says: "asleep until a timer", trace: series(untimed, 5, woken)},
		{
			name: "nobody gave way", cause: Timer, wait: "time_limit", says: "asleep until a timer, its own time limit", not: "other",
			trace: series(turn, 5, func(s *script) { s.expire(10999, fnSleep, trace.TCPTimer{}, victim) }),
		},
	} {
		t.Run(c.name, c.run)
	}
}

// TestUsualSender: packets that a task sends on this machine may be received in an interrupt
// on top of it, as those of other machines are.
func TestUsualSender(t *testing.T) {
	remote := uint32(1<<14 | 1<<12 | softirqNetRX)
	// after has other end some waits by packets, and then a packet wake the victim on top of a task.
	after := func(waits, below int) func(*script) {
		return func(s *script) {
			s.swap(50, 1, 0, other, sleeps(0)).swap(60, 0, 0, victim, sleeps(0))
			for i := range uint64(waits) {
				s.swap(100+100*i, 0, victim, 0, sleeps(0)).receive(150+100*i, 1, other).swap(151+100*i, 0, 0, victim, sleeps(0))
			}
			s.swap(1000, 0, victim, 0, sleeps(0)).
				add(10990, trace.SchedWaking, 1, below, trace.Wake{TID: victim, PID: victim, Prio: 120, Context: remote}).
				swap(11000, 0, 0, victim, sleeps(0))
		}
	}
	for _, c := range []timerCase{
		{name: "who sent what ended the last waits", cause: Task, says: "for other 2, which ran", not: "network", trace: after(3, other)},
		{name: "too few waits", cause: Network, says: "the network", not: "other", trace: after(2, other)},
		{name: "on top of another task", cause: Network, says: "the network", not: "third", trace: after(3, third)},
	} {
		t.Run(c.name, c.run)
	}
}

// TestHostileTimers: waiters and functions without end keep to the bounds.
func TestHostileTimers(t *testing.T) {
	s := &script{}
	s.swap(500, 0, 0, victim, sleeps(0)).swap(1000, 0, victim, 0, sleeps(0))
	for i := range 200_000 {
		tcp := trace.TCPTimer{Kind: i % 256, State: i % 256, Waiter: i%1000 - 500, Port: i % 65536, Listener: true}
		s.add(2000+uint64(i)/50, trace.TimerEntry, i%2, 0, trace.Timer{Timer: uint64(i), Function: uint64(i), TCP: tcp})
	}
	s.receive(10999, 0, 0)
	o := Outlier{Track: "offcpu", TID: victim, Start: 1_000_000, End: 11_000_000}
	r := explained(t, &s.list, []Outlier{o}, timerNames).Outliers[0]
	assert.Check(t, len(r.Parts) > 0 && len(r.Verdict) < 1000, strconv.Quote(r.Verdict))
}
