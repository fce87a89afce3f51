package trace

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Types of records of a whole run. They are no events: see Unfold.
const (
	irqRun     Type = abi.RecIrq
	softirqRun Type = abi.RecSoftirq
)

// Begin returns when what the record tells of began: of a whole run of an interrupt
// handler or a softirq its start, of all others their time.
func (r *Record) Begin() uint64 {
	off := abi.OffTimeNs
	switch r.Type() {
	case irqRun:
		off = abi.OffIrqStartNs
	case softirqRun:
		off = abi.OffSoftirqStartNs
	}
	return min(r.u64(off), r.Time())
}

func (r *Record) run() bool { return r.Type() == irqRun || r.Type() == softirqRun }

// end is the record of a run as one of its ends.
func (r *Record) end(irq, softirq Type, at uint64) Record {
	t, out := irq, *r
	if r.Type() == softirqRun {
		t = softirq
	}
	binary.LittleEndian.PutUint16(out[abi.OffType:], uint16(t))
	binary.LittleEndian.PutUint64(out[abi.OffTimeNs:], at)
	return out
}

// Unfold makes two records of each that stands for a whole run of an interrupt handler or
// a softirq, one for its entry and one for its exit, all in the order of time: what the
// kernel writes one record for is two events. Records are those of one CPU by time,
// and are left as they are. What began before earliest seems to begin then: before,
// nothing is known of the CPU.
func Unfold(records []Record, earliest uint64) []Record {
	type entry struct {
		at    uint64
		index int
	}
	begin := func(r *Record) uint64 { return min(max(r.Begin(), earliest), r.Time()) }
	var entries []entry
	for i := range records {
		if records[i].run() {
			entries = append(entries, entry{begin(&records[i]), i})
		}
	}
	if len(entries) == 0 {
		return records
	}
	// Of runs that begin at one time the outer one, which ends later, comes first.
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.index, a.index))
	})
	out := make([]Record, 0, len(records)+len(entries))
	for i := range records {
		r := &records[i]
		ends := r.run() && begin(r) < r.Time() // what begins at the same time comes after it
		for len(entries) > 0 && (entries[0].at < r.Time() || entries[0].at == r.Time() && !ends) {
			e := entries[0]
			entries = entries[1:]
			out = append(out, records[e.index].end(IRQEntry, SoftirqEntry, e.at))
		}
		if r.run() {
			out = append(out, r.end(IRQExit, SoftirqExit, r.Time()))
		} else {
			out = append(out, *r)
		}
	}
	return out
}
