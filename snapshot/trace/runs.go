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
	spinRun    Type = abi.RecLockSpin
	tickRun    Type = abi.RecTick
)

// Begin returns when what the record tells of began: of a whole run of an interrupt
// handler, of a softirq, of a CPU that spins or of the tick its start, of all others their time.
func (r *Record) Begin() uint64 {
	off := abi.OffTimeNs
	switch r.Type() {
	case irqRun:
		off = abi.OffIrqStartNs
	case softirqRun:
		off = abi.OffSoftirqStartNs
	case spinRun:
		off = abi.OffLockStartNs
	case tickRun:
		off = abi.OffHrtimerNow
	}
	return min(r.u64(off), r.Time())
}

func (r *Record) run() bool {
	_, ok := exits[r.Type()]
	return ok
}

// entries and exits are what a run is told as.
var (
	entries = map[Type]Type{irqRun: IRQEntry, softirqRun: SoftirqEntry, spinRun: LockBegin, tickRun: HrtimerEntry}
	exits   = map[Type]Type{irqRun: IRQExit, softirqRun: SoftirqExit, spinRun: LockEnd, tickRun: HrtimerExit}
)

// end is the record of a run as one of its ends.
func (r *Record) end(as map[Type]Type, at uint64) Record {
	out := *r
	binary.LittleEndian.PutUint16(out[abi.OffType:], uint16(as[r.Type()]))
	binary.LittleEndian.PutUint64(out[abi.OffTimeNs:], at)
	return out
}

// Unfold makes two records of each that stands for a whole run of an interrupt handler, of
// a softirq, of a CPU that spins or of the tick, one for its entry and one for its exit, all
// in the order of time: what the kernel side writes one record for is two events. Records are
// those of one CPU by time, and are left as they are. What began before earliest seems to begin then: before,
// nothing is known of the CPU.
func Unfold(records []Record, earliest uint64) []Record {
	type beginning struct {
		at    uint64
		index int
	}
	begin := func(r *Record) uint64 { return min(max(r.Begin(), earliest), r.Time()) }
	var begun []beginning
	for i := range records {
		if records[i].run() {
			begun = append(begun, beginning{begin(&records[i]), i})
		}
	}
	if len(begun) == 0 {
		return records
	}
	// Of runs that begin at one time the outer one, which ends later, comes first.
	slices.SortFunc(begun, func(a, b beginning) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.index, a.index))
	})
	out := make([]Record, 0, len(records)+len(begun))
	for i := range records {
		r := &records[i]
		ends := r.run() && begin(r) < r.Time() // what begins at the same time comes after it
		for len(begun) > 0 && (begun[0].at < r.Time() || begun[0].at == r.Time() && !ends) {
			b := begun[0]
			begun = begun[1:]
			out = append(out, records[b.index].end(entries, b.at))
		}
		if r.run() {
			out = append(out, r.end(exits, r.Time()))
		} else {
			out = append(out, *r)
		}
	}
	return out
}
