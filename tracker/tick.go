package tracker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf"
)

// tickProgram is where the kernel side looks for pending work that is too old
// (bpf/tick.h): at any timer that expires, if 8 ms have passed.
const tickProgram = "hrtimer_expire_entry"

// chunkPlaces and maxChunks are how the tick divides a table (bpf/abi/abi.h).
const (
	chunkPlaces = 512 * 8
	maxChunks   = 1024
)

// pulse is timers that keep the tick going on a machine that is idle: two, as
// the CPU of one may be what is stuck.
type pulse struct {
	mu     sync.Mutex
	events []int     // perf events; none: no rule has a timeout
	seen   uint64    // ticks at the last look
	at     time.Time // of the last look that found some
}

// startPulse starts it if any rule has a timeout.
func (t *Tracker) startPulse() error {
	if !t.plan.timeouts {
		return nil
	}
	t.pulse.mu.Lock()
	defer t.pulse.mu.Unlock()
	return t.pulse.start()
}

// start makes timers of the kernel's CPU clock on the first and the last CPU.
// They expire also where the events themselves do not count, as on CPUs that
// some hypervisors idle. Under p.mu.
func (p *pulse) start() error {
	last, err := highestCPU("online")
	if err != nil {
		return err
	}
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64((4 * time.Millisecond).Nanoseconds()), // twice a tick: they do not fall together
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
	p.at = time.Now()
	return nil
}

// stop ends them. Under p.mu.
func (p *pulse) stop() error {
	var errs []error
	for _, fd := range p.events {
		errs = append(errs, unix.Close(fd))
	}
	p.events = nil
	return errors.Join(errs...)
}

// stopPulse ends it.
func (t *Tracker) stopPulse() error {
	t.pulse.mu.Lock()
	defer t.pulse.mu.Unlock()
	return t.pulse.stop()
}

// KeepTicking moves the timers of timeouts to other CPUs if theirs have gone
// offline. Once a second is often enough: timeouts are late by that much then.
func (t *Tracker) KeepTicking() error {
	t.pulse.mu.Lock()
	defer t.pulse.mu.Unlock()
	if len(t.pulse.events) == 0 {
		return nil
	}
	s, err := t.Tick()
	if err != nil {
		return err
	}
	const patience = 500 * time.Millisecond
	if s.Ticks != t.pulse.seen || time.Since(t.pulse.at) < patience {
		t.pulse.seen, t.pulse.at = s.Ticks, time.Now()
		return nil
	}
	if err := t.pulse.stop(); err != nil {
		return fmt.Errorf("stop the timers of timeouts: %w", err)
	}
	return t.pulse.start()
}

// TickStats are what the tick has done since New; zero without timeouts.
type TickStats struct {
	Ticks    uint64
	Scans    uint64 // parts of pending tables that were looked through
	Late     uint64 // timeouts reported more than 20 ms after their age
	LatestNS int64  // the most that one was late
	Cut      uint64 // ticks with more work than fits into one
}

// Tick reads what the tick has done.
func (t *Tracker) Tick() (TickStats, error) {
	v, ok := t.objects.Variables["ticker"]
	if !ok || !t.plan.timeouts {
		return TickStats{}, nil
	}
	var s bpf.TailcamTickState
	if err := v.Get(&s); err != nil {
		return TickStats{}, fmt.Errorf("read the state of the tick: %w", err)
	}
	return TickStats{Ticks: s.Ticks, Scans: s.Scans, Late: s.Late, LatestNS: int64(s.LatestNs), Cut: s.Truncated}, nil
}

// hasTaskKfuncs reports whether the kernel hands out a task by its id (6.2+).
func hasTaskKfuncs(kernel *btf.Spec) bool {
	var from, release *btf.Func
	return kernel.TypeByName("bpf_task_from_pid", &from) == nil && kernel.TypeByName("bpf_task_release", &release) == nil
}
