package trace

import (
	"encoding/binary"
	"math"
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
			b = append(append(b, cutNUL(r[off:off+irqNameLen])...), 0)
		case kName24:
			b = append(append(b, cutNUL(r[off:off+24])...), 0)
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
		}
	}
	return b
}

// readFields undoes appendFields: it fills in the record's own bytes and
// skips what was derived from them. It returns the bytes used, or false if
// there are too few.
func readFields(b []byte, fields []field, r *Record) (n int, ok bool) {
	le := binary.LittleEndian
	for i := range fields {
		off := fields[i].off
		size := 4
		switch fields[i].kind {
		case kS64, kU64, kX64, kState:
			size = 8
		case kComm:
			size = len(Comm{})
		case kIRQName, kCommText, kName24:
			size = len(cutNUL(b[n:])) + 1
		}
		if len(b)-n < size {
			return 0, false
		}
		v := b[n : n+size]
		n += size
		switch fields[i].kind {
		case kS32, kU32, kX32, kS64, kU64, kX64, kComm:
			copy(r[off:off+size], v)
		case kIRQName:
			copy(r[off:off+irqNameLen], v[:size-1])
		case kName24:
			copy(r[off:off+24], v[:size-1])
		case kCommText:
			copy(r[off:off+len(Comm{})], v[:size-1])
		case kPrio16:
			le.PutUint16(r[off:], uint16(int32(le.Uint32(v))+maxRTPrio))
		case kPrio32:
			le.PutUint32(r[off:], uint32(int32(le.Uint32(v))+maxRTPrio))
		}
	}
	return n, true
}

func appendText(b []byte, s string) []byte {
	s = cutNUL(s)
	return append(append(b, s[:min(len(s), maxText)]...), 0)
}

// appendMarker writes markerFields.
func appendMarker(b []byte, m *Marker, tid int) []byte {
	le := binary.LittleEndian
	b = appendText(b, m.Rule)
	b = appendText(b, m.Track)
	b = le.AppendUint64(b, uint64(m.DelayNS))
	b = le.AppendUint32(b, uint32(tid))
	b = le.AppendUint32(b, uint32(m.PID))
	b = append(b, m.Comm[:]...)
	return le.AppendUint64(b, m.Outlier)
}

// readMarker undoes appendMarker but for the tid, which is in the context.
func readMarker(b []byte) (m Marker, n int, ok bool) {
	le := binary.LittleEndian
	for _, s := range [...]*string{&m.Rule, &m.Track} {
		text := cutNUL(b[n:])
		if n += len(text) + 1; n > len(b) || len(text) > maxText {
			return Marker{}, 0, false
		}
		*s = string(text)
	}
	v := b[n:]
	const size = 8 + 4 + 4 + len(Comm{}) + 8
	if len(v) < size {
		return Marker{}, 0, false
	}
	m.DelayNS = int64(le.Uint64(v))
	m.PID = int(int32(le.Uint32(v[12:])))
	m.Comm = MakeComm(string(v[16:32]))
	m.Outlier = le.Uint64(v[32:])
	return m, n + size, true
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
