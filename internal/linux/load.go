package linux

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// crowd is how many runnable tasks for each CPU make a machine overloaded: with slices of
// 3 ms, a task then waits for 25.
const crowd = 8

// Overloaded reports whether many more tasks want to run than there are CPUs, so that a
// process of ordinary priority does not answer soon. It reads /proc/loadavg (proc(5)).
func Overloaded() bool {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return false
	}
	fields := strings.Fields(string(text))
	if len(fields) < 4 {
		return false
	}
	running, _, _ := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(running)
	return err == nil && n > crowd*runtime.NumCPU()
}

// loadAge is how long an answer of Load holds.
const loadAge = 100 * time.Millisecond

// Load answers several who ask at about the same time with one reading. Its methods may be
// called concurrently.
type Load struct {
	mu         sync.Mutex
	read       time.Time
	overloaded bool
}

// Overloaded is the function of this name, of less than 100 ms ago.
func (l *Load) Overloaded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.read.IsZero() || now.Sub(l.read) >= loadAge {
		l.read, l.overloaded = now, Overloaded()
	}
	return l.overloaded
}

// niceZero is the value of RLIMIT_NICE that permits niceness 0 and no less (getrlimit(2)).
const niceZero = 20

// LimitPriority takes from this process, and those that it starts, what RLIMIT_NICE permits below
// niceness 0, and RLIMIT_RTPRIO at all: systemd's LimitNICE= and LimitRTPRIO= of a daemon hold for
// its children, too. It does not change the priority.
func LimitPriority() {
	LowerLimit(unix.RLIMIT_NICE, niceZero)
	LowerLimit(unix.RLIMIT_RTPRIO, 0)
}

// LowerLimit lowers a limit of this process (getrlimit(2)), the hard one, too, to at most
// that much. It keeps an existing lower limit, which root could raise.
func LowerLimit(resource int, most uint64) {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		return
	}
	l.Max = min(l.Max, most)
	l.Cur = min(l.Cur, l.Max)
	_ = unix.Setrlimit(resource, &l) // lowering is always allowed
}
