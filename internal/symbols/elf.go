package symbols

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// Limits per file.
const (
	maxRead         = 16 << 20  // bytes read at once
	maxSection      = 128 << 20 // symbol table, which is streamed: 5 million symbols
	maxGoTable      = 256 << 20 // .gopclntab, which is streamed as well
	maxStrings      = 1 << 32   // names have 32-bit offsets
	maxSegments     = 256
	maxCodeSections = 4096
	maxNotes        = 64 << 10
	maxTries        = 4 // sections of the same kind that are tried
)

var errTooLarge = errors.New("too large")

// readTable reads the functions of an untrusted ELF file from .symtab, or else Go's
// table, or else .dynsym and .gnu_debugdata. Without functions the table still has
// segments.
func readTable(r io.ReaderAt, maxSymbols int) (t *table, err error) {
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, fmt.Errorf("parse ELF file: %v", p)
		}
	}()
	f, err := newELF(r)
	if err != nil {
		return nil, err
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return nil, fmt.Errorf("parse ELF file: %v is neither program nor library", f.Type)
	}
	t = &table{segments: segments(f), buildID: buildID(f, r)}
	t.debug.buildID = t.buildID
	t.debug.link, t.debug.crc = debugLink(f, r)
	t.hasLines = hasLines(f)
	t.hasGo = goSection(f) != nil
	if t.full = fromSymtab(t, f, r, elf.SHT_SYMTAB, maxSymbols); t.full {
		return t, nil
	}
	if t.full = fromGo(t, f, r, maxSymbols); t.full {
		return t, nil
	}
	fromSymtab(t, f, r, elf.SHT_DYNSYM, maxSymbols)
	_ = miniDebug(f, r, func(mini []byte) { // otherwise only exported functions have names
		t.full = t.addMini(bytes.NewReader(mini), codeSections(f), maxSymbols)
	})
	return t, nil
}

// hasLines reports whether the file contains DWARF.
func hasLines(f *elf.File) bool {
	s := f.Section(".debug_info")
	return s != nil && s.Type != elf.SHT_NOBITS
}

// addMini adds the functions of .gnu_debugdata.
func (t *table) addMini(r io.ReaderAt, sections []extent, maxSymbols int) bool {
	f, err := newELF(r)
	if err != nil {
		return false
	}
	mini := &table{}
	if !fromSymtab(mini, f, r, elf.SHT_SYMTAB, maxSymbols) || mini.strings == nil || t.stringsN > 0 && t.strings == nil {
		return false
	}
	base := uint32(len(t.strings))
	t.symbols = slices.Grow(t.symbols, len(mini.symbols))
	for _, s := range mini.symbols {
		s.name += base
		t.symbols = append(t.symbols, s)
	}
	t.strings = append(slices.Clone(t.strings), mini.strings...)
	t.stringsN = int64(len(t.strings))
	t.setSymbols(t.symbols, sections)
	return true
}

// addDebug adds the symbols of the separate debug file.
func (t *table) addDebug(r io.ReaderAt, maxSymbols int) {
	f, err := newELF(r)
	if err != nil {
		return
	}
	own := &table{}
	if fromSymtab(own, f, r, elf.SHT_SYMTAB, maxSymbols) && own.strings != nil {
		t.symbols, t.strings, t.stringsAt, t.stringsN = own.symbols, own.strings, 0, own.stringsN
	}
}

func segments(f *elf.File) []segment {
	var out []segment
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Filesz == 0 {
			continue
		}
		if len(out) == maxSegments {
			break
		}
		out = append(out, segment{p.Off, p.Filesz, p.Vaddr, p.Flags&elf.PF_X != 0})
	}
	return out
}

// buildID returns the GNU build-id in hex, or "".
func buildID(f *elf.File, r io.ReaderAt) string {
	tries := 0
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > maxNotes {
			continue
		}
		if tries++; tries > maxTries {
			break
		}
		notes, err := readAt(r, p.Off, p.Filesz)
		if err != nil {
			continue
		}
		if id := noteBuildID(notes, f.ByteOrder); id != "" {
			return id
		}
	}
	return ""
}

