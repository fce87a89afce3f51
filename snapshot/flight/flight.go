// Package flight reads the recorder's rings, of either backend. The kernel
// side writes.
package flight

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
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
	// Ring tells what is where in a CPU's ring of the backend mmap.
	Ring(cpu int) tracker.Ring
	// Names are what a thread is and was called, the latest first.
	Names(tid int) []tracker.Name
	// Freezes counts the outliers whose history is kept.
	Freezes() (uint64, error)
	// Freeze switches the banks of the backend perf unless that has happened
	// already; which one is frozen, and since when in CLOCK_MONOTONIC nanoseconds.
	Freeze() (since uint64, bank int, err error)
	// Release gives up the frozen bank, or what was kept for the first so many freezes.
	Release(freezes uint64) error
	// Recorded reads the recorder's counters, one element a possible CPU.
	Recorded() []tracker.CPUCounters
}

// Recorder is a recorder at work, of either backend.
type Recorder interface {
	snapshot.Recorder
	// Sample notes the counters, for Coverage; call it about once a second.
	Sample()
	// Capacity is the number of records of history that one CPU's ring holds.
	Capacity() int
	// Size is the memory of one CPU's ring in bytes, of all its banks.
	Size() int
	// Close removes the rings; the kernel side must have stopped by then.
	Close() error
}

// Bytes is what so many records, and pairs of short ones, take in the rings of a backend.
func Bytes(backend string, records, pairs float64) float64 {
	if backend == BackendPerf {
		return records*perfRecord + pairs*2*perfShort
	}
	return (records + pairs) * trace.RecordSize
}

// Covers is how long a history a ring of size bytes holds at a rate of bytes
// a second: its size, less what is about to be overwritten or the bank that is
// not written, divided by the rate.
func Covers(backend string, size int, rate float64) time.Duration {
	const longest = 1000 * time.Hour
	kept := float64(size) / 2 // of two banks
	if backend == BackendMmap {
		kept = float64(size) * float64(abi.RingParts-1) / float64(abi.RingParts)
	}
	if s := kept / rate; s < longest.Seconds() {
		return time.Duration(s * float64(time.Second))
	}
	return longest
}

// New opens the recorder of a kernel side that was loaded for the backend:
// with tracker.Options.Ring for mmap, without for perf. The size is that of
// one CPU's ring in bytes; that of the backend mmap is fixed already.
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

// writeTime is how long a program that has read the clock may take to write its
// record. Programs run with preemption off.
const writeTime = 2 * time.Millisecond

// common is what both backends share.
type common struct {
	kernel   Kernel
	cover    *coverage
	frozenAt time.Time

	drained []uint64 // Recorded at the last drain, by CPU
}

// waitForWriters waits until nothing of before the freeze is still being written.
func (c *common) waitForWriters() {
	if wait := writeTime - time.Since(c.frozenAt); wait > 0 {
		time.Sleep(wait)
	}
}

// noteDrained keeps what Unread counts from.
func (c *common) noteDrained(cpus []tracker.CPUCounters) {
	c.drained = c.drained[:0]
	for i := range cpus {
		c.drained = append(c.drained, cpus[i].Recorded)
	}
}

// Unread implements snapshot.Recorder.
func (c *common) Unread() int {
	var most uint64
	for i, k := range c.kernel.Recorded() {
		n := k.Recorded
		if i < len(c.drained) {
			n -= c.drained[i]
		}
		most = max(most, n)
	}
	return int(min(most, 1<<62))
}

// Sample implements Recorder.
func (c *common) Sample() { c.cover.sample(time.Now(), c.kernel.Recorded()) }

// Coverage implements snapshot.Recorder. It may be called at any time until Close.
func (c *common) Coverage() []snapshot.Coverage {
	return c.cover.report(time.Now(), c.kernel.Recorded())
}
