package symbols

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"io"
	"sort"
	"strings"
)

// symbol is a function.
type symbol struct {
	start uint64 // ELF virtual address
	size  uint32
	name  uint32 // offset in the string table
}

// segment is a loadable segment.
type segment struct {
	offset, size, addr uint64
	executable         bool
}

// table is the functions of one ELF file. It is immutable.
type table struct {
	buildID  string
	segments []segment
	symbols  []symbol // by start
	// String table, nil if it is read from the file.
	strings             []byte
	stringsAt, stringsN int64

	id       contentID  // set by the cache
	full     bool       // symbols has all functions, not only exported ones
	hasLines bool       // the file contains DWARF
	hasGo    bool       // the file contains Go's function table
	debug    debugRef   // reference to the separate debug file
	debugAt  *debugPath // its location, or nil
}

const (
	maxNamesInMemory = 8 << 20 // bytes; larger string tables stay in the file
	maxAliases       = 16      // names considered per address
	maxOverlap       = 16      // symbols examined for one that contains the address
)

// bytes returns the approximate memory used.
func (t *table) bytes() int64 {
	return int64(len(t.symbols))*16 + int64(len(t.strings)) + int64(len(t.segments))*32 + 256
}

// address converts a file offset to an ELF virtual address.
func (t *table) address(offset uint64) (uint64, bool) {
	found := false
	var addr uint64
	for _, s := range t.segments {
		if offset >= s.offset && offset-s.offset < s.size {
			if s.executable {
				return s.addr + (offset - s.offset), true
			}
			if !found {
				addr, found = s.addr+(offset-s.offset), true
			}
		}
	}
	return addr, found
}

// find returns the name and start of the function at addr.
func (t *table) find(addr uint64, file io.ReaderAt) (name string, start uint64, ok bool) {
	i := sort.Search(len(t.symbols), func(i int) bool { return t.symbols[i].start > addr })
	for back := 0; i > 0 && back < maxOverlap; back++ {
		i--
		s := t.symbols[i]
		if addr-s.start < uint64(s.size) {
			if name := t.bestName(i, addr, file); name != "" {
				return name, s.start, true
			}
		}
	}
	return "", 0, false
}

// bestName selects among the symbols with the same start as symbol i that contain addr.
func (t *table) bestName(i int, addr uint64, file io.ReaderAt) string {
	start, best := t.symbols[i].start, ""
	for n := 0; i >= 0 && n < maxAliases && t.symbols[i].start == start; i, n = i-1, n+1 {
		if addr-start >= uint64(t.symbols[i].size) {
			continue
		}
		if name := t.name(t.symbols[i].name, file); name != "" && (best == "" || betterName(name, best)) {
			best = name
		}
	}
	return best
}

// betterName prefers fewer leading underscores (read, not __read) unless mangled, then
// shorter names, then lexical order.
func betterName(a, b string) bool {
	return cmp.Or(
		cmp.Compare(underscores(a), underscores(b)),
		cmp.Compare(len(a), len(b)),
		strings.Compare(a, b)) < 0
}

func underscores(name string) int {
	if strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R") {
		return 0
	}
	return len(name) - len(strings.TrimLeft(name, "_"))
}

func (t *table) name(offset uint32, file io.ReaderAt) string {
	var text []byte
	switch {
	case int64(offset) >= t.stringsN:
		return ""
	case t.strings != nil:
		text = t.strings[offset:]
	case file == nil:
		return ""
	default:
		text = make([]byte, min(maxMangled+1, t.stringsN-int64(offset)))
		n, _ := file.ReadAt(text, t.stringsAt+int64(offset))
		text = text[:n]
	}
	text = text[:min(len(text), maxMangled+1)]
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	if end := bytes.IndexByte(text, '@'); end > 0 && !t.hasGo {
		text = text[:end] // version of a library symbol
	}
	return string(text)
}

// identity identifies a table by build-id and content, as a build-id can be forged.
func (t *table) identity(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(t.buildID)
	var b [32]byte
	for _, s := range t.segments {
		binary.LittleEndian.PutUint64(b[0:], s.offset)
		binary.LittleEndian.PutUint64(b[8:], s.size)
		binary.LittleEndian.PutUint64(b[16:], s.addr)
		h.Write(b[:24])
	}
	binary.LittleEndian.PutUint64(b[0:], uint64(t.stringsAt))
	binary.LittleEndian.PutUint64(b[8:], uint64(t.stringsN))
	h.Write(b[:16])
	for _, s := range t.symbols {
		binary.LittleEndian.PutUint64(b[0:], s.start)
		binary.LittleEndian.PutUint32(b[8:], s.size)
		binary.LittleEndian.PutUint32(b[12:], s.name)
		h.Write(b[:16])
	}
	h.Write(t.strings)
	// The location of debug information is part of it.
	if t.hasLines {
		h.WriteByte(1)
	}
	if t.debugAt != nil {
		h.WriteString(t.debugAt.path)
	}
	return h.Sum64()
}
