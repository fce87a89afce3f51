package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestFutexes: what is waited for is told by the operation, the value, who else is woken and
// what becomes of the waker. Only a lock has a holder, and only a holder can be in an
// inversion.
func TestFutexes(t *testing.T) {
	for _, c := range []struct {
		name string
		wait trace.Switch
		// The waker wakes a third task as well; it ends.
		both, ends bool
		user       []string
		says       string
		kind       string
		cause      Cause
		confidence Confidence
		unfinished bool
		apart      bool // the third waits for another futex
		later      bool // the third is woken, too, but not at once
		old        bool // the trace is older than the places of futexes
	}{
		{name: "mutex", wait: waitsFor(trace.FutexWait, 2, false), says: "waiting for a mutex that other 2 held", kind: "mutex", cause: Locked, confidence: Inferred},
		{name: "readers-writer lock", wait: waitsFor(trace.FutexWaitBitset, 3, false), says: "waiting for a readers-writer lock that other 2 held", kind: "rwlock", cause: Locked, confidence: Inferred},
		{name: "readers-writer lock, by the stack", wait: waitsFor(trace.FutexWait, 1, false), says: "waiting for a readers-writer lock that other 2 held", kind: "rwlock", cause: Locked, confidence: Seen,
			user: []string{"__futex_abstimed_wait64+0x1", "pthread_rwlock_wrlock+0x2f (libc.so.6)"}},
		{name: "a mutex of Rust, or a readers-writer lock", wait: waitsFor(trace.FutexWaitBitset, 2, false), says: "a mutex or a readers-writer lock that other 2 held", kind: "mutex_or_rwlock", cause: Locked, confidence: Inferred},
		{name: "pi mutex", wait: waitsFor(trace.FutexLockPI, 0, false), says: "waiting for a priority-inheriting mutex that other 2 held", kind: "pi_mutex", cause: Locked, confidence: Seen},
		{name: "signal or post", wait: waitsFor(trace.FutexWaitBitset, 0, false), says: "waiting on a condition variable or a semaphore until other 2 woke it", kind: "condition_or_semaphore", cause: Task, confidence: Inferred},
		{name: "broadcast", wait: waitsFor(trace.FutexWaitBitset, 0, false), both: true, says: "waiting on a condition variable until other 2 woke it", kind: "condition", cause: Task, confidence: Inferred},
		{name: "join", wait: waitsFor(trace.FutexWaitBitset, 4000, true), ends: true, says: "waiting for other 2 to end", kind: "join", cause: Task, confidence: Inferred},
		{name: "join, by the value", wait: waitsFor(trace.FutexWaitBitset, 4000, true), says: "waiting for other 2 to end", kind: "join", cause: Task, confidence: Inferred},
		{name: "barrier", wait: waitsFor(trace.FutexWait, 1, false), both: true, says: "waiting at a barrier until other 2 came", kind: "barrier", cause: Task, confidence: Inferred},
		{name: "parked", wait: waitsFor(trace.FutexWait, 0, false), says: "parked in a queue until other 2 woke it", kind: "parked", cause: Task, confidence: Inferred},
		{name: "threads of a runtime, two at once", wait: waitsFor(trace.FutexWait, 0, false), both: true, apart: true, says: "parked in a queue until other 2 woke it", kind: "parked", cause: Task, confidence: Inferred},
		{name: "the first round of a barrier", wait: waitsFor(trace.FutexWait, 0, false), both: true, says: "waiting at a barrier until other 2 came", kind: "barrier", cause: Task, confidence: Inferred},
		{name: "a trace without places", wait: waitsFor(trace.FutexWait, 0, false), both: true, old: true, says: "parked in a queue until other 2 woke it", kind: "parked", cause: Task, confidence: Inferred},
		{name: "a barrier of two processes", wait: waitsFor(trace.FutexWait, 0, true), both: true, says: "waiting at a barrier until other 2 came", kind: "barrier", cause: Task, confidence: Inferred},
		{name: "woken for itself, and another one long after it", wait: waitsFor(trace.FutexWait, 0, false), later: true, says: "parked in a queue until other 2 woke it", kind: "parked", cause: Task, confidence: Inferred},
		{name: "a goroutine that waits in a thread of its own", wait: waitsFor(trace.FutexWait, 0, false), both: true, says: "parked in a queue until other 2 woke it", kind: "parked", cause: Task, confidence: Seen,
			user: []string{"runtime.futex.abi0+0x23 (server)", "runtime.notesleep+0x87 (server)", "runtime.mPark", "runtime.stoplockedm+0x73 (server)"}},
		{name: "a lock of Go's runtime", wait: waitsFor(trace.FutexWait, 3, false), says: "waiting for a mutex that other 2 held", kind: "mutex", cause: Locked, confidence: Seen,
			user: []string{"runtime.futex.abi0+0x23 (server)", "runtime.futexsleep+0x30 (server)", "runtime.lock2+0x87 (server)"}},
		{name: "anything", wait: waitsFor(trace.FutexWait, 1, false), says: "waiting on a futex until other 2 woke it", kind: "futex", cause: Task, confidence: Seen},
		{name: "without its operation", wait: sleeps(202), says: "waiting on a futex until other 2 woke it", kind: "futex", cause: Task, confidence: Seen},
		{name: "by the stack", wait: waitsFor(trace.FutexWaitBitset, 0, false), user: []string{"__futex_abstimed_wait_common64+0x1", "sem_wait+0x2f (libc.so.6)"},
			says: "waiting on a semaphore until other 2 posted it", kind: "semaphore", cause: Task, confidence: Seen},
		{name: "a lock of PostgreSQL", wait: waitsFor(trace.FutexWaitBitset, 0, true), says: "waiting for a mutex that other 2 held", kind: "mutex", cause: Locked, confidence: Seen,
			user: []string{"__futex_abstimed_wait_common64+0x1", "__new_sem_wait_slow64.constprop.0+0x93 (libc.so.6)", "PGSemaphoreLock+0x23 (postgres)", "LWLockAcquireOrWait+0xdf (postgres)", "XLogFlush+0x18e (postgres)"}},
		{name: "synchronized", wait: waitsFor(trace.FutexWaitBitset, 0, false), says: "waiting for a mutex that other 2 held", kind: "mutex", cause: Locked, confidence: Seen,
			user: []string{"__futex_abstimed_wait_common64+0x1", "pthread_cond_wait+0x2", "PlatformEvent::park()+0x9 (libjvm.so)", "ObjectMonitor::EnterI(JavaThread*)+0x1", "ObjectMonitor::enter(JavaThread*)+0x1", "SharedRuntime::monitor_enter_helper(oopDesc*)+0x1"}},
		{name: "Object.wait", wait: waitsFor(trace.FutexWaitBitset, 0, false), says: "on a condition variable until other 2 woke it", kind: "condition", cause: Task, confidence: Seen,
			user: []string{"pthread_cond_wait+0x2", "PlatformEvent::park()+0x9 (libjvm.so)", "ObjectMonitor::wait(long, bool, JavaThread*)+0x1"}},
		{name: "a safepoint of Java", wait: waitsFor(trace.FutexWait, 2, false), both: true, says: "stopped at a safepoint until other 2 let it go on", kind: "safepoint", cause: Task, confidence: Seen,
			user: []string{"syscall+0x19 (libc.so.6)", "LinuxWaitBarrier::wait+0x52 (libjvm.so)", "SafepointSynchronize::block+0x80 (libjvm.so)", "SafepointMechanism::process+0x70 (libjvm.so)", "ObjectMonitor::enter+0x1 (libjvm.so)"}},
		{name: "abseil", wait: waitsFor(trace.FutexWait, 0, false), says: "waiting for a mutex that other 2 held", kind: "mutex", cause: Locked, confidence: Seen,
			user: []string{"absl::lts_20230125::synchronization_internal::Waiter::Wait()+0x1", "absl::lts_20230125::Mutex::LockSlowWithDeadline()+0x1", "absl::lts_20230125::Mutex::Lock()+0x1"}},
		{name: "abseil, a condition", wait: waitsFor(trace.FutexWait, 0, false), says: "on a condition variable until other 2 woke it", kind: "condition", cause: Task, confidence: Seen,
			user: []string{"absl::lts_20230125::Mutex::LockSlowLoop()+0x1", "absl::lts_20230125::Mutex::LockWhen()+0x1"}},
		{name: "parking_lot", wait: waitsFor(trace.FutexWait, 1, false), says: "waiting for a mutex that other 2 held", kind: "mutex", cause: Locked, confidence: Seen,
			user: []string{"syscall+0x1", "parking_lot::raw_mutex::RawMutex::lock_slow+0x1"}},
		{name: "the mutex of a condition, after it was signalled", wait: waitsFor(trace.FutexWait, 2, false), says: "waiting for a mutex that other 2 held", kind: "mutex", cause: Locked, confidence: Seen,
			user: []string{"__lll_lock_wait+0x1", "pthread_mutex_lock+0x1", "pthread_cond_wait+0x2"}},
		{name: "a program that has a lock's name far out", wait: waitsFor(trace.FutexWait, 1, false), says: "on a futex", kind: "futex", cause: Task, confidence: Seen,
			user: append(make([]string, 16), "LWLockAcquire+0x1")},
		{name: "a name that begins otherwise", wait: waitsFor(trace.FutexWait, 1, false), says: "on a futex", kind: "futex", cause: Task, confidence: Seen,
			user: []string{"my_LWLockAcquire+0x1", "absl::lts_", "absl::lts_1"}},
		{name: "a condition that nobody signals", wait: waitsFor(trace.FutexWaitBitset, 0, false), unfinished: true,
			says: "waiting on a condition variable or a semaphore (for a futex that has not been woken yet)", kind: "condition_or_semaphore", cause: Task, confidence: Inferred},
		{name: "a stack of a hostile depth", wait: sleeps(202), user: append(make([]string, 100), "sem_wait"),
			says: "waiting on a futex", kind: "futex", cause: Task, confidence: Seen},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			s.swap(400, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0))
			also := c.wait
			switch {
			case c.apart:
				also.Futex = also.Futex.At(8)
			case c.old:
				c.wait.Futex = c.wait.Futex.At(-1)
				also = c.wait
			}
			s.swap(1000, 0, victim, 0, c.wait)
			s.swap(1100, 1, other, third, also).swap(1200, 1, third, other, also)
			s.swap(1500, 1, other, worker, trace.Switch{}).swap(10500, 1, worker, other, sleeps(0))
			o := Outlier{Rule: "r", Track: "offcpu", TID: victim, PID: victim, Comm: "victim", Start: 1_000_000, End: 11_000_000, User: c.user}
			if c.unfinished {
				o.Cause = "timeout"
			} else {
				s.wake(11000, 1, other, victim, 0)
			}
			if c.both {
				s.wake(11001, 1, other, third, 1)
			}
			if c.later {
				s.wake(12100, 1, other, third, 1)
			}
			if c.ends {
				s.swap(11050, 1, other, 0, trace.Switch{PrevState: taskDead})
			}
			r := explained(t, &s.list, []Outlier{o}, caseNames).Outliers[0]
			assert.Check(t, strings.Contains(r.Verdict, c.says), "%s", r.Verdict)
			assert.Check(t, r.Blame.Wait == c.kind && r.Blame.Cause == c.cause && r.Confidence == c.confidence, "%+v, %s", r.Blame, r.Confidence)
			assert.Check(t, c.cause == Locked || !strings.Contains(r.Advice, "lock") && !strings.Contains(r.Advice, "inversion"), "%s", r.Advice)
			assert.Check(t, c.kind != "pi_mutex" || !strings.Contains(r.Advice, "priority-inheriting"), "%s", r.Advice)
		})
	}
}
