// Package flight reads the recorder's rings, of either backend. The kernel
// side writes; what is frozen is read here, and nothing else is.
package flight

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker"
)

// Backends of the recorder.
const (
	BackendMmap = "mmap" // plain memory shared with the kernel side
	BackendPerf = "perf" // the kernel's perf ring buffers in overwrite mode
)

// Kernel is what the recorder needs of the kernel side.
type Kernel interface {
	// Banks are the two perf event arrays that the backend perf fills in.
	Banks() [2]*ebpf.Map
	// Records are the rings of the backend mmap, and how many records one holds.
	Records() (rings *ebpf.Map, ring int)
	// Freeze switches banks unless that has happened already; which one is
	// frozen, and since when in CLOCK_MONOTONIC nanoseconds.
	Freeze() (since uint64, bank int, err error)
	Release() error
	// Recorded reads the recorder's counters, one element a possible CPU.
	Recorded() ([]tracker.CPUCounters, error)
}

// Recorder is a recorder at work, of either backend.
type Recorder interface {
	snapshot.Recorder
	// Sample notes the counters, for Coverage; call it about once a second.
	Sample() error
	// Capacity is the number of records that one CPU's ring of one bank holds.
	Capacity() int
	// Size is the memory of one CPU's ring of one bank in bytes.
	Size() int
	// Close removes the rings; the kernel side must have stopped by then.
	Close() error
}

// New opens the recorder of a kernel side that was loaded for the backend:
// with tracker.Options.Ring for mmap, without for perf.
func New(kernel Kernel, backend string, size int) (Recorder, error) {
	switch backend {
	case BackendMmap:
		return NewMmap(kernel)
	case BackendPerf:
		return NewPerf(kernel, size)
	default:
		return nil, fmt.Errorf("recorder backend %q: allowed are %s and %s", backend, BackendMmap, BackendPerf)
	}
}

// settle is how long a program that was writing into a bank when it was
// frozen may take to finish. Programs run with preemption off.
const settle = 2 * time.Millisecond

// common is what both backends share.
type common struct {
	kernel   Kernel
	cover    *coverage
	frozen   int // bank; -1: none
	frozenAt time.Time
}

// Freeze implements snapshot.Recorder.
func (c *common) Freeze() (uint64, error) {
	since, bank, err := c.kernel.Freeze()
	if err != nil {
		return 0, err
	}
	if c.frozen != bank {
		c.frozen, c.frozenAt = bank, time.Now()
	}
	return since, nil
}

// settled waits until nothing writes into the frozen bank any more.
func (c *common) settled() error {
	if c.frozen < 0 {
		return fmt.Errorf("drain the recorder: no bank is frozen")
	}
	if wait := settle - time.Since(c.frozenAt); wait > 0 {
		time.Sleep(wait)
	}
	return nil
}

// Release implements snapshot.Recorder.
func (c *common) Release() error {
	c.frozen = -1
	return c.kernel.Release()
}

// Sample implements Recorder.
func (c *common) Sample() error {
	cpus, err := c.kernel.Recorded()
	if err != nil {
		return err
	}
	c.cover.sample(time.Now(), cpus)
	return nil
}

// Coverage implements snapshot.Recorder. It may be called at any time.
func (c *common) Coverage() []snapshot.Coverage {
	cpus, err := c.kernel.Recorded()
	if err != nil {
		return nil // the kernel side is closed
	}
	return c.cover.report(time.Now(), cpus)
}
