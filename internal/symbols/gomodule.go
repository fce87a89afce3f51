package symbols

import (
	"debug/elf"
	"io"
)

const (
	maxGoModule    = 16 << 20 // size limit of sections searched for Go's module data
	maxModuleWords = 64       // words of module data examined
	goFuncWord     = 40       // index of gofunc since Go 1.20
)

// goModule finds the base address of function entries in programs linked by a C
// toolchain, whose start-up code precedes Go's. Since Go 1.26, and in PIE, the function
// table does not contain it, but module data does: it starts with the address of the
// function table, and contains the start and end of text, recognizable by their
// difference. It also contains the base of funcdata (0: unknown).
func goModule(f *elf.File, r io.ReaderAt, table uint64, first, last uint32) (text, data uint64, ok bool) {
	if f.Class != elf.ELFCLASS64 || last <= first {
		return 0, 0, false
	}
	for _, name := range []string{".go.module", ".noptrdata", ".data"} {
		s := f.Section(name)
		if s == nil || s.Type != elf.SHT_PROGBITS || s.FileSize > maxGoModule {
			continue
		}
		b, err := readAt(r, s.Offset, s.FileSize)
		if err != nil {
			continue
		}
		relocate(f, r, s.Addr, b)
		word := func(i int) uint64 { return f.ByteOrder.Uint64(b[i*8:]) }
		words := len(b) / 8
		for i := range words {
			if word(i) != table {
				continue
			}
			for j := i + 1; j+1 < min(words, i+maxModuleWords); j++ {
				if word(j+1)-word(j) == uint64(last-first) && word(j) > uint64(first) {
					if i+goFuncWord < words {
						data = word(i + goFuncWord)
					}
					return word(j) - uint64(first), data, true
				}
			}
		}
	}
	return 0, 0, false
}

// relocate applies dynamic relocations to a section's data, with load address zero.
func relocate(f *elf.File, r io.ReaderAt, addr uint64, data []byte) {
	var relative uint32
	switch f.Machine {
	case elf.EM_X86_64:
		relative = uint32(elf.R_X86_64_RELATIVE)
	case elf.EM_AARCH64:
		relative = uint32(elf.R_AARCH64_RELATIVE)
	default:
		return
	}
	const entry = 24 // offset, info, addend
	s := f.Section(".rela.dyn")
	if s == nil || s.Type != elf.SHT_RELA || s.FileSize > maxSection || s.Offset > 1<<62 {
		return
	}
	chunk := make([]byte, 1024*entry)
	for at := uint64(0); at+entry <= s.FileSize; at += uint64(len(chunk)) {
		n, _ := r.ReadAt(chunk[:min(uint64(len(chunk)), s.FileSize-at)], int64(s.Offset+at))
		if n < entry {
			return
		}
		for b := chunk[:n]; len(b) >= entry; b = b[entry:] {
			to := f.ByteOrder.Uint64(b) - addr
			if uint32(f.ByteOrder.Uint64(b[8:])) == relative && to < uint64(len(data)) && uint64(len(data))-to >= 8 { //nolint:gocritic // the type is the low half of that word
				copy(data[to:], b[16:24])
			}
		}
	}
}
