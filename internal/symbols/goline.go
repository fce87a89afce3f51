package symbols

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sort"
	"strings"
)

const maxGoSteps = 1 << 20 // steps in one pc-value table

var errNoGo = errors.New("no function table of Go 1.18 or later")

// goData reads lines and inlined functions from Go's function table, which stripped
// programs keep.
type goData struct {
	file    *mapped
	table   []byte
	h       pclntab
	text    uint64
	inlines []byte // funcdata, or nil if unknown
	quantum uint64 // size of the smallest instruction
}

// openGo does not take ownership of the file.
func openGo(m *mapped) (*goData, error) {
	s := goSection(m.elf)
	if s == nil || m.elf.ByteOrder != binary.LittleEndian {
		return nil, errNoGo
	}
	b, err := m.slice(s.Offset, s.FileSize)
	if err != nil {
		return nil, err
	}
	h, ok := parsePclntab(b, uint64(len(b)), m.elf.ByteOrder)
	n := uint64(len(b))
	if !ok || h.count == 0 || h.units > h.files || h.files > h.pcs || h.pcs > n {
		return nil, errNoGo
	}
	g := &goData{file: m, table: b, h: h, quantum: uint64(max(b[6], 1))}
	first, last := h.span(&sectionReader{r: bytes.NewReader(m.data), start: s.Offset, size: s.FileSize, order: m.elf.ByteOrder})
	text, data, found := goModule(m.elf, bytes.NewReader(m.data), s.Addr, first, last)
	if g.text, ok = goText(m.elf, h); !ok {
		g.text = text
	}
	if !ok && !found {
		return nil, errNoGo
	}
	if found && g.hasInlines() {
		g.inlines = m.at(data)
	}
	return g, nil
}

// hasInlines reports whether the inline tree has the format of Go 1.21 and later.
func (g *goData) hasInlines() bool {
	if binary.LittleEndian.Uint32(g.table) != pclntab120 {
		return false
	}
	version := goVersion(g.file)
	return version != "go1.20" && !strings.HasPrefix(version, "go1.20.")
}

// goVersion returns the compiler's version, for Go 1.18 and later, or "".
// debug/buildinfo is not used because of debug/elf.
func goVersion(m *mapped) string {
	b, err := m.section(".go.buildinfo", 0)
	const header, inline = 32, 2
	if err != nil || len(b) < header || !bytes.HasPrefix(b, []byte("\xff Go buildinf:")) || b[15]&inline == 0 {
		return ""
	}
	c := cursor{b: b, at: header}
	const longest = 64
	return string(c.next(min(c.uleb(), longest)))
}

// at returns the program's data from an address to the end of the segment.
func (m *mapped) at(addr uint64) []byte {
	for _, s := range segments(m.elf) {
		if addr >= s.addr && addr-s.addr < s.size {
			b, err := m.slice(s.offset, s.size)
			if err != nil {
				return nil
			}
			return b[addr-s.addr:]
		}
	}
	return nil
}

// goFunction is a function record.
type goFunction struct {
	b     []byte // starting with the record
	entry uint64
	size  uint64
}

func (f goFunction) word(i int) uint32 {
	if len(f.b) < i*4+4 {
		return 0
	}
	return binary.LittleEndian.Uint32(f.b[i*4:])
}

// Indexes of words in a function record; those after startLine since Go 1.20.
const (
	goNameWord = 1
	goFileWord = 5
	goLineWord = 6
	goPCData   = 7 // number of pcdata tables
	goUnitWord = 8
	goKindWord = 10 // the last byte is the number of funcdata
	goDataWord = 11
)

// function finds the function at an address.
func (g *goData) function(addr uint64) (f goFunction, ok bool) {
	functions := g.table[g.h.functions:]
	word := func(i uint64) uint32 { return binary.LittleEndian.Uint32(functions[i*4:]) }
	off := addr - g.text
	if addr < g.text || off > 1<<32-1 {
		return f, false
	}
	i := sort.Search(int(g.h.count), func(i int) bool { return uint64(word(uint64(i)*2)) > off })
	if i == 0 {
		return f, false
	}
	at := uint64(i-1) * 2
	entry, next, record := uint64(word(at)), uint64(word(at+2)), uint64(word(at+1))
	if off >= next || record+44 > uint64(len(functions)) {
		return f, false
	}
	return goFunction{functions[record:], entry, next - entry}, true
}

