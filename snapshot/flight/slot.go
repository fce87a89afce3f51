package flight

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// slot is the room of one record in plain memory, which the kernel side may
// write at any time: an abi.Record as words. The first holds type, lap and
// tid; the second the time, 0 while it is written.
type slot [abi.RecordSize / 8]uint64

const (
	timeWord = abi.OffTimeNs / 8
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
	return r, atomic.LoadUint64(&s[timeWord]) == time && atomic.LoadUint64(&s[0]) == head
}