// noteBuildID finds the GNU build-id among notes.
func noteBuildID(notes []byte, order binary.ByteOrder) string {
	for len(notes) >= 12 {
		nameN, descN := uint64(order.Uint32(notes)), uint64(order.Uint32(notes[4:]))
		kind := order.Uint32(notes[8:])
		notes = notes[12:]
		desc := (nameN + 3) &^ 3
		end := desc + (descN+3)&^3
		if end > uint64(len(notes)) {
			break
		}
		const gnuBuildID = 3
		if kind == gnuBuildID && bytes.Equal(notes[:nameN], []byte("GNU\x00")) && descN <= 64 {
			return hex.EncodeToString(notes[desc : desc+descN])
		}
		notes = notes[end:]
	}
	return ""
}

// readAt reads exactly size bytes; the caller bounds size.
func readAt(r io.ReaderAt, offset, size uint64) ([]byte, error) {
	if offset > 1<<62 || size > maxRead {
		return nil, errTooLarge
	}
	if size == 0 {
		return nil, nil
	}
	// Read the last byte before allocating, as size is untrusted.
	var last [1]byte
	if n, err := r.ReadAt(last[:], int64(offset+size-1)); n == 0 {
		return nil, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	b := make([]byte, size)
	if n, err := r.ReadAt(b, int64(offset)); uint64(n) < size {
		return nil, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	return b, nil
}

// sectionData reads a section of a type, of at most so many bytes; nil: there is none.
func sectionData(f *elf.File, r io.ReaderAt, name string, kind elf.SectionType, most uint64) ([]byte, error) {
	s := f.Section(name)
	if s == nil || s.Type != kind || s.FileSize > most {
		return nil, nil
	}
	return readAt(r, s.Offset, s.FileSize)
}

// symtabs are the symbol tables of a type with their names, a few of them.
func symtabs(f *elf.File, kind elf.SectionType) iter.Seq2[*elf.Section, *elf.Section] {
	return func(yield func(symbols, names *elf.Section) bool) {
		tries := 0
		for _, s := range f.Sections {
			if s.Type != kind || s.Flags&elf.SHF_COMPRESSED != 0 || s.FileSize > maxSection || int64(s.Link) >= int64(len(f.Sections)) {
				continue
			}
			if tries++; tries > maxTries || !yield(s, f.Sections[s.Link]) {
				return
			}
		}
	}
}

// fromSymtab fills t from the first symbol table of a type that has functions.
func fromSymtab(t *table, f *elf.File, r io.ReaderAt, kind elf.SectionType, maxSymbols int) bool {
	for s, names := range symtabs(f, kind) {
		if names.Type != elf.SHT_STRTAB || names.Flags&elf.SHF_COMPRESSED != 0 || names.FileSize > maxStrings || names.Offset > 1<<62 {
			continue
		}
		symbols, err := functions(f, r, s, maxSymbols)
		if err != nil || len(symbols) == 0 {
			continue
		}
		if t.setNames(r, names.Offset, names.FileSize) != nil {
			continue
		}
		t.setSymbols(symbols, codeSections(f))
		return true
	}
	return false
}

// setNames loads the string table if it is small.
func (t *table) setNames(r io.ReaderAt, offset, size uint64) error {
	var text []byte
	var err error
	if size <= maxNamesInMemory {
		text, err = readAt(r, offset, size)
	} else {
		_, err = readAt(r, offset+size-1, 1) // the size is untrusted
	}
	if err != nil {
		return err
	}
	t.strings, t.stringsAt, t.stringsN = text, int64(offset), int64(size)
	return nil
}

// setSymbols sorts the functions. One without a size, as in assembly, ends at the next
// function or the end of the section.
func (t *table) setSymbols(symbols []symbol, sections []extent) {
	slices.SortFunc(symbols, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.size, b.size), cmp.Compare(a.name, b.name))
	})
	end := uint64(1<<64 - 1) // start of the next function
	for i := len(symbols) - 1; i >= 0; i-- {
		s := &symbols[i]
		if i+1 < len(symbols) && symbols[i+1].start > s.start {
			end = symbols[i+1].start
		}
		if s.size == 0 {
			s.size = uint32(min(end-s.start, room(sections, s.start), 1<<32-1))
		}
	}
	t.symbols = symbols
}

