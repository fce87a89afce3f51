package kernel

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
)

// RingParts is how many parts a ring of plain memory has.
const RingParts = abi.RingParts

// smallestRing keeps a part long enough for its successor to be prepared in
// time, whatever interrupts.
const smallestRing = 64 << 10

// Ring is the state of one CPU's ring of plain memory. Records are numbered
// from 0; those of one part follow each other in one slot.
type Ring struct {
	Position uint64            // records begun
	Held     [RingParts]uint64 // which part each slot holds, plus 1; 0: none
}

// CPUCounters are one CPU's recorder counters since New.
type CPUCounters struct {
	CPU        int
	Recorded   uint64 // records written; of plain memory, pairs of short ones count once
	Paired     uint64 // and how many pairs are complete
	Short      uint64 // of perf rings: how many of Recorded are short
	RecordLost uint64 // records that found no ring, or that the ring refused
	// Position counts the records written into each bank's perf ring; those
	// of plain memory have but the first, which also counts what was lost.
	Position [2]uint64
}

// rings is the mapping of record_rings: read without a system call.
type rings struct {
	raw  []byte
	list []abi.RecordRing
}

// openRings maps the state of the rings. What was taken over goes on.
func openRings(m *ebpf.Map, taken bool) (*rings, error) {
	const size = int(unsafe.Sizeof(abi.RecordRing{}))
	page := unix.Getpagesize()
	n := int(m.MaxEntries())
	raw, err := unix.Mmap(m.FD(), 0, (n*size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the state of the recorder's rings: %w", err)
	}
	r := &rings{raw: raw, list: unsafe.Slice((*abi.RecordRing)(unsafe.Pointer(&raw[0])), n)}
	for i := range r.list {
		if !taken {
			r.list[i].Held[0] = 1 // the first part needs no preparation
		}
	}
	return r, nil
}

func (r *rings) close() error {
	if r == nil || r.raw == nil {
		return nil
	}
	raw := r.raw
	r.raw, r.list = nil, nil
	return unix.Munmap(raw)
}

// Recorded reads the recorder's counters, one element a possible CPU. It
// needs no system call.
func (o *Objects) Recorded() []CPUCounters {
	list := make([]CPUCounters, 0, len(o.rings.list))
	for i := range o.rings.list {
		r := &o.rings.list[i]
		c := CPUCounters{CPU: i, RecordLost: atomic.LoadUint64(&r.Lost)}
		for b := range c.Position {
			c.Position[b] = atomic.LoadUint64(&r.Position[b])
			c.Recorded += c.Position[b]
		}
		if o.opts.Ring > 0 {
			c.Paired, c.Position[1] = c.Position[1], 0
			c.Recorded = c.Position[0] - min(c.RecordLost, c.Position[0])
		} else {
			c.Short = min(atomic.LoadUint64(&r.Pinned), c.Recorded)
		}
		list = append(list, c)
	}
	return list
}

// Ring reads the state of one CPU's ring of plain memory, without a system
// call. It changes meanwhile: what a slot holds must be read again after it was.
func (o *Objects) Ring(cpu int) Ring {
	r := &o.rings.list[cpu]
	s := Ring{Position: atomic.LoadUint64(&r.Position[0])}
	for i := range s.Held {
		s.Held[i] = atomic.LoadUint64(&r.Held[i])
	}
	return s
}
