package unwind

// reader reads little-endian values. Reading beyond the end returns zero and sets bad.
type reader struct {
	b   []byte
	at  uint64
	bad bool
}

func (r *reader) done() bool { return r.at >= uint64(len(r.b)) }

// next returns the next n bytes, or nil.
func (r *reader) next(n uint64) []byte {
	if size := uint64(len(r.b)); r.at > size || n > size-r.at {
		r.at, r.bad = size, true
		return nil
	}
	b := r.b[r.at : r.at+n : r.at+n]
	r.at += n
	return b
}

// fixed reads an integer of n bytes, at most 8.
func (r *reader) fixed(n uint64) (v uint64) {
	for i, x := range r.next(n) {
		v |= uint64(x) << (8 * i)
	}
	return v
}

func (r *reader) u8() byte { return byte(r.fixed(1)) }

const maxLEB = 10 // bytes

func (r *reader) uleb() (v uint64) {
	for i := range maxLEB {
		x := r.u8()
		v |= uint64(x&0x7f) << (7 * i)
		if x < 0x80 {
			return v
		}
	}
	r.bad = true
	return 0
}

func (r *reader) sleb() int64 {
	var v uint64
	for i := range maxLEB {
		x := r.u8()
		v |= uint64(x&0x7f) << (7 * i)
		if x < 0x80 {
			if bits := 7 * (i + 1); x&0x40 != 0 && bits < 64 {
				v |= ^uint64(0) << bits
			}
			return int64(v)
		}
	}
	r.bad = true
	return 0
}

// block reads bytes behind their number; not nil.
func (r *reader) block() []byte {
	if b := r.next(r.uleb()); b != nil {
		return b
	}
	return []byte{}
}

// text reads up to a NUL.
func (r *reader) text(most int) string {
	var b []byte
	for len(b) < most {
		c := r.u8()
		if c == 0 {
			return string(b)
		}
		b = append(b, c)
	}
	r.bad = true
	return ""
}

// jump moves by a signed distance.
func (r *reader) jump(by uint64) {
	r.at += by
	if r.at > uint64(len(r.b)) {
		r.at, r.bad = uint64(len(r.b)), true
	}
}

// extend extends the sign of a value of size bytes.
func extend(v, size uint64) uint64 {
	shift := 64 - 8*size
	return uint64(int64(v<<shift) >> shift)
}

// Encodings of pointers: the low four bits are the format, three more what they are
// relative to.
const (
	encodedOmit     = 0xff
	encodedULEB     = 0x01
	encoded2        = 0x02
	encoded4        = 0x03
	encoded8        = 0x04
	encodedSLEB     = 0x09
	encodedSigned2  = 0x0a
	encodedSigned4  = 0x0b
	encodedSigned8  = 0x0c
	relativePC      = 0x10
	relativeData    = 0x30
	encodedRelative = 0x70
	encodedIndirect = 0x80
)

// pointer reads an encoded pointer. at is the address of r.b, data what it may be
// relative to.
func (r *reader) pointer(encoding byte, at, data uint64) (v uint64) {
	base := uint64(0)
	switch encoding & encodedRelative {
	case 0:
	case relativePC:
		base = at + r.at
	case relativeData:
		base = data
	default:
		r.bad = true
	}
	switch encoding & 0x0f {
	case 0, encoded8, encodedSigned8:
		v = r.fixed(8)
	case encodedULEB:
		v = r.uleb()
	case encodedSLEB:
		v = uint64(r.sleb())
	case encoded2:
		v = r.fixed(2)
	case encoded4:
		v = r.fixed(4)
	case encodedSigned2:
		v = extend(r.fixed(2), 2)
	case encodedSigned4:
		v = extend(r.fixed(4), 4)
	default:
		r.bad = true
	}
	return base + v
}
