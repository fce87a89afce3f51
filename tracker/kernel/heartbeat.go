package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
)

// tickProgram is where the kernel side looks for pending work that is too old
// (bpf/tick.h): at any timer that expires, if 8 ms have passed.
const tickProgram = "hrtimer_expire_entry"

// seedTasksProgram notes who waits already where timeouts are new (bpf/tailcam.bpf.c).
const seedTasksProgram = "seed_tasks"

// heartbeat is timers that keep the tick going on a machine that is idle: two, as
// the CPU of one may be what is stuck. It rests while no timeout can be due.
type heartbeat struct {
	mu     sync.Mutex
	on     bool          // started and not stopped
	events []int         // perf events; none while on: it rests, or they could not be made
	period time.Duration // of each
	seen   uint64        // ticks at the last check
	at     time.Time     // of the last check that found some

	rests atomic.Bool // until KeepTicking finds that a timeout may come; read without mu
}

// Each beat interrupts a CPU, which may sleep or wait for a disk: they are as rare
// as the timeouts allow. The least is twice a tick, as they do not fall together;
// the most keeps a timeout from being late (LATE_NS in bpf/lib/timeout_scan.h).
const (
	leastPeriod = 4 * time.Millisecond
	mostPeriod  = 16 * time.Millisecond
	beats       = 128 // of the shortest timeout
)

// In ns; see bpf/abi/table.h.
const (
	look      = abi.LookMs * uint64(time.Millisecond)
	looksFrom = abi.LooksFromMs * uint64(time.Millisecond)
)

// shortestTimeout returns that of all rules, and that of rules for interrupts, in ns.
func (o *Objects) shortestTimeout() (shortest, interrupts uint64, err error) {
	var tables [abi.TimeoutTables]uint64
	if err := errors.Join(o.Vars.TimeoutLeast.Get(&tables), o.Vars.TimeoutInterrupts.Get(&interrupts)); err != nil {
		return 0, 0, fmt.Errorf("read the shortest timeout: %w", err)
	}
	return min(slices.Min(tables[:]), interrupts), interrupts, nil
}

// periodFor takes ns.
func periodFor(shortest uint64) time.Duration {
	return time.Duration(min(max(shortest/beats, uint64(leastPeriod)), uint64(mostPeriod)))
}

// StartHeartbeat starts it if any rule has a timeout, unless it goes already.
func (o *Objects) StartHeartbeat() error {
	if !o.Plan().Timeouts {
		return nil
	}
	o.heartbeat.mu.Lock()
	defer o.heartbeat.mu.Unlock()
	o.heartbeat.on = true
	if len(o.heartbeat.events) > 0 {
		return nil
	}
	shortest, _, err := o.shortestTimeout()
	if err != nil {
		return err
	}
	return o.heartbeat.start(periodFor(shortest))
}

// start makes timers of the kernel's CPU clock on the first and the last CPU.
// They expire also where the events themselves do not count, as on CPUs that
// some hypervisors idle. Under p.mu.
func (p *heartbeat) start(period time.Duration) error {
	p.rests.Store(false)
	last, err := highestCPU("online")
	if err != nil {
		return err
	}
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(period.Nanoseconds()),
	}
	for _, cpu := range slices.Compact([]int{0, last}) {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) && cpu != last {
			continue // the first one is offline
		}
		if err != nil {
			return errors.Join(fmt.Errorf("make the timer of timeouts on CPU %d: %w", cpu, err), p.stop())
		}
		p.events = append(p.events, fd)
	}
	p.period, p.at = period, time.Now()
	return nil
}

// stop ends them. Under p.mu.
func (p *heartbeat) stop() error {
	var errs []error
	for _, fd := range p.events {
		errs = append(errs, unix.Close(fd))
	}
	p.events = nil
	return errors.Join(errs...)
}

// stopHeartbeat ends it.
func (o *Objects) stopHeartbeat() error {
	o.heartbeat.mu.Lock()
	defer o.heartbeat.mu.Unlock()
	o.heartbeat.on = false
	return o.heartbeat.stop()
}

// KeepTicking moves the timers of timeouts to other CPUs if theirs have gone
// offline, makes them as frequent as the rules of now want, and tries again if that
// failed (no descriptors, a CPU that has just gone). They rest until the next call
// where no timeout can be due by then. To be called once a second: timeouts are late
// by that much at most if a call is.
func (o *Objects) KeepTicking() error {
	o.heartbeat.mu.Lock()
	defer o.heartbeat.mu.Unlock()
	if !o.heartbeat.on {
		return nil
	}
	shortest, interrupts, err := o.shortestTimeout()
	if err != nil {
		return err
	}
	var s abi.TickState
	var generation uint32
	if err := errors.Join(o.Vars.Ticker.Get(&s), o.Vars.Generation.Get(&generation)); err != nil {
		return fmt.Errorf("read the state of the tick: %w", err)
	}
	period := periodFor(shortest)
	switch {
	case interrupts == abi.Never && shortest >= looksFrom && s.Generation == generation && s.SoonestNs >= linux.Monotonic()+look:
		if err := o.heartbeat.stop(); err != nil {
			return fmt.Errorf("have the timers of timeouts rest: %w", err)
		}
		o.heartbeat.rests.Store(true)
		return nil
	case len(o.heartbeat.events) == 0:
		return o.heartbeat.start(period)
	}
	const patience = 500 * time.Millisecond
	if s.Ticks != o.heartbeat.seen || time.Since(o.heartbeat.at) < patience {
		o.heartbeat.seen, o.heartbeat.at = s.Ticks, time.Now()
		if period == o.heartbeat.period {
			return nil
		}
	}
	if err := o.heartbeat.stop(); err != nil {
		return fmt.Errorf("stop the timers of timeouts: %w", err)
	}
	return o.heartbeat.start(period)
}

// TickStats are what the tick has done since New; zero without timeouts.
type TickStats struct {
	Ticks    uint64
	Scans    uint64 // parts of pending tables that were looked through
	Late     uint64 // timeouts reported more than 20 ms after their age
	LatestNS int64  // the most that one was late
	Cut      uint64 // ticks with more work than fits into one
	Rests    bool   // no timer is kept going for it, as no timeout can be due soon
}

// Tick reads what the tick has done.
func (o *Objects) Tick() (TickStats, error) {
	if !o.Plan().Timeouts {
		return TickStats{}, nil
	}
	var s abi.TickState
	if err := o.Vars.Ticker.Get(&s); err != nil {
		return TickStats{}, fmt.Errorf("read the state of the tick: %w", err)
	}
	return TickStats{
		Ticks: s.Ticks, Scans: s.Scans, Late: s.Late, LatestNS: int64(s.LatestNs), Cut: s.Truncated,
		Rests: o.heartbeat.rests.Load(),
	}, nil
}

// hasTaskKfuncs reports whether the kernel hands out a task by its id (6.2+).
func hasTaskKfuncs(kernel *btf.Spec) bool {
	var from, release *btf.Func
	return kernel.TypeByName("bpf_task_from_pid", &from) == nil && kernel.TypeByName("bpf_task_release", &release) == nil
}
