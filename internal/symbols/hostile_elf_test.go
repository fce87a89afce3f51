package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// manySections is an ELF file of n sections, whose names all begin somewhere in
// one text of a length.
func manySections(n, text int) []byte {
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Phentsize: 56,
		Shoff: 64, Shentsize: 64, Shnum: uint16(n), Shstrndx: 1}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	names := elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: uint64(64 + n*64), Size: uint64(text)}
	_ = binary.Write(&b, binary.LittleEndian, h)
	for i := range n {
		s := elf.Section64{Name: uint32(i % 16), Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_COMPRESSED)}
		if i == 1 {
			s = names
		}
		_ = binary.Write(&b, binary.LittleEndian, s)
	}
	b.Write(bytes.Repeat([]byte{'n'}, text-1))
	b.WriteByte(0)
	return b.Bytes()
}

// sparse writes a file of a size, which costs its author nothing.
func sparse(t *testing.T, text []byte, size int64) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sparse")
	assert.NilError(t, os.WriteFile(path, text, 0o600))
	assert.NilError(t, os.Truncate(path, size))
	f, err := os.Open(path)
	assert.NilError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// wantTable reads a file's table within a memory, and checks what of it is kept.
func wantTable(t *testing.T, r readerAt, most int64, symbols int) {
	t.Helper()
	allocates(t, most, func() {
		table, err := readTable(r, 1<<20)
		if err != nil {
			t.Logf("refused: %v", err)
			assert.Check(t, symbols <= 0, "want symbols")
			return
		}
		assert.Check(t, len(table.symbols) >= symbols && table.bytes() <= 32<<20,
			"%d symbols, want %d; %d bytes are kept", len(table.symbols), symbols, table.bytes())
		for a := range uint64(100) {
			_, _, _ = table.find(a, r)
		}
	})
}

func TestHostileELFHeaders(t *testing.T) {
	for name, text := range map[string][]byte{
		"names that overlap, of 960 KB each": manySections(60_000, 960<<10),
		"names of 2 MB":                      manySections(100, 2<<20),
		"no sections but many":               manySections(0xfeff, 1),
	} {
		t.Run(name, func(t *testing.T) { wantTable(t, bytes.NewReader(text), 16<<20, 0) })
	}
	// Each section claims to be the symbol table, or what else is read whole.
	for _, kind := range []struct {
		name string
		elf.SectionType
	}{
		{".symtab", elf.SHT_SYMTAB}, {".gopclntab", elf.SHT_PROGBITS}, {".gnu_debugdata", elf.SHT_PROGBITS}, {".data", elf.SHT_PROGBITS},
		{".rela.dyn", elf.SHT_RELA}, {".note.gnu.build-id", elf.SHT_NOTE}, {".gnu_debuglink", elf.SHT_PROGBITS},
	} {
		t.Run("5,000 of "+kind.name, func(t *testing.T) {
			list := make([]section, 5000)
			for i := range list {
				list[i] = section{name: kind.name, Section64: elf.Section64{Type: uint32(kind.SectionType), Off: 64, Size: 1 << 22, Link: 1}}
			}
			wantTable(t, sparse(t, makeELF(list...), 1<<30), 32<<20, 0)
		})
	}
	t.Run("2^31 symbols", func(t *testing.T) {
		s := symtab("\x00f\x00", fn(0x1000, 0x10, 1))
		s[0].data, s[0].Off, s[0].Size = nil, 1<<20, 24<<31
		wantTable(t, sparse(t, makeELF(s...), 1<<37), 4<<20, 0)
	})
	t.Run("two million symbols", func(t *testing.T) {
		list := make([]elf.Sym64, 2<<20)
		for i := range list {
			list[i] = fn(uint64(i)*16+1, 16, 1)
		}
		wantTable(t, bytes.NewReader(makeELF(symtab("\x00f\x00", list...)...)), 24<<20, 1<<20)
	})
	t.Run("names of 4 GiB", func(t *testing.T) {
		s := symtab("\x00f\x00", fn(0x10, 0x1000, 1<<31))
		s[1].data, s[1].Off, s[1].Size = nil, 1<<20, 1<<32
		wantTable(t, sparse(t, makeELF(s...), 1<<33), 4<<20, 1)
	})
}

