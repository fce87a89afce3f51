package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

type section struct {
	name string
	elf.Section64
	data []byte
}

// makeELF writes a 64-bit program with the given sections, each at its own
// data, and one executable segment.
func makeELF(sections ...section) []byte {
	names := []byte{0}
	for i := range sections {
		sections[i].Name = uint32(len(names))
		names = append(append(names, sections[i].name...), 0)
	}
	shstrtab := uint32(len(names))
	names = append(names, ".shstrtab\x00"...)
	sections = append([]section{{}}, sections...)
	sections = append(sections, section{Section64: elf.Section64{Name: shstrtab, Type: uint32(elf.SHT_STRTAB)}, data: names})

	var body bytes.Buffer
	at := uint64(64 + 56)
	for i := range sections {
		s := &sections[i]
		if s.data != nil {
			s.Off, s.Size = at+uint64(body.Len()), uint64(len(s.data))
			body.Write(s.data)
		}
	}
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64,
		Phoff: 64, Phentsize: 56, Phnum: 1,
		Shoff: at + uint64(body.Len()), Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
	}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	var out bytes.Buffer
	write := func(v any) { _ = binary.Write(&out, binary.LittleEndian, v) }
	write(h)
	write(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Filesz: 1 << 20, Memsz: 1 << 20, Vaddr: 0x400000})
	out.Write(body.Bytes())
	for _, s := range sections {
		write(s.Section64)
	}
	return out.Bytes()
}

// tinyGo is a stripped program with a Go function table of two functions.
func tinyGo() []byte {
	var b bytes.Buffer
	write := func(v ...any) {
		for _, x := range v {
			_ = binary.Write(&b, binary.LittleEndian, x)
		}
	}
	write(uint32(pclntab120), []byte{0, 0, 1, 8})
	names := "\x00main.a\x00main.b\x00"
	start := uint64(8 + 8*8)
	functions := start + uint64(len(names))
	write(uint64(2), uint64(0), uint64(0), start, functions, functions, functions, functions)
	write([]byte(names))
	write(uint32(0), uint32(20), uint32(0x10), uint32(28), uint32(0x20)) // pairs and the end
	write(uint32(0), uint32(1), uint32(0x10), uint32(8))                 // records
	return makeELF(
		section{name: ".text", Section64: elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_EXECINSTR), Addr: 0x401000}, data: make([]byte, 32)},
		section{name: ".gopclntab", Section64: elf.Section64{Type: uint32(elf.SHT_PROGBITS)}, data: b.Bytes()},
	)
}

func TestTinyGo(t *testing.T) {
	table, err := readTable(bytes.NewReader(tinyGo()), 10)
	assert.NilError(t, err)
	for addr, want := range map[uint64]string{0x401000: "main.a", 0x40100f: "main.a", 0x401010: "main.b"} {
		got, _, _ := table.find(addr, nil)
		assert.Check(t, got == want, "0x%x: got %q, want %q", addr, got, want)
	}
}

func symtab(names string, symbols ...elf.Sym64) []section {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, symbols)
	return []section{
		{name: ".symtab", Section64: elf.Section64{Type: uint32(elf.SHT_SYMTAB), Link: 2, Entsize: 24}, data: b.Bytes()},
		{name: ".strtab", Section64: elf.Section64{Type: uint32(elf.SHT_STRTAB)}, data: []byte(names)},
	}
}

func fn(value, size uint64, name uint32) elf.Sym64 {
	return elf.Sym64{Name: name, Info: byte(elf.STT_FUNC), Shndx: 1, Value: value, Size: size}
}

func TestHostileELF(t *testing.T) {
	many := make([]elf.Sym64, 5000)
	for i := range many {
		many[i] = fn(uint64(i), 1, 1)
	}
	huge := func(change func(s []section)) []byte {
		s := symtab("\x00f\x00", fn(0x1000, 0x10, 1))
		change(s)
		return makeELF(s...)
	}
	for name, test := range map[string]struct {
		file    []byte
		symbols int
		bad     bool
	}{
		"good":              {makeELF(symtab("\x00f\x00", fn(0x1000, 0x10, 1))...), 1, false},
		"cap":               {makeELF(symtab("\x00f\x00", many...)...), 1000, false},
		"name past the end": {makeELF(symtab("\x00f\x00", fn(0x1000, 0x10, 1<<31))...), 1, false},
		"size wraps":        {makeELF(symtab("\x00f\x00", fn(1<<64-1, 1<<64-1, 1))...), 1, false},
		"link past the end": {huge(func(s []section) { s[0].Link = 1 << 30 }), 0, false},
		"strings a lie":     {huge(func(s []section) { s[1].data, s[1].Off, s[1].Size = nil, 100, 1<<24 }), 0, false},
		"symbols a lie":     {huge(func(s []section) { s[0].data, s[0].Off, s[0].Size = nil, 1<<40, 1<<26 }), 0, false},
		"symbols huge":      {huge(func(s []section) { s[0].data, s[0].Off, s[0].Size = nil, 0, 1<<50 }), 0, false},
		"empty":             {nil, 0, true},
		"not ELF":           {[]byte("#!/bin/sh\nexit 0\n"), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := readTable(bytes.NewReader(test.file), 1000)
			assert.Assert(t, (err != nil) == test.bad, "got error %v", err)
			if err != nil {
				return
			}
			assert.Check(t, len(table.symbols) == test.symbols,
				"got %d symbols, want %d", len(table.symbols), test.symbols)
			_, _, _ = table.find(1<<64-1, bytes.NewReader(test.file))
			_, _, _ = table.find(0x1001, bytes.NewReader(test.file))
		})
	}
}

// A sparse file is as large as it says, and costs its author nothing.
func TestSparseELF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse")
	b := makeELF(symtab("\x00f\x00", fn(0x1000, 0x10, 1))...)
	shoff := binary.LittleEndian.Uint64(b[0x28:])
	shnum := uint64(binary.LittleEndian.Uint16(b[0x3c:]))
	binary.LittleEndian.PutUint64(b[shoff+(shnum-1)*64+0x20:], 1<<38) // size of .shstrtab
	assert.NilError(t, os.WriteFile(path, b, 0o600))
	assert.NilError(t, os.Truncate(path, 1<<39))
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	_, err = readTable(f, 1000)
	assert.Check(t, err != nil, "256 GiB of section names were accepted")
}
