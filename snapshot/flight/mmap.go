package flight

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Mmap is the recorder over rings of plain memory, which the kernel side
// writes and we read through one mapping, without a system call. It implements
// snapshot.Recorder. Needs kernel 5.5+ for memory-mapped arrays.
type Mmap struct {
	common
	memory *ebpf.Memory
	ring   int
	read   [][2]uint64 // per CPU and bank: position up to which it has been read
}

// timeAt is where a record's time stands (bpf/abi.h); 0: it is not complete.
const timeAt = 8

// NewMmap maps the kernel side's rings.
func NewMmap(kernel Kernel) (*Mmap, error) {
	rings, ring := kernel.Records()
	memory, err := rings.Memory()
	if err != nil {
		return nil, fmt.Errorf("map the recorder's rings: %w", err)
	}
	cpus, err := kernel.Recorded()
	if err != nil {
		return nil, err
	}
	return &Mmap{
		common: common{kernel: kernel, frozen: -1, cover: newCoverage(uint64(ring))},
		memory: memory, ring: ring, read: make([][2]uint64, len(cpus)),
	}, nil
}

// Capacity implements Recorder.
func (m *Mmap) Capacity() int { return m.ring }

// Size implements Recorder.
func (m *Mmap) Size() int { return m.ring * trace.RecordSize }

// Drain implements snapshot.Recorder.
func (m *Mmap) Drain() (snapshot.Drained, error) {
	if err := m.settled(); err != nil {
		return snapshot.Drained{}, err
	}
	cpus, err := m.kernel.Recorded()
	if err != nil {
		return snapshot.Drained{}, err
	}
	var d snapshot.Drained
	for i := range cpus {
		cpu, end := cpus[i].CPU, cpus[i].Position[m.frozen]
		begin := m.read[i][m.frozen]
		if end-begin > uint64(m.ring) {
			begin = end - uint64(m.ring) // the rest is overwritten
		}
		m.read[i][m.frozen] = end
		if begin == end || int64(2*cpu+2)*int64(m.Size()) > int64(m.memory.Size()) {
			continue // nothing new, or a CPU without rings
		}
		records, err := m.copy(cpu, begin, end)
		if err != nil {
			return d, err
		}
		d.CPUs = append(d.CPUs, snapshot.CPUStream{CPU: cpu, Records: records})
	}
	return d, nil
}

// copy takes the records of one ring from position begin to end, oldest first.
func (m *Mmap) copy(cpu int, begin, end uint64) ([]trace.Record, error) {
	raw := make([]byte, m.Size())
	if _, err := m.memory.ReadAt(raw, int64(2*cpu+m.frozen)*int64(m.Size())); err != nil {
		return nil, fmt.Errorf("read the ring of CPU %d: %w", cpu, err)
	}
	records := make([]trace.Record, 0, end-begin)
	for n := begin; n < end; n++ {
		at := int(n%uint64(m.ring)) * trace.RecordSize
		r := trace.Record(raw[at : at+trace.RecordSize])
		if binary.LittleEndian.Uint64(r[timeAt:]) == 0 {
			continue // never completed: its writer was cut off
		}
		records = append(records, r)
	}
	return records, nil
}

// Close implements Recorder. The memory goes with the kernel side's map.
func (m *Mmap) Close() error { return nil }
