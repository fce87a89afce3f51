package trace

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/tailcam/tailcam/bpf/abi"
)

// maxText bounds a string field, terminator not counted.
const maxText = 1024

// appendFields writes the fields of one record as CTF.
func appendFields(b []byte, fields []field, r *Record) []byte {
	le := binary.LittleEndian
	for i := range fields {
		off := fields[i].off
		switch fields[i].kind {
		case kS32, kU32, kX32, kTID:
			b = le.AppendUint32(b, r.u32(off))
		case kS64, kU64, kX64:
			b = le.AppendUint64(b, r.u64(off))
		case kComm:
			c := r.comm(off)
			b = append(b, c[:]...)
		case kIRQName:
			b = append(append(b, cutNUL(r[off:off+abi.WorkNameLen])...), 0)
		case kRecordName:
			b = append(append(b, cutNUL(r[off:off+abi.RecordNameLen])...), 0)
		case kCommText:
			b = append(append(b, cutNUL(r[off:off+len(Comm{})])...), 0)
		case kPrio16:
			b = le.AppendUint32(b, uint32(int32(r.s16(off))-maxRTPrio))
		case kPrio32:
			b = le.AppendUint32(b, uint32(r.s32(off)-maxRTPrio))
		case kState:
			b = le.AppendUint64(b, uint64(lttngState(r.u32(off))))
		case kRWBS:
			b = le.AppendUint32(b, lttngRWBS(r.u32(off)))
		case kSectors:
			b = le.AppendUint32(b, r.u32(off)/512)
		case kErrno:
			b = le.AppendUint32(b, uint32(statusErrno(r.s32(off))))
		case kAddress:
			b = append(strconv.AppendUint(append(b, "0x"...), r.u64(off), 16), 0)
		case kArgs:
			b = append(b, r[off:off+8*abi.SyscallArgs]...)
		case kU16:
			b = le.AppendUint32(b, uint32(r.u16(off)))
		case kFrames:
			for n := range abi.StackFrames {
				b = le.AppendUint64(b, r.frame(n))
			}
		}
	}
	return b
}

// fixedSize is how many bytes a field has in CTF; 0: it is a string.
func (f *field) fixedSize() int {
	switch f.kind {
	case kS64, kU64, kX64, kState:
		return 8
	case kComm:
		return len(Comm{})
	case kArgs:
		return 8 * abi.SyscallArgs
	case kFrames:
		return 8 * abi.StackFrames
	case kSkip:
		return f.off
	case kIRQName, kCommText, kRecordName, kText, kAddress, kSkipText:
		return 0
	}
	return 4
}

// take returns the bytes of the field that b begins with, a string's without
// its end, and how many it uses; false: there are too few.
func (f *field) take(b []byte) (v []byte, n int, ok bool) {
	if n = f.fixedSize(); n > 0 {
		if len(b) < n {
			return nil, 0, false
		}
		return b[:n], n, true
	}
	v = cutNUL(b)
	return v, len(v) + 1, len(v) < len(b)
}

// readFields undoes appendFields: it fills in the record's own bytes and
// skips what was derived from them. It returns the bytes used, or false if
// there are too few.
func readFields(b []byte, fields []field, r *Record) (n int, ok bool) {
	le := binary.LittleEndian
	for i := range fields {
		v, size, ok := fields[i].take(b[n:])
		if !ok {
			return 0, false
		}
		n += size
		off := fields[i].off
		switch fields[i].kind {
		case kS32, kU32, kX32, kS64, kU64, kX64, kComm, kArgs:
			copy(r[off:off+len(v)], v)
		case kIRQName:
			copy(r[off:off+abi.WorkNameLen], v)
		case kRecordName:
			copy(r[off:off+abi.RecordNameLen], v)
		case kCommText:
			copy(r[off:off+len(Comm{})], v)
		case kPrio16:
			le.PutUint16(r[off:], uint16(int32(le.Uint32(v))+maxRTPrio))
		case kPrio32:
			le.PutUint32(r[off:], uint32(int32(le.Uint32(v))+maxRTPrio))
		case kU16:
			le.PutUint16(r[off:], uint16(le.Uint32(v)))
		case kFrames:
			for n := range abi.StackFrames {
				r.setFrame(n, le.Uint64(v[8*n:]))
			}
		case kAddress:
			// LTTng has the string itself here, and so may a later release.
			if address, err := strconv.ParseUint(string(v[:min(len(v), 18)]), 0, 64); err == nil {
				le.PutUint64(r[off:], address)
			}
		}
	}
	return n, true
}

