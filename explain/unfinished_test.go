package explain

import (
	"math"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestUnfinished: what a wait that has not ended is for, as far as that is known.
func TestUnfinished(t *testing.T) {
	const read, write, flock, wait4, child, another = 63, 64, 73, 61, 50, 51
	mutex := waitsFor(trace.FutexWait, 2, false)
	// after has the victim wait for so many others, each for 100 us, and then from 1 ms on.
	after := func(sw trace.Switch, by ...int) func(s *script) {
		return func(s *script) {
			s.swap(110, 1, 0, other, sleeps(0)).swap(120, 0, 0, victim, sleeps(0))
			for i, tid := range by {
				at := 200 + uint64(i)*150
				s.swap(at, 0, victim, 0, sw).wake(at+100, 1, tid, victim, 0).swap(at+110, 0, 0, victim, sleeps(0))
			}
			s.swap(1000, 0, victim, 0, sw)
		}
	}
	// asked has the victim wake tasks that wait for input, and then wait from 1 ms on.
	asked := func(sw trace.Switch, by int, tids ...int) func(s *script) {
		return func(s *script) {
			s.swap(110, 1, 0, other, sleeps(0)).swap(115, 1, other, third, sleeps(read)).swap(120, 0, 0, victim, sleeps(0))
			s.swap(125, 1, third, 0, sleeps(read))
			if by != 0 {
				s.swap(200, 0, victim, 0, sw).swap(290, 1, 0, by, sleeps(0)).wake(300, 1, by, victim, 0).swap(305, 1, by, 0, sleeps(read)).swap(310, 0, 0, victim, sleeps(0))
			}
			for i, tid := range tids {
				s.wake(900+uint64(i), 0, victim, tid, 1)
			}
			s.swap(1000, 0, victim, 0, sw).swap(1010, 1, 0, tids[0], sleeps(0))
		}
	}
	and := func(trace, more func(s *script)) func(s *script) { return func(s *script) { trace(s); more(s) } }
	asks := func(ret, holder int) func(s *script) {
		return func(s *script) {
			s.swap(110, 1, 0, other, sleeps(0)).swap(120, 0, 0, victim, sleeps(0)).
				file(990, 0, victim, trace.FileLock{Inode: 7, Flags: flFlock, Type: 1, Ret: ret, HolderPID: holder, End: math.MaxInt64}).
				swap(1000, 0, victim, 0, sleeps(flock))
		}
	}
	children := func(tids ...int) func(n *Names) {
		return func(n *Names) {
			n.Tasks = func() []int { return tids }
			n.Task = func(tid int) (TaskInfo, bool) {
				return TaskInfo{PID: tid, PPID: victim, Comm: "child"}, tid >= child
			}
		}
	}
	childOf := func(parent int) func(n *Names) {
		return func(n *Names) {
			task := n.Task
			n.Task = func(tid int) (TaskInfo, bool) {
				f, ok := task(tid)
				if tid == victim {
					f.PPID = parent
				}
				return f, ok
			}
		}
	}
	turn := trace.Switch{PrevState: 1, Call: trace.CallFutex, Futex: trace.MakeFutex(trace.FutexWaitBitset, 0, false, true)}
	goesOn := func(s *script) {
		s.expire(9000, fnSleep, trace.TCPTimer{}, victim).swap(9001, 0, 0, victim, sleeps(0)).swap(9005, 0, victim, 0, turn)
	}
	for _, c := range []struct {
		name       string
		trace      func(s *script)
		names      func(n *Names)
		cause      Cause
		wait       string
		confidence Confidence
		says, not  string
	}{
		{name: "by the last ones", trace: after(sleeps(read), other, other, other), cause: Task, confidence: Guess, says: "waiting in read for other 2, which ran for 10.0 ms (a guess: it ended the last waits"},
		{name: "once more, after another", trace: after(sleeps(read), third, other, other, other), cause: Task, confidence: Guess, says: "for other 2"},
		{name: "by several", trace: after(sleeps(read), other, third, other, third), cause: Unexplained, says: "still waiting in read, no wake-up yet"},
		{name: "by too few", trace: after(sleeps(read), other, other), cause: Unexplained, says: "still waiting in read"},
		{name: "again, by the last ones", trace: and(after(turn, other, other, other), goesOn), cause: Task, confidence: Guess, says: "waiting in futex again and again for other 2, which ran for 10.0 ms (a guess"},
		{name: "again, by too few", trace: and(after(turn, other, other), goesOn), cause: Timer, wait: "time_limit", confidence: Inferred, says: "its own time limit", not: "other"},
		{name: "by one that has ended", cause: Unexplained, says: "still waiting in read", trace: and(after(sleeps(read), other, other, other), func(s *script) {
			s.swap(2000, 1, other, 0, trace.Switch{PrevState: taskDead, Call: trace.CallNone})
		})},
		{name: "by whom it asked", trace: asked(sleeps(read), 0, other), cause: Task, confidence: Guess, says: "waiting in read for other 2, which ran for 10.0 ms (a guess: the task woke it before it began to wait"},
		{name: "by whom that asked", cause: Task, confidence: Guess, says: "for other 2, which spent 9.9 ms waiting for third 3 (SCHED_FIFO 50), which ran for 9.9 ms", trace: func(s *script) {
			s.swap(110, 1, 0, other, sleeps(0)).swap(115, 1, other, third, sleeps(read)).swap(120, 0, 0, victim, sleeps(0)).swap(125, 1, third, 0, sleeps(read))
			s.wake(900, 0, victim, other, 1).swap(905, 1, 0, other, sleeps(0)).swap(1000, 0, victim, 0, sleeps(read))
			s.wake(1040, 1, other, third, 1).swap(1050, 1, other, third, sleeps(read))
		}},
		{name: "by one that others have asked", cause: Task, confidence: Guess, says: "for other 2, which spent 9.9 ms unexplained", trace: func(s *script) {
			s.swap(110, 1, 0, other, sleeps(0)).swap(115, 1, other, third, sleeps(read)).swap(120, 0, 0, victim, sleeps(0)).swap(125, 1, third, 40, sleeps(read))
			s.wake(900, 0, victim, other, 1).swap(905, 1, 40, other, sleeps(0)).swap(910, 1, other, 40, sleeps(read)).swap(1000, 0, victim, 0, sleeps(read))
			s.wake(1010, 1, 40, other, 1).swap(1015, 1, 40, other, sleeps(0)).wake(1040, 1, other, third, 1).swap(1050, 1, other, third, sleeps(read))
		}},
		{name: "its parent, which it told something", trace: asked(sleeps(read), 0, other), names: childOf(other), cause: Unexplained, says: "still waiting in read", not: "other"},
		{name: "its parent, and another one", trace: asked(sleeps(read), 0, other, third), names: childOf(third), cause: Task, confidence: Guess, says: "for other 2"},
		{name: "its parent, which has answered before", trace: asked(sleeps(read), other, other), names: childOf(other), cause: Task, confidence: Guess, says: "for other 2"},
		{name: "by whom it asked as before", trace: asked(sleeps(read), other, other), cause: Task, confidence: Guess, says: "for other 2"},
		{name: "another one ended the last", trace: asked(sleeps(read), third, other), cause: Unexplained, says: "still waiting in read", not: "other"},
		{name: "it asked two", trace: asked(sleeps(read), 0, other, third), cause: Unexplained, says: "still waiting in read", not: "other"},
		{name: "for room, of the last who read", trace: asked(sleeps(write), 0, third, other), cause: Task, confidence: Guess, says: "waiting in write for other 2"},
		{name: "for a file", trace: asked(trace.Switch{PrevState: 2, Call: write}, 0, other), cause: Unexplained, says: "still waiting in write", not: "other"},

		{name: "a mutex", trace: after(mutex, other, other, other), cause: Locked, wait: "mutex", confidence: Guess, says: "waiting for a mutex that other 2 held"},
		{name: "a mutex that that one waits for", trace: and(after(mutex, other, other, other), func(s *script) { s.swap(2000, 1, other, 0, mutex) }), cause: Locked, wait: "mutex", confidence: Inferred, says: "waiting for a mutex (for a futex that has not been woken yet)", not: "other"},
		{name: "a lock of a file", trace: asks(deferred, other), cause: Locked, wait: "file_lock", confidence: Inferred, says: "waiting for a lock of a file that other 2 held, which ran for 10.0 ms"},
		{name: "a lock of a file that nobody knows the holder of", trace: asks(deferred, 0), cause: Unexplained, says: "still waiting in flock"},
		{name: "a lock of a file that it asked for in vain", trace: asks(again, other), cause: Unexplained, says: "still waiting in flock"},
		{name: "a child", trace: after(sleeps(wait4)), names: children(child), cause: Task, wait: "join", confidence: Inferred, says: "waiting for child 50 to end"},
		{name: "one of two children", trace: after(sleeps(wait4)), names: children(child, another), cause: Unexplained, says: "still waiting in wait4 for one of 2 children to end"},
		{name: "no child", trace: after(sleeps(wait4)), names: children(), cause: Unexplained, says: "still waiting in wait4, no wake-up yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			for cpu := range 2 {
				s.add(100, trace.CPUIdle, cpu, 0, trace.Idle{CPU: cpu})
			}
			c.trace(s)
			s.add(12000, trace.CPUIdle, 0, 0, trace.Idle{CPU: 0})
			names := caseNames
			names.Syscall = func(nr int) string {
				return map[int]string{read: "read", write: "write", flock: "flock", wait4: "wait4"}[nr]
			}
			if c.names != nil {
				c.names(&names)
			}
			o := Outlier{Rule: "r", Track: "offcpu", TID: victim, PID: victim, Comm: "victim", Cause: "timeout", Start: 1_000_000, End: 11_000_000}
			r := explained(t, &s.list, []Outlier{o}, names).Outliers[0]
			assert.Check(t, r.Blame.Cause == c.cause && r.Blame.Wait == c.wait && (c.cause == Unexplained || r.Confidence == c.confidence), "%+v", r.Blame)
			assert.Check(t, strings.Contains(r.Verdict, c.says), "verdict\n%s\nwant\n%s", r.Verdict, c.says)
			assert.Check(t, c.not == "" || !strings.Contains(r.Verdict, c.not), r.Verdict)
		})
	}
}
