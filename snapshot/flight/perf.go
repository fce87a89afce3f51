// Package flight reads the recorder's rings. It owns them: the kernel side
// writes into whatever rings stand in its two banks.
package flight

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// Kernel is what the recorder needs of the kernel side.
type Kernel interface {
	Banks() [2]*ebpf.Map
	// Freeze switches banks unless that has happened already; which one is
	// frozen, and since when in CLOCK_MONOTONIC nanoseconds.
	Freeze() (since uint64, bank int, err error)
	Release() error
	// Recorded reads the recorder's counters, one element a possible CPU.
	Recorded() ([]tracker.CPUCounters, error)
}

const (
	// perfRecord is what one record takes in a perf ring: header, length,
	// record, padded to 8 bytes.
	perfRecord = 80
	// settle is how long a program that was writing into a bank when it was
	// frozen may take to finish. Programs run with preemption off.
	settle = 2 * time.Millisecond
	// noWakeup keeps the kernel from interrupting itself for each record.
	noWakeup = 1 << 30
)

// Perf is the recorder over the kernel's perf ring buffers in overwrite mode.
// It implements snapshot.Recorder. Needs kernel 4.7+ for overwrite mode.
type Perf struct {
	kernel  Kernel
	size    int
	readers [2]*perf.Reader
	cover   *coverage

	frozen   int // bank; -1: none
	frozenAt time.Time

	closing sync.Mutex
}

// NewPerf makes two rings of size bytes for each CPU, rounded up to a power of
// two of pages, and hands them to the kernel side. From 4 MiB on it needs
// CAP_IPC_LOCK or root (perf_event_mlock_kb).
func NewPerf(kernel Kernel, size int) (*Perf, error) {
	p := &Perf{kernel: kernel, frozen: -1}
	for i, bank := range kernel.Banks() {
		r, err := perf.NewReaderWithOptions(bank, size, perf.ReaderOptions{
			Overwritable: true, WakeupEvents: noWakeup,
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make the recorder's rings of %d bytes a CPU: %w (consider lowering recorder.size)", size, err), p.Close())
		}
		p.readers[i] = r
	}
	p.size = p.readers[0].BufferSize()
	p.cover = newCoverage(uint64(p.Capacity()))
	return p, nil
}

// Capacity is the number of records that one CPU's ring of one bank holds.
func (p *Perf) Capacity() int { return p.size / perfRecord }

// Size is the memory of one CPU's ring of one bank in bytes.
func (p *Perf) Size() int { return p.size }

// Freeze implements snapshot.Recorder.
func (p *Perf) Freeze() (uint64, error) {
	since, bank, err := p.kernel.Freeze()
	if err != nil {
		return 0, err
	}
	if p.frozen != bank {
		p.frozen, p.frozenAt = bank, time.Now()
	}
	return since, nil
}

// Drain implements snapshot.Recorder. It pauses the frozen bank only, into
// which nothing is written any more.
func (p *Perf) Drain() (snapshot.Drained, error) {
	if p.frozen < 0 {
		return snapshot.Drained{}, errors.New("drain the recorder: no bank is frozen")
	}
	if wait := settle - time.Since(p.frozenAt); wait > 0 {
		time.Sleep(wait)
	}
	r := p.readers[p.frozen]
	if err := r.Pause(); err != nil {
		return snapshot.Drained{}, fmt.Errorf("pause the frozen bank: %w", err)
	}
	streams, err := drain(r)
	if resume := r.Resume(); resume != nil {
		err = errors.Join(err, fmt.Errorf("resume the bank: %w", resume))
	}
	return streams, err
}

// drain reads all rings of one bank. An overwritten ring is read newest first.
func drain(r *perf.Reader) (snapshot.Drained, error) {
	byCPU := map[int][]trace.Record{}
	r.SetDeadline(time.Unix(1, 0)) // in the past: do not wait for more
	var rec perf.Record
	for {
		err := r.ReadInto(&rec)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return snapshot.Drained{}, fmt.Errorf("read the frozen bank: %w", err)
		}
		if len(rec.RawSample) < trace.RecordSize {
			continue // a lost-samples record has none
		}
		byCPU[rec.CPU] = append(byCPU[rec.CPU], trace.Record(rec.RawSample[:trace.RecordSize]))
	}
	var d snapshot.Drained
	for cpu, records := range byCPU {
		slices.Reverse(records)
		d.CPUs = append(d.CPUs, snapshot.CPUStream{CPU: cpu, Records: records})
	}
	slices.SortFunc(d.CPUs, func(a, b snapshot.CPUStream) int { return a.CPU - b.CPU })
	return d, nil
}

// Release implements snapshot.Recorder.
func (p *Perf) Release() error {
	p.frozen = -1
	return p.kernel.Release()
}

// Sample notes the counters, for Coverage; call it about once a second.
func (p *Perf) Sample() error {
	cpus, err := p.kernel.Recorded()
	if err != nil {
		return err
	}
	p.cover.sample(time.Now(), cpus)
	return nil
}

// Coverage implements snapshot.Recorder. It may be called at any time.
func (p *Perf) Coverage() []snapshot.Coverage {
	cpus, err := p.kernel.Recorded()
	if err != nil {
		return nil // the kernel side is closed
	}
	return p.cover.report(time.Now(), cpus)
}

// Close removes the rings.
func (p *Perf) Close() error {
	p.closing.Lock()
	defer p.closing.Unlock()
	var errs []error
	for i, r := range p.readers {
		if r != nil {
			errs = append(errs, r.Close())
			p.readers[i] = nil
		}
	}
	return errors.Join(errs...)
}
