package symbols

import (
	"bytes"
	"encoding/binary"
)

// cursor reads little-endian values. Reading beyond the end returns zero and sets bad.
// It does not allocate.
type cursor struct {
	b   []byte
	at  uint64
	bad bool
}

func (c *cursor) left() uint64 {
	if n := uint64(len(c.b)); c.at < n {
		return n - c.at
	}
	return 0
}

// skip skips n bytes.
func (c *cursor) skip(n uint64) { c.next(n) }

// next returns the next n bytes, or nil.
func (c *cursor) next(n uint64) []byte {
	if n > c.left() {
		c.at, c.bad = uint64(len(c.b)), true
		return nil
	}
	b := c.b[c.at : c.at+n]
	c.at += n
	return b
}

// fixed reads an integer of n bytes, at most 8.
func (c *cursor) fixed(n uint64) (v uint64) {
	b := c.next(n)
	switch len(b) {
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8:
		return binary.LittleEndian.Uint64(b)
	}
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}

func (c *cursor) u8() byte    { return byte(c.fixed(1)) }
func (c *cursor) u16() uint16 { return uint16(c.fixed(2)) }
func (c *cursor) u32() uint32 { return uint32(c.fixed(4)) }
func (c *cursor) u64() uint64 { return c.fixed(8) }

// maxLEB is the length of a 64-bit LEB128 number; compilers add no padding.
const maxLEB = 10

func (c *cursor) uleb() (v uint64) {
	for i := range maxLEB {
		if c.at >= uint64(len(c.b)) {
			break
		}
		x := c.b[c.at]
		c.at++
		v |= uint64(x&0x7f) << (7 * i)
		if x < 0x80 {
			return v
		}
	}
	c.at, c.bad = uint64(len(c.b)), true
	return 0
}

func (c *cursor) sleb() int64 {
	from := c.at
	v := c.uleb()
	if bits := 7 * (c.at - from); !c.bad && c.b[c.at-1]&0x40 != 0 && bits < 64 {
		v |= ^uint64(0) << bits
	}
	return int64(v)
}

// text skips a NUL-terminated string and returns its position and length. Its bytes
// count as work.
func (c *cursor) text(w *workBudget) (at, n uint64, err error) {
	at = c.at
	b := c.b[min(at, uint64(len(c.b))):]
	end := bytes.IndexByte(b[:min(len(b), maxText)], 0)
	if end < 0 {
		if len(b) >= maxText {
			return at, 0, errTooLarge
		}
		c.at, c.bad = uint64(len(c.b)), true
		return at, 0, nil
	}
	c.at += uint64(end) + 1
	return at, uint64(end), w.step(end/16 + 1)
}

// maxText bounds a string in debug information, in bytes; names of C++ templates reach
// 100 KB.
const maxText = 1 << 20
