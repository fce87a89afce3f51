package linux

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Timer slack of tasks (prctl(2), PR_SET_TIMERSLACK): how much later than asked for the
// kernel may end a sleep.
const (
	// OrdinarySlack is what the kernel gives init, and so everybody who asks for nothing.
	OrdinarySlack = 50 * time.Microsecond
	// LazySlack is what the daemon and its helpers have. While any goroutine is in a system
	// call, the runtime of Go looks after it each 20 µs on a thread of its own: with the
	// ordinary slack that was a quarter of what many outliers cost.
	LazySlack = time.Millisecond
)

// SetTimerSlack sets the timer slack of the calling thread. Threads and processes that it
// starts afterwards inherit it, also across execve(2).
func SetTimerSlack(slack time.Duration) error {
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0)
}

// RelaxTimers gives this whole process LazySlack. The thread that needs it has begun before
// main, so the program is executed anew, once: RelaxTimers returns if it need not be, or
// cannot be. Call it before anything is open that execve(2) would close. A slack that was
// set by whoever started the process, such as TimerSlackNSec= of systemd, stays.
func RelaxTimers() error {
	have, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || time.Duration(have) != OrdinarySlack {
		return err
	}
	if err := SetTimerSlack(LazySlack); err != nil {
		return err
	}
	path, err := os.Executable() // not /proc/self/exe, which would be its name to everybody
	if err != nil {
		return err
	}
	if err := syscall.Exec(path, os.Args, os.Environ()); err != nil { //nolint:gosec // this program
		return &os.PathError{Op: "exec", Path: path, Err: err}
	}
	return nil
}
