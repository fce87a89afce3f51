package symbols

import (
	"encoding/binary"
)

// saneLineHeader tells whether the header of a line table asks for no more
// names than it has room for. debug/dwarf allocates what the header says.
func saneLineHeader(line []byte, at int64) bool {
	if at < 0 || at > int64(len(line))-16 {
		return false
	}
	b := line[at:]
	size := uint64(binary.LittleEndian.Uint32(b))
	if size > uint64(len(b)-4) || size < 12 { // also of 64 bits, which starts with 0xffffffff
		return false
	}
	b = b[4 : 4+size]
	if binary.LittleEndian.Uint16(b) != 5 {
		return true // its names are as many as there are
	}
	// version, bytes of an address and of a segment, length, six bytes, lengths of opcodes
	const fixed = 2 + 2 + 4 + 6
	if len(b) < fixed || b[fixed-1] == 0 {
		return false
	}
	b = b[fixed:]
	base := line[at+4+fixed-1]
	if len(b) < int(base)-1 {
		return false
	}
	c := counter{b: b[base-1:]}
	if !c.names() { // of directories, before those of files
		return false
	}
	return c.names()
}

// counter walks over lists of names whose form the file itself tells.
type counter struct{ b []byte }

func (c *counter) uleb() (uint64, bool) {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		return 0, false
	}
	c.b = c.b[n:]
	return v, true
}

// names walks over one list; false: it does not fit, or has a form that is not known.
func (c *counter) names() bool {
	if len(c.b) == 0 {
		return false
	}
	var forms []uint64
	n := int(c.b[0])
	c.b = c.b[1:]
	for range n {
		_, ok := c.uleb()
		form, ok2 := c.uleb()
		if !ok || !ok2 {
			return false
		}
		forms = append(forms, form)
	}
	count, ok := c.uleb()
	if !ok || count > uint64(len(c.b)) || count > 0 && n == 0 {
		return false
	}
	for range count {
		before := len(c.b)
		for _, f := range forms {
			if !c.skip(f) {
				return false
			}
		}
		if len(c.b) == before {
			return false // names of no size
		}
	}
	return true
}

// skip walks over one value.
func (c *counter) skip(form uint64) bool {
	const (
		data2, data4, data8, str, block, data1    = 0x05, 0x06, 0x07, 0x08, 0x09, 0x0b
		strp, udata, data16, lineStrp, strx1, sx2 = 0x0e, 0x0f, 0x1e, 0x1f, 0x25, 0x26
	)
	var size uint64
	switch form {
	case data1, strx1:
		size = 1
	case data2, sx2:
		size = 2
	case data4, strp, lineStrp:
		size = 4
	case data8:
		size = 8
	case data16:
		size = 16
	case udata:
		_, ok := c.uleb()
		return ok
	case block:
		n, ok := c.uleb()
		if !ok {
			return false
		}
		size = n
	case str:
		for size < uint64(len(c.b)) && c.b[size] != 0 {
			size++
		}
		size++
	default:
		return false
	}
	if size > uint64(len(c.b)) {
		return false
	}
	c.b = c.b[size:]
	return true
}

// sourceFile makes a file's name safe to print and bounds it.
func sourceFile(name string) string {
	return cleanTo(name, maxPath)
}

// sourceLine bounds a line number.
func sourceLine(n int) int {
	if n < 0 || n > 1<<31-1 {
		return 0
	}
	return n
}
