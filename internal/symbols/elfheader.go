package symbols

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
)

// Limits of ELF headers: 2 MiB of sections, as much of names.
const (
	maxELFSections  = 1 << 14 // usually about 50
	maxELFSegments  = 1 << 10
	maxSectionNames = 1 << 20 // bytes
	maxSectionName  = 64      // bytes; those needed are shorter
)

// newELF reads the headers of an untrusted ELF file. debug/elf copies the name of each
// section, and as names may overlap, 16 MiB of headers can take 200 GiB; it also reads
// compressed sections.
//
// Sections have headers only; the caller reads their data. What exceeds the limits is
// left out.
func newELF(r io.ReaderAt) (*elf.File, error) {
	var ident [64]byte
	if n, err := r.ReadAt(ident[:], 0); n < len(ident) {
		return nil, fmt.Errorf("parse ELF file: read header: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	if string(ident[:4]) != elf.ELFMAG {
		return nil, fmt.Errorf("parse ELF file: bad magic number %q", ident[:4])
	}
	f := &elf.File{}
	f.Class, f.Data, f.Version = elf.Class(ident[4]), elf.Data(ident[5]), elf.Version(ident[6])
	f.OSABI, f.ABIVersion = elf.OSABI(ident[7]), ident[8]
	switch f.Data {
	case elf.ELFDATA2LSB:
		f.ByteOrder = binary.LittleEndian
	case elf.ELFDATA2MSB:
		f.ByteOrder = binary.BigEndian
	default:
		return nil, fmt.Errorf("parse ELF file: unknown byte order %d", f.Data)
	}
	if f.Class != elf.ELFCLASS32 && f.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("parse ELF file: unknown class %d", f.Class)
	}
	h := words{b: ident[:], order: f.ByteOrder, wide: f.Class == elf.ELFCLASS64, at: 16}
	f.Type, f.Machine = elf.Type(h.u16()), elf.Machine(h.u16())
	h.u32()
	f.Entry = h.word()
	phoff, shoff := h.word(), h.word()
	h.u32()
	h.u16()
	phentsize, phnum := uint64(h.u16()), uint64(h.u16())
	shentsize, shnum, shstrndx := uint64(h.u16()), uint64(h.u16()), uint64(h.u16())

	progs, err := headerTable(r, phoff, phentsize, min(phnum, maxELFSegments), h.choose(32, 56))
	if err != nil {
		return nil, fmt.Errorf("parse ELF file: read segments: %w", err)
	}
	for ; len(progs) > 0; progs = progs[phentsize:] {
		f.Progs = append(f.Progs, &elf.Prog{ProgHeader: h.over(progs).prog()})
	}
	if shoff == 0 {
		return f, nil
	}
	if shnum == 0 || shstrndx == 0xffff { // too many for the header: stored in the first section
		first, err := headerTable(r, shoff, shentsize, 1, h.choose(40, 64))
		if err != nil {
			return nil, fmt.Errorf("parse ELF file: read sections: %w", err)
		}
		_, s := h.over(first).section()
		if shnum == 0 {
			shnum = s.FileSize
		}
		if shstrndx == 0xffff {
			shstrndx = uint64(s.Link)
		}
	}
	text, err := headerTable(r, shoff, shentsize, min(shnum, maxELFSections), h.choose(40, 64))
	if err != nil {
		return nil, fmt.Errorf("parse ELF file: read sections: %w", err)
	}
	var names []uint32
	for ; len(text) > 0; text = text[shentsize:] {
		name, s := h.over(text).section()
		names, f.Sections = append(names, name), append(f.Sections, &elf.Section{SectionHeader: s})
	}
	if shstrndx >= uint64(len(f.Sections)) {
		return f, nil
	}
	s := f.Sections[shstrndx]
	if s.Type != elf.SHT_STRTAB || s.FileSize > maxSectionNames {
		return nil, fmt.Errorf("parse ELF file: names of sections are %w", errTooLarge)
	}
	all, err := readAt(r, s.Offset, s.FileSize)
	if err != nil {
		return nil, fmt.Errorf("parse ELF file: read names of sections: %w", err)
	}
	for i, at := range names {
		f.Sections[i].Name = textAt(all, uint64(at), maxSectionName)
	}
	return f, nil
}

// headerTable reads n entries of a size of at least need bytes.
func headerTable(r io.ReaderAt, at, size, n, need uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if size < need || size > 1<<10 {
		return nil, fmt.Errorf("entries of %d bytes", size)
	}
	return readAt(r, at, n*size)
}

// words reads header fields of either word size. The caller checks the length.
type words struct {
	b     []byte
	order binary.ByteOrder
	wide  bool // 64-bit
	at    int
}

func (w words) over(b []byte) *words { return &words{b: b, order: w.order, wide: w.wide} }

func (w words) choose(narrow, wide uint64) uint64 {
	if w.wide {
		return wide
	}
	return narrow
}

func (w *words) u16() uint16 { w.at += 2; return w.order.Uint16(w.b[w.at-2:]) }
func (w *words) u32() uint32 { w.at += 4; return w.order.Uint32(w.b[w.at-4:]) }

func (w *words) word() uint64 {
	if !w.wide {
		return uint64(w.u32())
	}
	w.at += 8
	return w.order.Uint64(w.b[w.at-8:])
}

func (w *words) prog() (p elf.ProgHeader) {
	p.Type = elf.ProgType(w.u32())
	if w.wide {
		p.Flags = elf.ProgFlag(w.u32())
	}
	p.Off, p.Vaddr, p.Paddr, p.Filesz, p.Memsz = w.word(), w.word(), w.word(), w.word(), w.word()
	if !w.wide {
		p.Flags = elf.ProgFlag(w.u32())
	}
	p.Align = w.word()
	return p
}

func (w *words) section() (name uint32, s elf.SectionHeader) {
	name = w.u32()
	s.Type, s.Flags = elf.SectionType(w.u32()), elf.SectionFlag(uint32(w.word()))
	s.Addr, s.Offset, s.FileSize = w.word(), w.word(), w.word()
	s.Size = s.FileSize
	s.Link, s.Info = w.u32(), w.u32()
	s.Addralign, s.Entsize = w.word(), w.word()
	return name, s
}
