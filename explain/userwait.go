package explain

import "strings"

// waitFunction is a function in which threads wait, by its first words.
type waitFunction struct {
	prefix string
	wait   wait
}

// libraryWaits are those of libc and musl.
var libraryWaits = []waitFunction{
	{"pthread_mutex_", waitMutex},
	{"__pthread_mutex_", waitMutex},
	{"___pthread_mutex_", waitMutex},
	{"mtx_lock", waitMutex},
	{"mtx_timedlock", waitMutex},
	{"pthread_rwlock_", waitRWLock},
	{"__pthread_rwlock_", waitRWLock},
	{"___pthread_rwlock_", waitRWLock},
	{"__lll_lock_wait", waitMutex},
	{"pthread_cond_", waitCondition},
	{"__pthread_cond_", waitCondition},
	{"___pthread_cond_", waitCondition},
	{"cnd_wait", waitCondition},
	{"cnd_timedwait", waitCondition},
	{"sem_wait", waitSemaphore},
	{"sem_timedwait", waitSemaphore},
	{"sem_clockwait", waitSemaphore},
	{"__new_sem_wait", waitSemaphore},
	{"pthread_barrier_wait", waitBarrier},
	{"__pthread_barrier_wait", waitBarrier},
	{"___pthread_barrier_wait", waitBarrier},
	{"pthread_join", waitJoin},
	{"__pthread_clockjoin", waitJoin},
	{"__pthread_timedjoin", waitJoin}, // musl, and older glibc
	{"___pthread_join", waitJoin},
	{"pthread_timedjoin", waitJoin},
	{"pthread_clockjoin", waitJoin},
	{"thrd_join", waitJoin},
}

// programWaits are those of programs and runtimes that make locks of semaphores and conditions:
// what the library calls such a wait is not what it is.
var programWaits = []waitFunction{
	{"ObjectMonitor::enter", waitMutex}, // HotSpot: synchronized
	{"ObjectMonitor::wait", waitCondition},
	{"LWLockAcquire", waitMutex}, // PostgreSQL
	{"parking_lot::raw_mutex::RawMutex::lock", waitMutex},
	{"parking_lot::raw_rwlock::RawRwLock::lock", waitRWLock},
	{"parking_lot::condvar::Condvar::wait", waitCondition},
	{"std::sys::sync::mutex::futex::Mutex::lock", waitMutex},
	{"std::sys::sync::rwlock::futex::RwLock::", waitRWLock},
	{"std::sys::sync::condvar::futex::Condvar::wait", waitCondition},
	{"absl::Mutex::LockWhen", waitCondition},
	{"absl::Mutex::Await", waitCondition},
	{"absl::Mutex::Lock", waitMutex},
	{"absl::Mutex::ReaderLock", waitMutex},
	{"absl::CondVar::Wait", waitCondition},
	{"runtime.lock2", waitMutex},      // Go: a lock of the runtime
	{"runtime.notesleep", waitParked}, // a thread without a goroutine to run, or with one that waits
	{"runtime.notetsleep", waitParked},
}

// stopWaits are those in which a runtime stops a thread, whatever it waited for before that.
var stopWaits = []waitFunction{
	{"SafepointSynchronize::block", waitSafepoint}, // HotSpot: all threads of a Java VM
}

// How many frames above the system call are looked at: a mutex is also taken by what was called
// much further out.
const (
	libraryWaitDepth = 6
	programWaitDepth = 16
)

// userWait returns what a user stack waits for, or waitAny: by a function that stops threads, by
// the outermost one of a program that makes locks, as that says what the others are for, or by
// the innermost of a library.
func userWait(stack []string) wait {
	for _, f := range stack[:min(len(stack), libraryWaitDepth)] {
		if k := waitIn(stopWaits, f); k != waitAny {
			return k
		}
	}
	for i := min(len(stack), programWaitDepth) - 1; i >= 0; i-- {
		if k := waitIn(programWaits, plainName(stack[i])); k != waitAny {
			return k
		}
	}
	for _, f := range stack[:min(len(stack), libraryWaitDepth)] {
		if k := waitIn(libraryWaits, f); k != waitAny {
			return k
		}
	}
	return waitAny
}

func waitIn(list []waitFunction, frame string) wait {
	for i := range list {
		if strings.HasPrefix(frame, list[i].prefix) {
			return list[i].wait
		}
	}
	return waitAny
}

// plainName is a frame without the version of abseil, which is a namespace: absl::lts_20230125.
func plainName(frame string) string {
	rest, ok := strings.CutPrefix(frame, "absl::lts_")
	if !ok {
		return frame
	}
	_, rest, _ = strings.Cut(rest, "::")
	return "absl::" + rest
}
