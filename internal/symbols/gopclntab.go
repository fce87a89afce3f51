package symbols

import (
	"debug/elf"
	"encoding/binary"
	"io"
	"strings"
)

// fromGo fills t from Go's function table, which strip does not remove. debug/gosym
// trusts the sizes in its header, and needs the start of Go's text, which differs from
// .text in programs linked by a C toolchain.
//
// Supports Go 1.18 and later.
func fromGo(t *table, f *elf.File, r io.ReaderAt, maxSymbols int) bool {
	section := goSection(f)
	if section == nil || section.FileSize > maxGoTable {
		return false
	}
	head, err := readAt(r, section.Offset, min(section.FileSize, pclntabHeader))
	if err != nil {
		return false
	}
	h, ok := parsePclntab(head, section.FileSize, f.ByteOrder)
	if !ok {
		return false
	}
	// The table consists of pairs and of the records they refer to.
	pairs := &sectionReader{r: r, start: section.Offset, size: section.FileSize, order: f.ByteOrder}
	records := &sectionReader{r: r, start: section.Offset, size: section.FileSize, order: f.ByteOrder}
	text, ok := goText(f, h)
	if !ok {
		first, last := h.span(pairs)
		if text, _, ok = goModule(f, r, section.Addr, first, last); !ok {
			return false
		}
	}
	symbols := h.symbols(pairs, records, text, maxSymbols)
	if len(symbols) == 0 || t.setNames(r, section.Offset+h.names, h.units-h.names) != nil {
		return false
	}
	t.setSymbols(symbols, nil)
	return true
}

func goSection(f *elf.File) *elf.Section {
	for _, s := range f.Sections {
		if strings.HasSuffix(s.Name, ".gopclntab") && s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_COMPRESSED == 0 {
			return s
		}
	}
	return nil
}

// pclntab is the header of a Go function table; fields are offsets.
type pclntab struct {
	count     uint64 // number of functions
	textStart uint64 // 0 since Go 1.26, and in PIE
	names     uint64
	units     uint64 // compilation units: the table after names
	files     uint64
	pcs       uint64 // pc-value tables
	functions uint64
}

const (
	pclntab118 = 0xfffffff0
	pclntab120 = 0xfffffff1
)

// pclntabHeader is the maximum header size.
const pclntabHeader = 8 + 8*8

// parsePclntab parses the header of a table of n bytes.
func parsePclntab(data []byte, n uint64, order binary.ByteOrder) (h pclntab, ok bool) {
	if len(data) < 8 || data[4] != 0 || data[5] != 0 || data[7] != 4 && data[7] != 8 {
		return h, false
	}
	if magic := order.Uint32(data); magic != pclntab118 && magic != pclntab120 {
		return h, false
	}
	size := int(data[7])
	if len(data) < 8+8*size {
		return h, false
	}
	word := func(i int) uint64 {
		if size == 4 {
			return uint64(order.Uint32(data[8+i*size:]))
		}
		return order.Uint64(data[8+i*size:])
	}
	// count, files, text start, names, compilation units, file names, pc tables, functions
	h = pclntab{count: word(0), textStart: word(2), names: word(3), units: word(4), files: word(5), pcs: word(6), functions: word(7)}
	ok = h.names < h.units && h.units <= n && h.functions <= n && n-h.functions >= 4 && h.count <= (n-h.functions-4)/8
	return h, ok
}

// goText finds the base address of function entries.
func goText(f *elf.File, h pclntab) (uint64, bool) {
	text := f.Section(".text")
	if text == nil {
		return 0, false
	}
	if h.textStart >= text.Addr && h.textStart-text.Addr < text.Size {
		return h.textStart, true
	}
	// After C start-up code the base is unknown: no names are better than wrong ones.
	if f.Section(".init") != nil || f.Section(".eh_frame") != nil {
		return 0, false
	}
	return text.Addr, true
}

// span returns the start of the first function and the end of the last one.
func (h pclntab) span(pairs *sectionReader) (first, last uint32) {
	last, _ = pairs.u32(h.functions + h.count*8)
	first, _ = pairs.u32(h.functions)
	return first, last
}

// symbols reads the pairs of entry offset and function record; a record starts with the
// entry offset and the offset of the name.
func (h pclntab) symbols(pairs, records *sectionReader, text uint64, maxSymbols int) []symbol {
	n := min(h.count, uint64(maxSymbols))
	if _, ok := pairs.u32(h.functions + n*8); !ok { // beyond the table
		return nil
	}
	out := make([]symbol, 0, n)
	entry, _ := pairs.u32(h.functions)
	for i := range n {
		at := h.functions + i*8
		record, ok := pairs.u32(at + 4)
		next, ok2 := pairs.u32(at + 8) // the last pair is followed by the end of text
		if !ok || !ok2 {
			break
		}
		if name, ok := records.u32(h.functions + uint64(record) + 4); ok && next > entry {
			out = append(out, symbol{text + uint64(entry), next - entry, name})
		}
		entry = next
	}
	return out
}
