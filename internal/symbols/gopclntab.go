package symbols

import (
	"debug/elf"
	"encoding/binary"
	"io"
	"strings"
)

// fromGo fills t from the table that Go programs carry for their own
// tracebacks, which strip leaves in place. debug/gosym reads it too, but
// allocates what the file's header asks for, and needs the start of the text,
// which is not that of .text where a C toolchain linked the program.
//
// Understood are the tables of Go 1.18 and later.
func fromGo(t *table, f *elf.File, r io.ReaderAt, maxSymbols int) bool {
	section := goSection(f)
	if section == nil || section.FileSize > maxGoTable {
		return false
	}
	data, err := readAt(r, section.Offset, section.FileSize)
	if err != nil {
		return false
	}
	h, ok := parsePclntab(data, f.ByteOrder)
	if !ok {
		return false
	}
	text, ok := goText(f, h)
	if !ok {
		first, last := h.span(data, f.ByteOrder)
		if text, _, ok = goModule(f, r, section.Addr, first, last); !ok {
			return false
		}
	}
	symbols := h.symbols(data, f.ByteOrder, text, maxSymbols)
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

// pclntab is the header of a Go function table; fields are offsets in it.
type pclntab struct {
	count     uint64 // of functions
	textStart uint64 // 0 from Go 1.26 on, and in relocatable programs
	names     uint64
	units     uint64 // compilation units: the table after names
	files     uint64
	pcs       uint64 // tables of values by instruction
	functions uint64
}

const (
	pclntab118 = 0xfffffff0
	pclntab120 = 0xfffffff1
)

func parsePclntab(data []byte, order binary.ByteOrder) (h pclntab, ok bool) {
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
	n := uint64(len(data))
	ok = h.names < h.units && h.units <= n && h.functions <= n && n-h.functions >= 4 && h.count <= (n-h.functions-4)/8
	return h, ok
}

// goText finds the address that function entries count from.
func goText(f *elf.File, h pclntab) (uint64, bool) {
	text := f.Section(".text")
	if text == nil {
		return 0, false
	}
	if h.textStart >= text.Addr && h.textStart-text.Addr < text.Size {
		return h.textStart, true
	}
	// Where a C toolchain linked the program, its start-up code comes first:
	// no names are better than wrong ones.
	if f.Section(".init") != nil || f.Section(".eh_frame") != nil {
		return 0, false
	}
	return text.Addr, true
}

// span is where the first function begins and the last one ends.
func (h pclntab) span(data []byte, order binary.ByteOrder) (first, last uint32) {
	functions := data[h.functions:]
	return order.Uint32(functions), order.Uint32(functions[h.count*8:])
}

// symbols reads the pairs of entry offset and function record; a record
// begins with the entry offset again and the offset of the name.
func (h pclntab) symbols(data []byte, order binary.ByteOrder, text uint64, maxSymbols int) []symbol {
	functions := data[h.functions:] // the pair after the last begins with the end of the text
	out := make([]symbol, 0, min(h.count, uint64(maxSymbols)))
	for i := range min(h.count, uint64(maxSymbols)) {
		entry, record := order.Uint32(functions[i*8:]), uint64(order.Uint32(functions[i*8+4:]))
		next := order.Uint32(functions[i*8+8:])
		if record+8 > uint64(len(functions)) || next <= entry {
			continue
		}
		out = append(out, symbol{text + uint64(entry), next - entry, order.Uint32(functions[record+4:])})
	}
	return out
}
