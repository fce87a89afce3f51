package snapshot

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// What a raised thread has, as far as the kernel permits. SCHED_RR runs before all ordinary
// threads. Niceness -20 is the largest share that one of these can have: beside a hundred
// that are runnable, half of a CPU. From kernel 6.12 on, a short slice makes it the next to
// run when it wakes up (857b158dc5e8 "sched/eevdf: Use sched_attr::sched_runtime to set
// request/slice suggestion"); older ones ignore it.
const (
	raisedNice     = -20
	raisedSlice    = 100 * time.Microsecond
	raisedPriority = 1 // of SCHED_RR
)

var (
	raisedShare    = unix.SchedAttr{Policy: unix.SCHED_NORMAL, Nice: raisedNice, Runtime: uint64(raisedSlice.Nanoseconds())}
	raisedRealTime = unix.SchedAttr{Policy: unix.SCHED_RR, Priority: raisedPriority}
)

// The process may use a quarter of one CPU while it is raised, of which it may save two
// seconds.
const (
	boostShare = 4
	boostSaved = 2 * time.Second
)

// boostAgain is how often threads that have begun since are raised. They start with ordinary
// priority, and one that a snapshot waits for may not get a CPU for a second.
const boostAgain = time.Millisecond

// boostPoll is how often the CPU time of a raised process is looked at, at least.
const boostPoll = 5 * time.Millisecond

// Boost raises the priority of all threads of this process on an overloaded machine while
// snapshots are collected and written, and gives it back: with hundreds of runnable tasks each
// step from one thread to the next would wait for its turn. They have SCHED_RR, or where that
// is not permitted niceness -20. On other machines they get their CPU soon enough, and would
// only make others late. Threads with another niceness than the process's, or
// another scheduling class, are left as they are. Child processes start with niceness 0,
// whatever their parent has.
//
// Its methods may be called concurrently, and on nil, which raises nothing. It needs
// CAP_SYS_NICE or RLIMIT_NICE of 40, and for SCHED_RR CAP_SYS_NICE or RLIMIT_RTPRIO.
type Boost struct {
	limit    time.Duration
	realTime bool // is permitted

	now        func() time.Time
	cpu        func() time.Duration // of the process
	overloaded func() bool

	mu       sync.Mutex
	users    int                     // starts without their end
	to       unix.SchedAttr          // what raised threads have
	raised   map[int]*unix.SchedAttr // threads, and what they had; nil: not raised
	since    time.Duration           // b.cpu then
	most     time.Duration           // CPU time for which it may be raised now
	timer    *time.Timer
	again    *time.Timer
	saved    time.Duration // CPU time for which it may be raised
	counted  time.Time     // saved is as of then
	baseNice int32
	stats    BoostStats
}

// BoostStats is what a Boost does and has done.
type BoostStats struct {
	RealTime  bool          // raised threads have SCHED_RR; else niceness -20
	Raised    bool          // now
	Completed uint64        // times it was raised until the snapshots were complete
	Expired   uint64        // times it gave back earlier, at its limit
	Refused   uint64        // times it was not raised on an overloaded machine: it had been for too much of the time
	CPU       time.Duration // CPU time of the process while it was raised
}

// Stats returns what it does and has done. It must not be called on nil.
func (b *Boost) Stats() BoostStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.RealTime, s.Raised = b.realTime, b.raised != nil
	if s.Raised {
		s.CPU += b.cpu() - b.since
	}
	return s
}

// NewBoost returns a Boost that gives back after limit of CPU time at the latest: what waits
// for a disk takes nothing from others. The error says what the kernel does not permit.
func NewBoost(limit time.Duration) (*Boost, error) {
	base, err := unix.SchedGetAttr(os.Getpid(), 0)
	if err != nil {
		return nil, fmt.Errorf("read the scheduling attributes: %w", err)
	}
	if base.Policy != unix.SCHED_NORMAL || base.Nice > 0 {
		return nil, fmt.Errorf("the daemon was given a low priority: policy %d, niceness %d", base.Policy, base.Nice)
	}
	b := &Boost{limit: limit, now: time.Now, cpu: ownCPU, overloaded: new(linux.Load).Overloaded, saved: boostSaved, baseNice: base.Nice}
	may := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // it ends with this goroutine
		err := setAttr(0, raisedShare)
		b.realTime = setAttr(0, raisedRealTime) == nil
		may <- err
	}()
	if err := <-may; errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("set niceness %d: %w (needs CAP_SYS_NICE or LimitNICE=%d)", raisedNice, err, raisedNice)
	} else if err != nil {
		return nil, fmt.Errorf("set niceness %d: %w", raisedNice, err)
	}
	return b, nil
}

