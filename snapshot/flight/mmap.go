package flight

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// Mmap is the recorder over rings of plain memory, which the kernel side
// writes and we read through one mapping, while it goes on, without a system
// call. It implements snapshot.Recorder. Needs kernel 5.5+ for memory-mapped
// arrays.
type Mmap struct {
	common
	raw     []byte
	slots   []slot
	ring    int // records in one ring
	freezes uint64
	read    []uint64 // by CPU: number up to which records have been read
	open    []uint64 // by CPU: number of the pair whose second record had not come, plus 1; 0: none
}

// NewMmap maps the kernel side's rings.
func NewMmap(kernel Kernel) (*Mmap, error) {
	rings, ring := kernel.Records()
	raw, err := unix.Mmap(rings.FD(), 0, int(rings.MaxEntries())*trace.RecordSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the recorder's rings: %w", err)
	}
	m := &Mmap{
		common: common{kernel: kernel, cover: newCoverage((ring-ring/abi.RingParts)*trace.RecordSize, trace.RecordSize, 0)},
		raw:    raw, slots: unsafe.Slice((*slot)(unsafe.Pointer(&raw[0])), rings.MaxEntries()),
		ring: ring, read: make([]uint64, len(kernel.Recorded())), open: make([]uint64, len(kernel.Recorded())),
	}
	m.countFrom(kernel.Recorded())
	return m, nil
}

// countFrom has Unread count what these rings hold, perhaps of a daemon before, and not what
// other rings held before them.
func (m *Mmap) countFrom(cpus []tracker.CPUCounters) {
	m.noteDrained(cpus)
	for i := range cpus {
		m.drained[i] -= min(cpus[i].Position[0], m.drained[i])
	}
}

// Capacity implements Recorder. One part is about to be overwritten.
func (m *Mmap) Capacity() int { return m.ring - m.ring/abi.RingParts }

// Size implements Recorder.
func (m *Mmap) Size() int { return m.ring * trace.RecordSize }

// Freeze implements snapshot.Recorder. Nothing needs to stop: what outliers
// asked to be kept is, and what comes later is read as it is.
func (m *Mmap) Freeze() (uint64, error) {
	n, err := m.kernel.Freezes()
	if err != nil {
		return 0, err
	}
	m.freezes, m.frozenAt = n, time.Now()
	return linux.Monotonic(), nil
}

// FreezeNow implements snapshot.Recorder.
func (m *Mmap) FreezeNow() (uint64, error) {
	mono, err := m.Freeze()
	m.frozenAt = m.frozenAt.Add(-writeTime)
	return mono - min(mono, uint64(writeTime)), err
}

// Drain implements snapshot.Recorder.
func (m *Mmap) Drain() (snapshot.Drained, error) {
	m.waitForWriters()
	cpus := m.kernel.Recorded()
	called := newNames(m.kernel)
	var d snapshot.Drained
	for i := range cpus {
		if (i+1)*m.ring > len(m.slots) {
			break // CPUs that came after the rings were made have none
		}
		end := cpus[i].Position[0]
		d.CPUs = append(d.CPUs, m.take(i, m.read[i], end, called)...)
		m.read[i] = end
	}
	m.noteDrained(cpus)
	return d, nil
}

// Release implements snapshot.Recorder.
func (m *Mmap) Release() error { return m.kernel.Release(m.freezes) }