func TestHostileGoTable(t *testing.T) {
	table := func(count uint64) []byte {
		var b bytes.Buffer
		_ = binary.Write(&b, binary.LittleEndian, struct {
			Magic      uint32
			Rest       [4]byte
			Count, _   uint64
			Text       uint64
			Names      uint64
			Units      uint64
			Files, PCs uint64
			Functions  uint64
		}{Magic: pclntab120, Rest: [4]byte{0, 0, 1, 8}, Count: count, Names: 72, Units: 80, Files: 80, PCs: 80, Functions: 80})
		return b.Bytes()
	}
	program := func(text []byte, size uint64) []byte {
		list := []section{
			{name: ".text", Section64: elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_EXECINSTR), Addr: 0x401000}, data: make([]byte, 32)},
			{name: ".gopclntab", Section64: elf.Section64{Type: uint32(elf.SHT_PROGBITS), Off: 1 << 20, Size: size}},
		}
		out := makeELF(list...)
		out = append(out, make([]byte, 1<<20-len(out))...)
		return append(out, text...)
	}
	const size = 200 << 20
	for name, text := range map[string][]byte{
		"25 million functions":   table((size - 88) / 8),
		"2^60 functions":         table(1 << 60),
		"no functions":           table(0),
		"records all over it":    scattered(table(1 << 20)),
		"a header and no more":   table(1)[:40],
		"functions past the end": table(1 << 27),
	} {
		t.Run(name, func(t *testing.T) {
			f := sparse(t, program(text, size), size+1<<20)
			wantTable(t, f, 24<<20, 0)
			m, err := mapFile(f)
			assert.NilError(t, err)
			defer m.close()
			allocates(t, 4<<20, func() {
				g, err := openGo(m)
				if err != nil {
					return
				}
				for a := range uint64(1000) {
					_ = g.source(g.text + a*7)
				}
			})
		})
	}
}

// scattered adds pairs whose records lie far from each other.
func scattered(table []byte) []byte {
	var b bytes.Buffer
	b.Write(slices.Clip(table))
	b.Write(make([]byte, 80-len(table)+0))
	for i := range uint32(1 << 20) {
		_ = binary.Write(&b, binary.LittleEndian, [2]uint32{i * 4, (i * 2654435761) % (190 << 20)})
	}
	return b.Bytes()
}

// Packed symbols that take a gigabyte.
func TestHostileMiniDebug(t *testing.T) {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skipf("needs xz: %v", err)
	}
	for _, args := range []string{"-6", "--lzma2=dict=64MiB"} {
		out, err := exec.Command("sh", "-c", "head -c 40000000 /dev/zero | xz -c --check=none "+args).Output()
		assert.NilError(t, err)
		text := makeELF(section{name: ".gnu_debugdata", Section64: elf.Section64{Type: uint32(elf.SHT_PROGBITS)}, data: out})
		wantTable(t, bytes.NewReader(text), 16<<20, 0)
	}
}

// What one stack says is bounded, whatever the names and files of its frames are.
func TestStackIsBounded(t *testing.T) {
	addrs := make([]uint64, 127)
	out := newResult(addrs)
	for i := range addrs {
		out.set(i, strings.Repeat("y", maxName)+fmt.Sprintf("+0x%x (%s)", i, strings.Repeat("m", maxName)))
	}
	long := &Source{File: strings.Repeat("f", maxPath), Line: 1}
	for range maxInlined {
		long.Inlined = append(long.Inlined, Inlined{strings.Repeat("i", maxName), strings.Repeat("p", maxPath), 1})
	}
	for i := range addrs {
		out.setSource(i, long)
	}
	s := out.stack()
	total, marked := 0, false
	for i, f := range s.Frames {
		total += len(f) + s.Sources[i].size()
		marked = marked || strings.HasSuffix(f, truncatedSuffix)
	}
	assert.Check(t, total <= maxStackBytes+len(addrs)*16 && marked, "%d bytes; marked: %v", total, marked)
	if n := len(s.Sources[0].Inlined); n == 0 || n == maxInlined || !strings.HasSuffix(s.Sources[0].Inlined[n-1].Function, truncatedSuffix) {
		t.Errorf("the first frame has %d inlined functions, want some, and a mark that others are missing", n)
	}
	// An ordinary one stays whole.
	out = newResult(addrs[:60])
	for i := range 60 {
		out.set(i, "std::vector<int>::push_back+0x10 (libc.so.6)")
		out.setSource(i, &Source{File: "/usr/src/a/long/path/to/file.cc", Line: i, Inlined: []Inlined{{"f", "/usr/src/g.h", 1}, {"h", "/usr/src/i.h", 2}}})
	}
	for i, s := range out.stack().Sources {
		assert.Check(t, len(s.Inlined) == 2, "frame %d: got %+v", i, s)
	}
}

// The mangled names of C++ and Rust come from files, too.
func FuzzReadable(f *testing.F) {
	limitFuzz(f)
	for _, name := range []string{"_ZN3foo3barILi3EEEvRKSt6vectorIiSaIiEE", "_RNvC6_123foo3bar", "_ZN1aIS_IS_IS_EEEE1bEv", "_RINvC1a1bINvC1a1bINvC1a1bEEE"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		allocates(t, 4<<20, func() { wantPrintable(t, printableName(name)) })
	})
}
