// Package trace holds the recorder's events: decoding the kernel's records,
// writing and reading them as Common Trace Format 1.8.
//
// Nothing here touches the kernel. Every decoder accepts any bytes: damage
// comes back as an error, never as a panic or as unbounded memory.
package trace

import (
	"encoding/binary"
	"math"

	"github.com/tailcam/tailcam/bpf/abi"
)

// RecordSize is the size of a flight-recorder record in bytes.
const RecordSize = abi.RecordSize

// Record is one undecoded flight-recorder record: the bytes of an abi.Record,
// wherever they lie.
type Record [RecordSize]byte

// MakeRecord returns a record without a body, as the kernel side would write it.
func MakeRecord(t Type, cpu, tid int, now uint64) (r Record) {
	binary.LittleEndian.PutUint16(r[abi.OffType:], uint16(t))
	binary.LittleEndian.PutUint16(r[abi.OffCpu:], uint16(cpu))
	binary.LittleEndian.PutUint32(r[abi.OffTid:], uint32(tid))
	binary.LittleEndian.PutUint64(r[abi.OffTimeNs:], now)
	if t == SoftirqEntry {
		binary.LittleEndian.PutUint32(r[abi.OffSoftirqIrq:], math.MaxUint32) // none
	}
	return r
}

// maxTime is the latest time that a record may carry: 146 years of uptime.
// Past it the bytes are not a record, and readers of CTF would overflow.
const maxTime = 1 << 62

// Type returns the kind of event, which may be unknown to this version.
func (r *Record) Type() Type { return Type(binary.LittleEndian.Uint16(r[abi.OffType:])) }

// CPU returns the CPU that wrote the record.
func (r *Record) CPU() int { return int(binary.LittleEndian.Uint16(r[abi.OffCpu:])) }

// TID returns the task that was current on the CPU; 0 is idle.
func (r *Record) TID() int { return int(r.s32(abi.OffTid)) }

// Time returns nanoseconds of CLOCK_MONOTONIC.
func (r *Record) Time() uint64 { return r.u64(abi.OffTimeNs) }

// known reports whether the record can be decoded and written.
func (r *Record) known() bool {
	return r.Type().ofRecord() && r.Time() < maxTime
}

func (r *Record) u64(off int) uint64 { return binary.LittleEndian.Uint64(r[off:]) }
func (r *Record) u32(off int) uint32 { return binary.LittleEndian.Uint32(r[off:]) }
func (r *Record) s32(off int) int32  { return int32(r.u32(off)) }
func (r *Record) u16(off int) uint16 { return binary.LittleEndian.Uint16(r[off:]) }
func (r *Record) s16(off int) int16  { return int16(binary.LittleEndian.Uint16(r[off:])) }

// frame is an address of a stack. Those of the kernel have all further bits set.
func (r *Record) frame(i int) uint64 {
	address := uint64(r.u16(abi.OffStackHigh+2*i))<<32 | uint64(r.u32(abi.OffStackLow+4*i))
	return uint64(int64(address<<16) >> 16)
}

func (r *Record) setFrame(i int, address uint64) {
	binary.LittleEndian.PutUint16(r[abi.OffStackHigh+2*i:], uint16(address>>32))
	binary.LittleEndian.PutUint32(r[abi.OffStackLow+4*i:], uint32(address))
}

// comm copies a task name and clears whatever follows its end.
func (r *Record) comm(off int) (c Comm) {
	for i := range c {
		if c[i] = r[off+i]; c[i] == 0 {
			break
		}
	}
	return c
}

// text takes a string up to its end or its first zero byte.
func (r *Record) text(off, size int) string { return string(cutNUL(r[off : off+size])) }
