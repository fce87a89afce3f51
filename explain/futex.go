package explain

import (
	"strings"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// wait is what a task waits for where one cause, or one system call, is of several kinds.
type wait uint8

const (
	waitAny wait = iota
	waitMutex
	waitRWLock
	waitMutexOrRWLock
	waitPIMutex
	waitCondition
	waitNotify
	waitJoin
	waitStart
	waitBarrier
	waitSemaphore
	waitParked
	waitSafepoint
	waitFutex
	waitSignal
	waitTimeLimit
	waitNoAnswer
	waitAlarm
	waitTimerFD
	waitSYN
	waitDataAgain
	waitDelayedACK
	waitWindowProbe
	waitCorked
	waitSYNACK
	waitKeepAlive
	waitProtocol
	waitDirtyPages
	waitIOLimit
	waitIODelay
	waitMemoryHigh
	waitRTRuntime
	waitDLRuntime
	waitMemoryMax
	waitDelay
	waitQueueFull
	waitWBT
	waitIOLatency
	waitQdisc
	waitPacing
	waitKernelMutex
	waitKernelRead
	waitKernelWrite
	waitKernelRT
	waitKernelSpin
	waitKernelLock
	waitFileLock
)

// waits says what each is called in JSON and to people.
var waits = [...]struct{ name, words string }{
	waitAny:           {"", "a lock"},
	waitMutex:         {"mutex", "a mutex"},
	waitRWLock:        {"rwlock", "a readers-writer lock"},
	waitMutexOrRWLock: {"mutex_or_rwlock", "a mutex or a readers-writer lock"},
	waitPIMutex:       {"pi_mutex", "a priority-inheriting mutex"},
	waitCondition:     {"condition", "on a condition variable"},
	waitNotify:        {"condition_or_semaphore", "on a condition variable or a semaphore"},
	waitJoin:          {"join", "for the end of a thread"},
	waitStart:         {"start", "to be started"},
	waitBarrier:       {"barrier", "at a barrier"},
	waitSemaphore:     {"semaphore", "on a semaphore"},
	waitParked:        {"parked", "parked in a queue"},
	waitSafepoint:     {"safepoint", "at a safepoint"},
	waitFutex:         {"futex", "on a futex"},
	waitSignal:        {"signal", "a signal"},
	waitTimeLimit:     {"time_limit", "its own time limit"},
	waitNoAnswer:      {"no_answer", "an answer, until its own time limit"},
	waitAlarm:         {"alarm", "a signal that its process had set a timer for"},
	waitTimerFD:       {"timerfd", "a timerfd"},
	waitSYN:           {"syn_again", "TCP sent the SYN again"},
	waitDataAgain:     {"data_again", "TCP sent data again"},
	waitDelayedACK:    {"delayed_ack", "TCP sent a delayed acknowledgement"},
	waitWindowProbe:   {"window_probe", "a zero-window probe of TCP"},
	waitCorked:        {"corked", "TCP sent what its sender had held back"},
	waitSYNACK:        {"synack_again", "TCP sent the SYN-ACK again"},
	waitKeepAlive:     {"keep_alive", "the keep-alive timer of TCP"},
	waitProtocol:      {"protocol", "a timer of TCP"},
	waitDirtyPages:    {"dirty_pages", "the limit of dirty pages"},
	waitIOLimit:       {"io_max", "the limit io.max"},
	waitIODelay:       {"io_delay", "the I/O controller"},
	waitMemoryHigh:    {"memory_high", "the limit memory.high"},
	waitRTRuntime:     {"rt_runtime", "the limit of real-time tasks (sched_rt_runtime_us or the fair server)"},
	waitDLRuntime:     {"dl_runtime", "its own runtime of SCHED_DEADLINE, which was used up or given back for the period"},
	waitMemoryMax:     {"memory_max", "the limit memory.max"},
	waitDelay:         {"kernel_delay", "a delay of the kernel"},
	waitQueueFull:     {"queue_full", "a place in the queue of a disk"},
	waitWBT:           {"wbt", "writeback throttling"},
	waitIOLatency:     {"io_latency", "the limit io.latency"},
	waitQdisc:         {"qdisc", "a queueing discipline: tc -s qdisc"},
	waitPacing:        {"pacing", "the pacing of TCP: ss -ti"},
	waitKernelMutex:   {"kernel_mutex", "a mutex of the kernel"},
	waitKernelRead:    {"kernel_rwsem_read", "a lock of the kernel, as a reader,"},
	waitKernelWrite:   {"kernel_rwsem_write", "a lock of the kernel, as a writer,"},
	waitKernelRT:      {"kernel_rt_mutex", "an rt_mutex of the kernel"},
	waitKernelSpin:    {"kernel_spinlock", "a spinlock of the kernel"},
	waitKernelLock:    {"kernel_lock", "a lock of the kernel"},
	waitFileLock:      {"file_lock", "a lock of a file"},
}

// waitOf returns the wait of a name in JSON.
func waitOf(name string) wait {
	for i := range waits {
		if waits[i].name == name {
			return wait(i)
		}
	}
	return waitAny
}

// Flags of contention_begin: LCB_F_* in the kernel's include/trace/events/lock.h.
const (
	lockSpin  = 1
	lockRead  = 2
	lockWrite = 4
	lockRT    = 8
	lockMutex = 32
)

// lockKind returns the kind of a kernel lock by its flags.
func lockKind(flags uint32) wait {
	switch {
	case flags&lockMutex != 0:
		return waitKernelMutex
	case flags&lockRT != 0:
		return waitKernelRT
	case flags&lockSpin != 0:
		return waitKernelSpin
	case flags&lockRead != 0:
		return waitKernelRead
	case flags&lockWrite != 0:
		return waitKernelWrite
	}
	return waitKernelLock
}

func isFutex(call string) bool { return call == "futex" || strings.HasPrefix(call, "futex_wait") }

// isFileLock reports whether a task that waits for another one in a system call waits for a
// lock of a file: in fcntl, with F_SETLKW or F_OFD_SETLKW, as all else there takes locks of the
// kernel or returns at once (do_fcntl of the kernel).
func isFileLock(call string) bool { return call == "flock" || call == "fcntl" || call == "fcntl64" }

// isLock reports whether somebody holds what is waited for.
func (w wait) isLock() bool {
	return w >= waitMutex && w <= waitPIMutex || w >= waitKernelMutex
}

// burstLimit is how long one system call may take to wake all who wait.
const burstLimit = 1_000_000

// futexKind returns what a futex is used for, and how that is known. Values are those of
// glibc: a mutex with waiters is 2, a rwlock that is held 2 or 3, a thread's is its id until it
// ends; conditions, semaphores, joins and rwlocks wait with a bitset, barriers and mutexes without,
// but for those of Rust.
func (w *walker) futexKind(t *task, full *segment) (wait, evidence) {
	if own := w.outlier; t.tid == own.TID && len(w.stack) == 1 && (own.Track == "offcpu" || isFutex(own.Syscall)) {
		if k := userWait(own.User); k != waitAny {
			return k, byRecords
		}
	}
	x, wk := full.futex, full.wake
	burst := wk != nil && wk.burst != nil && *wk.burst > 1
	switch {
	case !x.Known():
		return waitFutex, byRecords
	case x.Op() == trace.FutexLockPI:
		return waitPIMutex, byRecords
	case x.Value() == 2 && x.Op() == trace.FutexWaitBitset:
		return waitMutexOrRWLock, byFutexValue
	case x.Value() == 2:
		return waitMutex, byFutexValue
	case x.Value() == 3:
		return waitRWLock, byFutexValue
	case x.Op() == trace.FutexWaitRequeue:
		return waitCondition, byFutexOperation
	case x.Op() == trace.FutexWaitBitset && x.Shared() && wk != nil && wk.ctx == nil && w.m.ended(wk.tid, wk.at):
		return waitJoin, byThreadExit
	case x.Op() == trace.FutexWaitBitset && x.Shared() && x.Value() == trace.FutexOther:
		return waitJoin, byFutexValue
	case x.Op() == trace.FutexWaitBitset && burst:
		return waitCondition, byFutexOperation
	case x.Op() == trace.FutexWaitBitset:
		return waitNotify, byFutexOperation
	case burst:
		return waitBarrier, byFutexOperation
	case x.Value() == 0:
		return waitParked, byFutexOperation
	}
	return waitFutex, byRecords
}

// noteBurst counts what one task wakes at about one time of those that wait for one futex, as at a
// barrier; where the futex is not known, of those that wait for any.
func (m *model) noteBurst(c *cpu, ev *trace.Event, s *segment) {
	x := s.futex
	if !x.Known() || s.wake.ctx != nil {
		return
	}
	if x.Op() == trace.FutexWait && !x.Shared() && x.Place() < 0 {
		return // a trace that is older than places, and threads of Go wait so, each for its own
	}
	b := &c.burst
	if b.count == nil || b.tid != ev.TID || b.place != x.Place() || ev.Time-b.at > burstLimit {
		*b = burst{tid: ev.TID, at: ev.Time, place: x.Place(), count: new(int)}
	}
	*b.count++
	s.wake.burst = b.count
}

// exitLimit is how long a thread may take to end after it has woken who joins it.
const exitLimit = 10_000_000

// ended reports whether a task ended soon after a time.
func (m *model) ended(tid int, at uint64) bool {
	t := m.tasks[tid]
	if t == nil || len(t.segments) == 0 {
		return false
	}
	s := &t.segments[len(t.segments)-1]
	return s.state == blocked && s.bits&taskDead != 0 && s.from >= at && s.from-at < exitLimit
}

// futexWake explains a wait for a futex that another task has woken. Only what is known to
// be a lock had a holder.
func (w *walker) futexWake(p *piece, full *segment, name string) {
	p.wait, p.evidence = w.futexKind(w.m.task(p.task), full)
	if p.why == "" {
		p.why = "in " + name
	}
	if p.wait.isLock() {
		p.cause = Locked
	}
}