// value looks up an instruction in a pc-value table.
func (g *goData) value(table uint32, pc uint64) int32 {
	b := g.table[g.h.pcs:]
	if table == 0 || uint64(table) >= uint64(len(b)) {
		return -1
	}
	b = b[table:]
	value, at := int32(-1), uint64(0)
	for i := range maxGoSteps {
		delta, n := binary.Uvarint(b)
		if n <= 0 || delta == 0 && i > 0 {
			return -1
		}
		b = b[n:]
		value += int32(-(uint32(delta) & 1) ^ (uint32(delta) >> 1))
		step, n := binary.Uvarint(b)
		if n <= 0 {
			return -1
		}
		b = b[n:]
		if at += step * g.quantum; pc < at {
			return value
		}
	}
	return -1
}

func (g *goData) place(f goFunction, pc uint64) (file string, line int) {
	number, n := g.value(f.word(goFileWord), pc), g.value(f.word(goLineWord), pc)
	if number < 0 || n < 0 {
		return "", 0
	}
	units, files := g.table[g.h.units:g.h.files], g.table[g.h.files:g.h.pcs]
	at := (uint64(f.word(goUnitWord)) + uint64(number)) * 4
	if at+4 > uint64(len(units)) {
		return "", 0
	}
	name := uint64(binary.LittleEndian.Uint32(units[at:]))
	if name >= uint64(len(files)) {
		return "", 0
	}
	return sourceFile(zeroEnded(files[name:], maxPathRead)), sourceLine(int64(n))
}

// chain returns the functions that contain an address, innermost first.
func (g *goData) chain(addr uint64) []Inlined {
	f, ok := g.function(addr)
	if !ok {
		return nil
	}
	pc := addr - g.text - f.entry
	var out []Inlined
	for len(out) <= maxInlined {
		var i Inlined
		i.File, i.Line = g.place(f, pc)
		name, parent, ok := g.inlined(f, pc)
		i.Function = name
		out = append(out, i)
		if !ok {
			break
		}
		pc = parent
	}
	if last := out[len(out)-1]; last.Function != "" || last.File == "" {
		return nil // damaged
	}
	return out
}

// inlined returns the function inlined at an instruction, and the instruction of its
// call.
func (g *goData) inlined(f goFunction, pc uint64) (name string, parent uint64, ok bool) {
	const treeTable, treeData, entrySize = 2, 3, 16
	tables, data := f.word(goPCData), f.word(goKindWord)>>24
	if g.inlines == nil || tables <= treeTable || tables > 64 || data <= treeData {
		return "", 0, false
	}
	tree := f.word(goDataWord + int(tables) + treeData)
	index := g.value(f.word(goDataWord+treeTable), pc)
	at := uint64(tree) + uint64(max(index, 0))*entrySize
	if index < 0 || tree == 1<<32-1 || at+entrySize > uint64(len(g.inlines)) {
		return "", 0, false
	}
	e := g.inlines[at:]
	names := g.table[g.h.names:g.h.units]
	n := uint64(binary.LittleEndian.Uint32(e[4:]))
	parent = uint64(binary.LittleEndian.Uint32(e[8:]))
	if n == 0 || n >= uint64(len(names)) || names[n-1] != 0 || parent >= f.size {
		return "", 0, false // unknown location
	}
	name = printableName(zeroEnded(names[n:], maxMangled))
	return name, parent, name != ""
}

func (g *goData) source(addr uint64) *Source {
	chain := g.chain(addr)
	if len(chain) == 0 {
		return nil
	}
	return sourceOf(chain)
}

// zeroEnded returns the text up to a NUL byte, bounded.
func zeroEnded(b []byte, most int) string {
	b = b[:min(len(b), most)]
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(b)
}