// setAttr sets the scheduling attributes of one thread; 0: the calling one. Its children
// start with niceness 0; only CAP_SYS_NICE may take that back.
func setAttr(tid int, a unix.SchedAttr) error {
	a.Size, a.Flags = unix.SizeofSchedAttr, unix.SCHED_FLAG_RESET_ON_FORK
	return unix.SchedSetAttr(tid, &a, 0)
}

// Prompt locks the calling goroutine to its thread, which has niceness -20 until it ends
// with the goroutine: for those that outliers and the recorder wait for.
func (b *Boost) Prompt() {
	if b == nil {
		return
	}
	runtime.LockOSThread()
	_ = setAttr(0, raisedShare) // NewBoost has tried; it keeps the ordinary priority
}

// Overloaded reports whether the machine is, if it matters: without a Boost, it does not.
// One snapshot asks several times, for one reading.
func (b *Boost) Overloaded() bool { return b != nil && b.overloaded() }

// Start raises the process until as many calls of End, or the limit. It does nothing if the
// machine is not overloaded, or the process was raised for too much of the time.
func (b *Boost) Start() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users++; b.raised != nil {
		return
	}
	b.count()
	if !b.overloaded() {
		return
	}
	if b.most = min(b.limit, b.saved); b.most <= 0 {
		b.stats.Refused++
		return
	}
	b.to = raisedShare
	if b.realTime {
		b.to = raisedRealTime
	}
	b.raised, b.since = make(map[int]*unix.SchedAttr), b.cpu()
	b.raiseAll()
	b.timer = time.AfterFunc(max(b.most/time.Duration(runtime.NumCPU()), boostPoll), b.expire)
	b.again = time.AfterFunc(boostAgain, b.raiseAgain)
}

// Refresh raises threads that have begun since, if the process is raised; it reports
// whether it is.
func (b *Boost) Refresh() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.raised == nil {
		return false
	}
	b.raiseAll()
	return true
}

// End ends what one Start has begun.
func (b *Boost) End() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 && b.raised != nil {
		b.stats.Completed++
		b.giveBack()
	}
}

func (b *Boost) raiseAgain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.raised == nil {
		return
	}
	b.raiseAll()
	b.again.Reset(boostAgain)
}

func (b *Boost) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.raised == nil {
		return
	}
	if left := b.most - (b.cpu() - b.since); left > 0 { // or the timer is that of an earlier one
		b.timer.Reset(max(left/time.Duration(runtime.NumCPU()), boostPoll))
		return
	}
	b.stats.Expired++
	b.giveBack()
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration { return linux.ProcessCPU(os.Getpid()) }

// count brings up to date for how much CPU time the process may be raised.
func (b *Boost) count() {
	now := b.now()
	if !b.counted.IsZero() {
		b.saved = min(b.saved+now.Sub(b.counted)/boostShare, boostSaved)
	}
	b.counted = now
}

func (b *Boost) raiseAll() {
	for _, tid := range ownThreads() {
		if b.raised[tid] != nil {
			continue
		}
		before, err := unix.SchedGetAttr(tid, 0)
		prompt := err == nil && before.Nice == raisedNice && b.to.Policy == unix.SCHED_RR
		if err != nil || before.Policy != unix.SCHED_NORMAL || before.Nice != b.baseNice && !prompt {
			continue // has ended, or is not ours to change
		}
		if setAttr(tid, b.to) == nil {
			b.raised[tid] = before
		}
	}
}

// giveBack gives raised threads back what they had, unless they have changed it themselves.
func (b *Boost) giveBack() {
	b.timer.Stop()
	b.again.Stop()
	used := b.cpu() - b.since
	b.saved -= used
	b.stats.CPU += used
	b.counted = b.now()
	for tid, before := range b.raised {
		now, err := unix.SchedGetAttr(tid, 0)
		if err == nil && now.Policy == b.to.Policy && (now.Nice == b.to.Nice || now.Policy == unix.SCHED_RR) {
			_ = setAttr(tid, *before) // it has ended
		}
	}
	b.raised = nil
}

// ownThreads lists the threads of this process.
func ownThreads() []int {
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // some are better than none
	tids := make([]int, 0, len(names))
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}
