package flight

import (
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
	// perfRecord is what one record takes in a perf ring: header, length,
	// record, padded to 8 bytes.
	perfRecord = 80
	// noWakeup keeps the kernel from interrupting itself for each record.
	noWakeup = 1 << 30
)

// Perf is the recorder over the kernel's perf ring buffers in overwrite mode.
// It implements snapshot.Recorder. Needs kernel 4.7+ for overwrite mode.
type Perf struct {
	common
	size    int
	readers [2]*perf.Reader
}

// NewPerf makes two rings of size bytes for each CPU, rounded up to a power of
// two of pages, and hands them to the kernel side. From 4 MiB on it needs
// CAP_IPC_LOCK or root (perf_event_mlock_kb).
func NewPerf(kernel Kernel, size int) (*Perf, error) {
	p := &Perf{common: common{kernel: kernel, frozen: -1}}
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

// Capacity implements Recorder.
func (p *Perf) Capacity() int { return p.size / perfRecord }

// Size implements Recorder.
func (p *Perf) Size() int { return p.size }

// Drain implements snapshot.Recorder. It pauses the frozen bank only, into
// which nothing is written any more.
func (p *Perf) Drain() (snapshot.Drained, error) {
	if err := p.settled(); err != nil {
		return snapshot.Drained{}, err
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
