package disturbance

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	period = 200 * time.Millisecond // between two samples
	scan   = 5                      // samples between two looks at all processes, which cost more
	nap    = 20 * time.Millisecond  // of the thread that measures how late it wakes
	grace  = 2 * time.Millisecond   // by which it is late on a machine that has its CPUs
)

// Witness samples the machine until it is stopped. It is safe for concurrent use.
type Witness struct {
	cpus  int
	late  atomic.Int64 // ns since the last sample
	done  chan struct{}
	ended sync.WaitGroup

	mu      sync.Mutex
	samples []sample
}

// Start samples the machine. Processes that do not descend from this one are others.
func Start() (*Witness, error) { return start(os.Getpid()) }

func start(root int) (*Witness, error) {
	before, err := readStat()
	if err != nil {
		return nil, fmt.Errorf("watch the machine: %w", err)
	}
	w := &Witness{cpus: runtime.NumCPU(), done: make(chan struct{})}
	processes := newProcesses(root)
	w.ended.Go(w.sleep)
	w.ended.Go(func() {
		last := time.Now()
		var samples []sample
		for {
			select {
			case <-w.done:
				return
			case <-time.After(period):
			}
			times, err := readStat()
			if err != nil {
				continue
			}
			now := time.Now()
			samples = append(samples, sample{
				// Tests are stamped by the wall clock, which may have been set meanwhile.
				Span:   Span{now.Add(-now.Sub(last)).Round(0), now.Round(0)},
				stolen: times.stolen - before.stolen, idle: times.idle - before.idle,
				late: time.Duration(w.late.Swap(0)),
			})
			if len(samples) == scan {
				w.add(samples, processes.others())
				samples = nil
			}
			before, last = times, now
		}
	})
	return w, nil
}

// Stop ends the sampling.
func (w *Witness) Stop() {
	close(w.done)
	w.ended.Wait()
}

// add spreads what others used evenly over the samples.
func (w *Witness) add(samples []sample, others time.Duration) {
	for i := range samples {
		samples[i].others = others / time.Duration(len(samples))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, samples...)
}

// sleep naps on a thread of the highest priority, and adds up how late it wakes.
func (w *Witness) sleep() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 99,
	}
	if unix.SchedSetAttr(0, &attr, 0) != nil {
		return
	}
	defer func() { _ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0) }() // lowering is allowed
	for due := monotonic(); ; {
		select {
		case <-w.done:
			return
		default:
		}
		due += nap
		until := unix.NsecToTimespec(int64(due))
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil)
		now := monotonic()
		if late := now - due; late > grace {
			w.late.Add(int64(late))
		}
		due = max(due, now-nap)
	}
}

func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // exists everywhere
	return time.Duration(now.Nano())
}

// Between judges the spans. It waits for the samples that have the end of the last one.
func (w *Witness) Between(spans ...Span) Account {
	for begin := time.Now(); !w.covers(spans) && time.Since(begin) < 2*scan*period; {
		time.Sleep(period / 2)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return account(w.samples, w.cpus, spans...)
}

func (w *Witness) covers(spans []Span) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, span := range spans {
		if len(w.samples) == 0 || w.samples[len(w.samples)-1].To.Before(span.To) {
			return false
		}
	}
	return true
}

// Calm waits until nothing disturbed the last second, but not longer than the limit.
func (w *Witness) Calm(limit time.Duration) {
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(period) {
		now := time.Now().Round(0)
		if last := w.Between(Span{now.Add(-window), now}); !last.Disturbed {
			return
		}
	}
}