// appendValues writes the fields of an event that comes from no record.
func appendValues(b []byte, fields []field, v *values) []byte {
	le := binary.LittleEndian
	for i := range fields {
		switch off := fields[i].off; fields[i].kind {
		case kText:
			s := cutNUL(v.text[off])
			b = append(append(b, s[:min(len(s), maxText)]...), 0)
		case kComm:
			c := MakeComm(v.text[off])
			b = append(b, c[:]...)
		case kS64, kU64:
			b = le.AppendUint64(b, v.num[off])
		default:
			b = le.AppendUint32(b, uint32(v.num[off]))
		}
	}
	return b
}

// readValues undoes appendValues.
func readValues(b []byte, fields []field, to *values) (n int, ok bool) {
	le := binary.LittleEndian
	for i := range fields {
		v, size, ok := fields[i].take(b[n:])
		if !ok {
			return 0, false
		}
		n += size
		switch off := fields[i].off; fields[i].kind {
		case kText, kComm:
			if len(v) > maxText {
				return 0, false
			}
			to.text[off] = string(cutNUL(v))
		case kS64, kU64:
			to.num[off] = le.Uint64(v)
		case kS32:
			to.num[off] = uint64(int32(le.Uint32(v)))
		case kU32:
			to.num[off] = uint64(le.Uint32(v))
		}
	}
	return n, true
}

// body makes the event's body of its values.
func (v *values) body(t Type) any {
	number := func(at int) int { return int(int64(v.num[at])) }
	switch t {
	case OutlierEntry, OutlierExit:
		return Marker{
			Rule: v.text[valRule], Track: v.text[valTrack], DelayNS: int64(v.num[valDelay]), PID: number(valPID),
			Comm: MakeComm(v.text[valName]), Outlier: v.num[valOutlier],
		}
	case DumpTask:
		return TaskState{
			TID: number(valTID), PID: number(valPID), PPID: number(valPPID), Comm: MakeComm(v.text[valName]),
			Kernel: v.num[valKernel] != 0, Status: number(valStatus), CPU: number(valCPU),
		}
	case DumpFile:
		return FileState{PID: number(valPID), FD: number(valFD), Flags: uint32(v.num[valFlags]), Name: v.text[valText]}
	case DumpDevice:
		return DeviceState{Dev: uint32(v.num[valDev]), Name: v.text[valText]}
	}
	return nil
}

// The event header is LTTng's "large" one: a 16-bit id with the low half of
// the time, or an escape with both in full where the time moved too far. The
// event context, the tid, follows.
const (
	shortHeader = 2 + 4 + 4
	longHeader  = 2 + 4 + 8 + 4
)

// appendHeader needs last, the time of the event before it in the stream or
// the packet's begin, not to be later than now.
func appendHeader(b []byte, id uint16, last, now uint64, tid int) []byte {
	le := binary.LittleEndian
	if now-last <= math.MaxUint32 {
		b = le.AppendUint16(b, id)
		b = le.AppendUint32(b, uint32(now))
	} else {
		b = le.AppendUint16(b, extendedEventID)
		b = le.AppendUint32(b, uint32(id))
		b = le.AppendUint64(b, now)
	}
	return le.AppendUint32(b, uint32(tid))
}

// readHeader undoes appendHeader. A time that moves backwards is no time.
func readHeader(b []byte, last uint64) (id uint32, now uint64, tid, n int, ok bool) {
	le := binary.LittleEndian
	if len(b) < shortHeader {
		return 0, 0, 0, 0, false
	}
	id = uint32(le.Uint16(b))
	n = shortHeader
	if id != extendedEventID {
		// The shortest step forward that ends in these 32 bits.
		now = last + uint64(le.Uint32(b[2:])-uint32(last))
	} else {
		if n = longHeader; len(b) < n {
			return 0, 0, 0, 0, false
		}
		id, now = le.Uint32(b[2:]), le.Uint64(b[6:])
	}
	if now < last || now >= maxTime {
		return 0, 0, 0, 0, false
	}
	return id, now, int(int32(le.Uint32(b[n-4:]))), n, true
}
