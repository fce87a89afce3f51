package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/perf"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

const (
	// perfRecord and perfShort are what a record takes in a perf ring: header, length,
	// record, padded to 8 bytes.
	perfRecord = (8 + 4 + trace.RecordSize + 7) &^ 7
	perfShort  = (8 + 4 + trace.ShortSize + 7) &^ 7
	// noWakeup keeps the kernel from interrupting itself for each record.
	noWakeup = 1 << 30
)

// Perf is the recorder over the kernel's perf ring buffers in overwrite mode.
// It implements snapshot.Recorder. Needs kernel 4.7+ for overwrite mode.
type Perf struct {
	common
	size    int // of both banks
	readers [2]*perf.Reader
	frozen  int         // bank; -1: none
	read    [][2]uint64 // by CPU: records that were in each bank's ring so far
}

// NewPerf makes two rings of half of size bytes for each CPU that is online,
// rounded up to a power of two of pages, and hands them to the kernel side. From 4 MiB
// a ring on it needs CAP_IPC_LOCK or root (perf_event_mlock_kb).
func NewPerf(kernel Kernel, size int) (*Perf, error) {
	p := &Perf{common: common{kernel: kernel}, frozen: -1, read: make([][2]uint64, len(kernel.Recorded()))}
	for i, bank := range kernel.Banks() {
		r, err := perf.NewReaderWithOptions(bank, size/2, perf.ReaderOptions{
			Overwritable: true, WakeupEvents: noWakeup,
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make the recorder's rings of %d bytes a CPU: %w (lower recorder.size, raise kernel.perf_event_mlock_kb, or grant CAP_IPC_LOCK: other tracers' rings count, too)", size, err), p.Close())
		}
		p.readers[i] = r
	}
	p.size = 2 * p.readers[0].BufferSize()
	p.cover = newCoverage(p.size/2, perfRecord, perfShort)
	return p, nil
}

// Capacity implements Recorder: that of short records, which most are.
func (p *Perf) Capacity() int { return p.size / 2 / perfShort }

// Size implements Recorder.
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

// FreezeNow implements snapshot.Recorder. A bank is read once, so it waits.
func (p *Perf) FreezeNow() (uint64, error) { return p.Freeze() }

// Release implements snapshot.Recorder.
func (p *Perf) Release() error {
	p.frozen = -1
	return p.kernel.Release(0)
}

// Drain implements snapshot.Recorder. It pauses the frozen bank only, into
// which nothing is written any more.
func (p *Perf) Drain() (snapshot.Drained, error) {
	if p.frozen < 0 {
		return snapshot.Drained{}, errors.New("drain the recorder: no bank is frozen")
	}
	p.waitForWriters()
	r := p.readers[p.frozen]
	if err := r.Pause(); err != nil {
		return snapshot.Drained{}, fmt.Errorf("pause the frozen bank: %w", err)
	}
	byCPU, err := drain(r, newNames(p.kernel))
	if resume := r.Resume(); resume != nil {
		err = errors.Join(err, fmt.Errorf("resume the bank: %w", resume))
	}
	var d snapshot.Drained
	cpus := p.kernel.Recorded()
	for i := range cpus {
		written := cpus[i].Position[p.frozen] - p.read[i][p.frozen]
		p.read[i][p.frozen] += written
		s := snapshot.CPUStream{CPU: cpus[i].CPU, Records: byCPU[cpus[i].CPU]}
		if n := uint64(len(s.Records)); written > n {
			s.Missing = written - n // the ring came round
		}
		if written > 0 {
			d.CPUs = append(d.CPUs, s)
		}
	}
	p.noteDrained(cpus)
	return d, err
}

// drain reads all rings of one bank. An overwritten ring is read newest first.
func drain(r *perf.Reader, called *names) (map[int][]trace.Record, error) {
	byCPU := map[int][]trace.Record{}
	r.SetDeadline(time.Unix(1, 0)) // in the past: do not wait for more
	var rec perf.Record
	for {
		err := r.ReadInto(&rec)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the frozen bank: %w", err)
		}
		raw := rec.RawSample
		switch {
		case len(raw) >= trace.ShortSize && trace.IsShort(binary.LittleEndian.Uint64(raw)):
			byCPU[rec.CPU] = append(byCPU[rec.CPU], called.whole((*trace.Short)(raw[:trace.ShortSize]), rec.CPU))
		case len(raw) >= trace.RecordSize:
			byCPU[rec.CPU] = append(byCPU[rec.CPU], trace.Record(raw[:trace.RecordSize]))
		default: // a lost-samples record has none
		}
	}
	for _, records := range byCPU {
		slices.Reverse(records)
	}
	return byCPU, nil
}

// Close implements Recorder.
func (p *Perf) Close() error {
	var errs []error
	for i, r := range p.readers {
		if r != nil {
			errs = append(errs, r.Close())
			p.readers[i] = nil
		}
	}
	return errors.Join(errs...)
}