// extent is an address range, end exclusive.
type extent struct{ start, end uint64 }

func codeSections(f *elf.File) []extent {
	var out []extent
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 && s.Addr+s.Size > s.Addr && len(out) < maxCodeSections {
			out = append(out, extent{s.Addr, s.Addr + s.Size})
		}
	}
	slices.SortFunc(out, func(a, b extent) int { return cmp.Compare(a.start, b.start) })
	return out
}

// room returns the distance from addr to the end of its section.
func room(sections []extent, addr uint64) uint64 {
	i, ok := slices.BinarySearchFunc(sections, addr, func(e extent, a uint64) int { return cmp.Compare(e.start, a) })
	if !ok {
		i--
	}
	if i < 0 || addr >= sections[i].end {
		return 0
	}
	return sections[i].end - addr
}

// functions streams the symbol table twice: to count the functions, then to store them
// in one allocation.
func functions(f *elf.File, r io.ReaderAt, s *elf.Section, maxSymbols int) ([]symbol, error) {
	n := 0
	err := eachFunction(f, r, s, func(symbol) bool {
		n++
		return n < maxSymbols
	})
	if err != nil || n == 0 {
		return nil, err
	}
	out := make([]symbol, 0, n)
	err = eachFunction(f, r, s, func(sym symbol) bool {
		out = append(out, sym)
		return len(out) < n
	})
	return out, err
}

func eachFunction(f *elf.File, r io.ReaderAt, s *elf.Section, yield func(symbol) bool) error {
	entry := elf.Sym64Size
	if f.Class == elf.ELFCLASS32 {
		entry = elf.Sym32Size
	}
	if s.Offset > 1<<62 {
		return errTooLarge
	}
	section := io.NewSectionReader(r, int64(s.Offset), int64(s.FileSize))
	chunk := make([]byte, 2048*entry)
	for at := int64(0); at < section.Size(); {
		n, err := section.ReadAt(chunk, at)
		if err != nil && err != io.EOF {
			return err
		}
		if n < entry {
			break
		}
		for b := chunk[:n]; len(b) >= entry; b = b[entry:] {
			if sym, ok := function(f, b); ok && !yield(sym) {
				return nil
			}
		}
		at += int64(n - n%entry)
	}
	return nil
}

// function decodes a symbol that is a function, or a global label in code, as in
// assembly without types.
func function(f *elf.File, b []byte) (symbol, bool) {
	var (
		name        uint32
		info        byte
		index       elf.SectionIndex
		value, size uint64
	)
	order := f.ByteOrder
	if f.Class == elf.ELFCLASS32 {
		name, value, size = order.Uint32(b), uint64(order.Uint32(b[4:])), uint64(order.Uint32(b[8:]))
		info, index = b[12], elf.SectionIndex(order.Uint16(b[14:]))
	} else {
		name, info, index = order.Uint32(b), b[4], elf.SectionIndex(order.Uint16(b[6:]))
		value, size = order.Uint64(b[8:]), order.Uint64(b[16:])
	}
	if index == elf.SHN_UNDEF || index == elf.SHN_ABS || index == elf.SHN_COMMON || name == 0 {
		return symbol{}, false
	}
	switch elf.ST_TYPE(info) {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
	case elf.STT_NOTYPE:
		if elf.ST_BIND(info) == elf.STB_LOCAL || int(index) >= len(f.Sections) || f.Sections[index].Flags&elf.SHF_EXECINSTR == 0 {
			return symbol{}, false
		}
	default:
		return symbol{}, false
	}
	return symbol{value, uint32(min(size, 1<<32-1)), name}, true
}