// take copies the records from number begin to end of one CPU, in stretches
// between which some are missing.
func (m *Mmap) take(cpu int, begin, end uint64, called *names) []snapshot.CPUStream {
	size := uint64(m.ring / abi.RingParts)
	s := stretches{cpu: cpu, next: begin, end: end, most: uint64(m.ring)}
	late := time.Now().Add(2 * writeTime) // FreezeNow has not waited before
	if open := m.open[cpu]; open > 0 {    // by now it may have come
		number, ring := (open-1)/size, m.kernel.Ring(cpu)
		if place := slices.Index(ring.Held[:], number+1); place >= 0 {
			if r, ok := m.slots[cpu*m.ring+place*int(size):][(open-1)%size].second(cpu, uint16(number)); ok {
				s.late = append(s.late, called.whole(&r, cpu))
				m.open[cpu] = 0
			}
		}
	}
	for s.next < end {
		// Again before each part: what a place holds changes while others are read.
		number, place, found := oldest(m.kernel.Ring(cpu), s.next/size)
		if !found || number*size >= end {
			break
		}
		at := max(number*size, s.next)
		s.skipTo(at)
		slots := m.slots[cpu*m.ring+place*int(size):][:size]
		for ; at < min((number+1)*size, end); at++ {
			r, ok := slots[at%size].read(cpu, uint16(number))
			for !ok && m.kernel.Ring(cpu).Held[place] == number+1 && time.Now().Before(late) {
				time.Sleep(writeTime / 10) // it is being written
				r, ok = slots[at%size].read(cpu, uint16(number))
			}
			if !ok {
				continue
			}
			if head := binary.LittleEndian.Uint64(r[:]); trace.IsShort(head) {
				r = called.whole((*trace.Short)(r[:trace.ShortSize]), cpu)
				second, ok := slots[at%size].second(cpu, uint16(number))
				if ok {
					s.late = append(s.late, called.whole(&second, cpu))
				} else {
					m.open[cpu] = at + 1
				}
			}
			s.add(at, r)
		}
		s.skipTo(at)
	}
	s.skipTo(end)
	return s.merged()
}

// oldest finds the oldest part of at least that number that a ring holds.
func oldest(r tracker.Ring, least uint64) (number uint64, place int, found bool) {
	for i, held := range r.Held {
		if held > least && (!found || held-1 < number) {
			number, place, found = held-1, i, true
		}
	}
	return number, place, found
}

// stretches collects records by their numbers.
type stretches struct {
	cpu     int
	next    uint64 // number of the next record
	end     uint64 // of the last one, and 1
	most    uint64 // how many there can be
	missing uint64 // since the last one
	list    []snapshot.CPUStream
	late    []trace.Record // in the order of time: seconds of pairs, of which others may have come in between
}

// merged puts the late records where their times belong.
func (s *stretches) merged() []snapshot.CPUStream {
	for i := len(s.list) - 1; i >= 0 && len(s.late) > 0; i-- {
		stretch := &s.list[i]
		if len(stretch.Records) == 0 {
			continue
		}
		n, _ := slices.BinarySearchFunc(s.late, stretch.Records[0].Time(), func(r trace.Record, t uint64) int {
			return cmp.Compare(r.Time(), t)
		})
		stretch.Records = merge(stretch.Records, s.late[n:])
		s.late = s.late[:n]
	}
	if len(s.late) > 0 { // of before the first one, or nothing else has come
		if len(s.list) == 0 || s.list[0].Missing > 0 {
			s.list = slices.Insert(s.list, 0, snapshot.CPUStream{CPU: s.cpu})
		}
		s.list[0].Records = merge(s.late, s.list[0].Records)
	}
	return s.list
}

// merge merges two lists in the order of time.
func merge(a, b []trace.Record) []trace.Record {
	if len(a) == 0 || len(b) == 0 {
		return append(a, b...)
	}
	list := make([]trace.Record, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if b[0].Time() < a[0].Time() {
			list, b = append(list, b[0]), b[1:]
		} else {
			list, a = append(list, a[0]), a[1:]
		}
	}
	return append(append(list, a...), b...)
}

func (s *stretches) skipTo(n uint64) {
	if n <= s.next {
		return
	}
	s.missing += n - s.next
	s.next = n
	if s.missing > 0 { // an empty stretch tells of what is missing, if nothing follows
		if k := len(s.list); k > 0 && len(s.list[k-1].Records) == 0 {
			s.list[k-1].Missing += s.missing
		} else {
			s.list = append(s.list, snapshot.CPUStream{CPU: s.cpu, Missing: s.missing})
		}
		s.missing = 0
	}
}

func (s *stretches) add(n uint64, r trace.Record) {
	s.skipTo(n)
	if len(s.list) == 0 {
		s.list = append(s.list, snapshot.CPUStream{CPU: s.cpu})
	}
	if len(s.list) == 1 && s.list[0].Records == nil { // mostly there is one stretch
		s.list[0].Records = make([]trace.Record, 0, min(s.end-n, s.most))
	}
	last := &s.list[len(s.list)-1]
	last.Records = append(last.Records, r)
	s.next = n + 1
}

// Close implements Recorder.
func (m *Mmap) Close() error {
	if m.raw == nil {
		return errors.New("close the recorder: it is closed already")
	}
	raw := m.raw
	m.raw, m.slots = nil, nil
	return unix.Munmap(raw)
}
