package kernel

import (
	"fmt"
	"runtime"
	"sync"
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

// Rings are the recorder's rings of one load: records, and each CPU's place in its ring,
// which is mapped and read without a system call. Those of another size have others, and
// count on from these.
type Rings struct {
	records *ebpf.Map
	ring    int // records in one ring of plain memory
	plain   bool
	raw     []byte
	list    []abi.RecordRing
	cleanup runtime.Cleanup // of raw, for rings that were replaced: somebody may be reading them

	mu      sync.Mutex // guards what follows
	before  *Rings     // those that these replaced; nil: nothing is written there any more
	earlier []CPUCounters
}

// openRings maps the state of the rings. What was taken over goes on.
func (b *build) openRings(before *loaded) (*Rings, error) {
	const size = int(unsafe.Sizeof(abi.RecordRing{}))
	m := b.maps.RecordRings
	page := unix.Getpagesize()
	n := int(m.MaxEntries())
	raw, err := unix.Mmap(m.FD(), 0, (n*size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the state of the recorder's rings: %w", err)
	}
	r := &Rings{
		records: b.maps.Records, ring: b.ring, plain: b.opts.Ring > 0,
		raw: raw, list: unsafe.Slice((*abi.RecordRing)(unsafe.Pointer(&raw[0])), n),
	}
	for i := range r.list {
		if !b.taken {
			r.list[i].Held[0] = 1 // the first part needs no preparation
		}
	}
	if before != nil {
		r.before = before.rings
	}
	r.cleanup = runtime.AddCleanup(r, func(raw []byte) { _ = unix.Munmap(raw) }, raw)
	return r, nil
}

func (r *Rings) close() error {
	if r == nil || r.raw == nil {
		return nil
	}
	r.cleanup.Stop()
	raw := r.raw
	r.raw, r.list = nil, nil
	return unix.Munmap(raw)
}

// settle notes that nothing is written any more into what r replaced.
func (r *Rings) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.before != nil {
		r.earlier, r.before = r.before.Recorded(), nil
	}
}

// past is what was counted in the rings before these.
func (r *Rings) past() []CPUCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.before != nil {
		return r.before.Recorded()
	}
	return r.earlier
}

// Recorded reads the recorder's counters, one element a possible CPU: since New, but
// Position, which is that of these rings. It needs no system call.
func (r *Rings) Recorded() []CPUCounters {
	past := r.past()
	list := make([]CPUCounters, 0, len(r.list))
	for i := range r.list {
		s := &r.list[i]
		c := CPUCounters{CPU: i, RecordLost: atomic.LoadUint64(&s.Lost)}
		for b := range c.Position {
			c.Position[b] = atomic.LoadUint64(&s.Position[b])
			c.Recorded += c.Position[b]
		}
		if r.plain {
			c.Paired, c.Position[1] = c.Position[1], 0
			c.Recorded = c.Position[0] - min(c.RecordLost, c.Position[0])
		} else {
			c.Short = min(atomic.LoadUint64(&s.Pinned), c.Recorded)
		}
		if i < len(past) {
			c.Recorded, c.Paired = c.Recorded+past[i].Recorded, c.Paired+past[i].Paired
			c.Short, c.RecordLost = c.Short+past[i].Short, c.RecordLost+past[i].RecordLost
		}
		list = append(list, c)
	}
	runtime.KeepAlive(r)
	return list
}

// Records returns the rings of plain memory, one a CPU, and how many records one holds.
// CPUs that came later have none. What is where in them: Ring.
func (r *Rings) Records() (rings *ebpf.Map, ring int) { return r.records, r.ring }

// Ring reads the state of one CPU's ring of plain memory, without a system
// call. It changes meanwhile: what a slot holds must be read again after it was.
func (r *Rings) Ring(cpu int) Ring {
	at := &r.list[cpu]
	s := Ring{Position: atomic.LoadUint64(&at.Position[0])}
	for i := range s.Held {
		s.Held[i] = atomic.LoadUint64(&at.Held[i])
	}
	runtime.KeepAlive(r)
	return s
}

// Rings are those of now. Replace puts others in their place if their size changes.
func (o *Objects) Rings() *Rings { return o.loaded.Load().rings }

// Recorded is that of the rings of now.
func (o *Objects) Recorded() []CPUCounters { return o.Rings().Recorded() }

// Ring is that of the rings of now.
func (o *Objects) Ring(cpu int) Ring { return o.Rings().Ring(cpu) }
