package flight

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// slot is the room of one record, or a pair of short ones, in plain memory, which
// the kernel side may write at any time: an abi.Record, or two
// abi.ShortRecords, as words. The first holds type, lap and tid; the second the
// time, 0 while it is written; those of a second short record come after the first one.
type slot [abi.RecordSize / 8]uint64

const (
	timeWord = abi.OffTimeNs / 8
	pairWord = abi.ShortSize / 8                       // where the second of a pair begins
	lapMask  = abi.RecordLapMask << abi.RecordLapShift // in a record there is the CPU
)

// read copies the record of a lap out of the slot, and gives it its CPU. It
// reports false if that record is not there, or not whole: not written yet,
// overwritten, or overwritten while it was read. The writer empties the time,
// writes, and puts the time; so if lap and time are the same before and after
// the copy, nothing has changed in between.
func (s *slot) read(cpu int, lap uint16) (r trace.Record, whole bool) {
	head, time := atomic.LoadUint64(&s[0]), atomic.LoadUint64(&s[timeWord])
	if head&lapMask != uint64(lap)<<abi.RecordLapShift || time == 0 {
		return r, false
	}
	binary.LittleEndian.PutUint64(r[0:], head&^lapMask|uint64(uint16(cpu))<<abi.RecordLapShift)
	binary.LittleEndian.PutUint64(r[abi.OffTimeNs:], time)
	for i := timeWord + 1; i < len(s); i++ {
		binary.LittleEndian.PutUint64(r[8*i:], atomic.LoadUint64(&s[i]))
	}
	return r, s.still(head, time)
}

// still reports whether nothing else has been written meanwhile.
func (s *slot) still(head, time uint64) bool {
	return atomic.LoadUint64(&s[timeWord]) == time && atomic.LoadUint64(&s[0]) == head
}

// second copies the second record of a pair, as read does. It reports false if it
// is not there, or not yet: it may follow much later.
func (s *slot) second(cpu int, lap uint16) (r trace.Short, whole bool) {
	head, time := atomic.LoadUint64(&s[0]), atomic.LoadUint64(&s[timeWord])
	after := atomic.LoadUint64(&s[pairWord+timeWord])
	if head&lapMask != uint64(lap)<<abi.RecordLapShift || !trace.IsShort(head) || time == 0 || after == 0 {
		return r, false
	}
	mine := atomic.LoadUint64(&s[pairWord])
	binary.LittleEndian.PutUint64(r[0:], mine&^lapMask|uint64(uint16(cpu))<<abi.RecordLapShift)
	binary.LittleEndian.PutUint64(r[abi.OffTimeNs:], after)
	for i := timeWord + 1; i < pairWord; i++ {
		binary.LittleEndian.PutUint64(r[8*i:], atomic.LoadUint64(&s[pairWord+i]))
	}
	return r, mine&lapMask == head&lapMask && s.still(head, time)
}
