package symbols

import (
	"bytes"
	"compress/zlib"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// dwarfFile is a program whose sections of debug information are written by hand.
type dwarfFile map[string][]byte

func (d dwarfFile) elf(compressed bool) []byte {
	var sections []section
	names := make([]string, 0, len(d))
	for name := range d {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s := section{name: name, Section64: elf.Section64{Type: uint32(elf.SHT_PROGBITS)}, data: d[name]}
		if compressed {
			s.Flags, s.data = uint64(elf.SHF_COMPRESSED), packed(d[name])
		}
		sections = append(sections, s)
	}
	return makeELF(sections...)
}

// packed is what a compressed section holds.
func packed(b []byte) []byte {
	var out bytes.Buffer
	_ = binary.Write(&out, binary.LittleEndian, elf.Chdr64{Type: uint32(elf.COMPRESS_ZLIB), Size: uint64(len(b)), Addralign: 1})
	w := zlib.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

func uleb(n uint64) []byte { return binary.AppendUvarint(nil, n) }

func le(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		switch v := v.(type) {
		case string:
			b.WriteString(v)
		default:
			_ = binary.Write(&b, binary.LittleEndian, v)
		}
	}
	return b.Bytes()
}

// unit4 is a compile unit of DWARF 4.
func unit4(abbrevAt uint32, body []byte) []byte {
	return le(uint32(len(body)+7), uint16(4), abbrevAt, uint8(8), body)
}

// Tags and attributes that the tests write.
const (
	tagUnit, tagFunction, tagInlined, tagBlock, tagStruct            = 0x11, 0x2e, 0x1d, 0x0b, 0x13
	atName, atStmtList, atLow, atHigh, atCompDir                     = 0x03, 0x10, 0x11, 0x12, 0x1b
	atRanges, atOrigin, atSpecification, atCallFile, atCallLine, odd = 0x55, 0x31, 0x47, 0x58, 0x59, 0x19
)

// abbreviation is an entry of a table: attribute, form, attribute, form …
func abbreviation(id, tag uint64, children byte, attrs ...uint64) []byte {
	b := append(append(uleb(id), uleb(tag)...), children)
	for _, a := range append(attrs, 0, 0) {
		b = append(b, uleb(a)...)
	}
	return b
}

// ordinary is a unit with a function at 0x401000 of 0x1000 bytes; inner goes
// into the function, its abbreviations begin at 3.
func ordinary(inner, abbrevs []byte) dwarfFile {
	table := slices.Concat(
		abbreviation(1, tagUnit, 1, atLow, formAddr, atHigh, formData8, atStmtList, formSecOffset, atCompDir, formString),
		abbreviation(2, tagFunction, 1, atLow, formAddr, atHigh, formData8, atName, formString),
		abbrevs, []byte{0})
	body := le(uint8(1), uint64(0x401000), uint64(0x1000), uint32(0), "/src\x00",
		uint8(2), uint64(0x401000), uint64(0x1000), "f\x00", inner)
	return dwarfFile{".debug_abbrev": table, ".debug_info": unit4(0, body), ".debug_line": lines4(nil, nil)}
}

// lines4 is a line table of DWARF 4, which begins at 0x401000.
func lines4(files, program []byte) []byte {
	header := le(uint8(1), uint8(1), uint8(1), int8(-5), uint8(14), uint8(13), []byte{0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1},
		uint8(0), "a.c\x00", []byte{0, 0, 0}, files, uint8(0))
	at := le([]byte{0, 9, lneSetAddress}, uint64(0x401000), []byte{lnsCopy})
	body := le(uint16(4), uint32(len(header)), header, at, program)
	return le(uint32(len(body)), body)
}

// resolve asks a file for some addresses, with the budget and the time of a real
// request, and tells what came of it. The memory that it may take on the way is
// the same for all files.
func resolve(t *testing.T, file []byte, addrs ...uint64) (sources []*Source, err error) {
	t.Helper()
	const heap, room = 80 << 20, 48 << 20 // lists grow: half of it is in use at a time
	allocates(t, heap, func() {
		var m *mapped
		if m, err = mapBytes(t, file); err != nil {
			return
		}
		defer m.close()
		var d *dwarfData
		if d, err = openDWARF(context.Background(), m, nil, room); err != nil {
			return
		}
		for _, a := range addrs {
			var s *Source
			if s, err = d.source(context.Background(), a); err != nil {
				return
			}
			sources = append(sources, s)
		}
		n := d.bytes() + d.index.bytes()
		assert.Check(t, n <= 32<<20, "%d bytes are kept", n)
		assert.Check(t, m.extraN <= room, "%d bytes are decompressed", m.extraN)
	})
	for _, s := range sources {
		if s != nil && s.size() > (maxInlined+1)*(2*maxName+maxPath+32) {
			t.Errorf("a source of %d bytes", s.size())
		}
	}
	return sources, err
}

func TestOrdinaryDWARFByHand(t *testing.T) {
	got, err := resolve(t, ordinary([]byte{0, 0}, nil).elf(false), 0x401000, 0x401fff, 0x402000)
	assert.NilError(t, err)
	// The program of lines ends without a second row, so that nothing is known of lines.
	for i, s := range got {
		assert.Check(t, s == nil || !s.known(), "%d: got %+v", i, s)
	}
	f := ordinary([]byte{0, 0}, nil)
	f[".debug_line"] = lines4(nil, []byte{lnsAdvancePC, 0x10, lnsAdvanceLine, 4, lnsCopy, lnsAdvancePC, 0x10, 0, 1, lneEndSequence})
	got, err = resolve(t, f.elf(true), 0x401000, 0x401010, 0x401020)
	assert.NilError(t, err)
	if a, b := got[0], got[1]; a == nil || b == nil || a.File != "/src/a.c" || a.Line != 1 || b.Line != 5 || got[2] != nil && got[2].known() {
		t.Errorf("got %+v", got)
	}
}

// Files that ask for gigabytes or for hours. Each is refused, or read as far
// as the limits go; see resolve for what holds of all of them.
func TestHostileDWARF(t *testing.T) {
	const mega = 1 << 20
	many := func(n int, b ...byte) []byte { return bytes.Repeat(b, n) }
	rows := bytes.Repeat([]byte{0x20}, 40*mega) // special opcodes
	nested := func(depth int) []byte {
		one := le(uint8(3), uint64(0x401000), uint64(0x1000), uint8(1), uint8(1), uint32(0))
		return append(bytes.Repeat(one, depth), many(depth+2, 0)...)
	}
	inlined := abbreviation(3, tagInlined, 1, atLow, formAddr, atHigh, formData8, atCallFile, formData1, atCallLine, formData1, atOrigin, formRef4)
	longLine5 := func() []byte { // 60,000 files of 2 bytes, each in one directory of a megabyte
		header := le(uint8(1), uint8(1), uint8(1), int8(-5), uint8(14), uint8(13), []byte{0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1},
			[]byte{1, lnctPath, formLineStrp, 2}, uint32(0), uint32(0),
			[]byte{2, lnctPath, formString, lnctDirectory, formData1}, uleb(60_000), bytes.Repeat([]byte("f\x00\x01"), 60_000))
		at := le([]byte{0, 9, lneSetAddress}, uint64(0x401000), []byte{lnsCopy, lnsAdvancePC, 0x10, 0, 1, lneEndSequence})
		body := le(uint16(5), uint8(8), uint8(0), uint32(len(header)), header, at)
		return le(uint32(len(body)), body)
	}
	with := func(f dwarfFile, change func(dwarfFile)) dwarfFile {
		change(f)
		return f
	}
	for name, test := range map[string]struct {
		file   dwarfFile
		want   error // nil: what is fine is known
		known  bool
		packed bool // try it compressed, too
	}{
		"one abbreviation of 20 million attributes": {file: dwarfFile{
			".debug_abbrev": append(append([]byte{1, tagUnit, 0}, many(20*mega, 1, odd)...), 0, 0, 0),
			".debug_info":   slices.Concat(unit4(0, []byte{1}), unit4(0, []byte{1})),
		}, packed: true},
		"… and .debug_aranges": {file: dwarfFile{
			".debug_abbrev":  append(append([]byte{1, tagUnit, 0}, many(20*mega, 1, odd)...), 0, 0, 0),
			".debug_info":    unit4(0, []byte{1}),
			".debug_aranges": le(uint32(44), uint16(2), uint32(0), uint8(8), uint8(0), uint32(0), uint64(0x401000), uint64(0x1000), uint64(0), uint64(0)),
		}, want: errTooLarge},
		"four million abbreviations": {file: with(ordinary(nil, nil), func(f dwarfFile) {
			var b []byte
			for i := range uint64(100_000) {
				b = append(b, abbreviation(i+3, tagBlock, 0)...)
			}
			f[".debug_abbrev"] = append(f[".debug_abbrev"][:len(f[".debug_abbrev"])-1], b...)
		}), want: errTooLarge},
		"units whose tables of abbreviations overlap": {file: func() dwarfFile {
			f := dwarfFile{".debug_abbrev": append(many(8*mega, 2, tagBlock, 0, 0, 0), abbreviation(1, tagUnit, 0)...)}
			var info []byte
			for i := range uint32(2000) {
				info = append(info, unit4(i*5, []byte{1})...)
			}
			f[".debug_info"] = info
			return f
		}(), want: errTooMuchWork},
		"a million units": {file: dwarfFile{
			".debug_abbrev": append(abbreviation(1, tagUnit, 0, atLow, formAddr, atHigh, formData1), 0),
			".debug_info":   bytes.Repeat(unit4(0, le(uint8(1), uint64(0x401000), uint8(0xff))), mega),
		}},
		"entries of a byte that have 256 attributes": {file: ordinary(many(20*mega, 3), abbreviation(3, tagBlock, 0, slices.Repeat([]uint64{odd, formFlagPresent}, 256)...)), want: errTooMuchWork},
		"… that have 257":                            {file: ordinary(many(100, 3), abbreviation(3, tagBlock, 0, slices.Repeat([]uint64{odd, formFlagPresent}, 257)...)), want: errTooLarge},
		// debug/dwarf recurses here, and a stack of a gigabyte ends the process.
		"ten million levels": {file: ordinary(many(10*mega, 3), abbreviation(3, tagStruct, 1))},
		"a name of 30 MB, a hundred times an entry": {file: with(ordinary(many(1000, 3, 0, 0, 0, 0), abbreviation(3, tagBlock, 0, atName, formStrp)), func(f dwarfFile) {
			f[".debug_str"] = many(30*mega, 'x')
		})},
		"names in the entries themselves, without end": {file: ordinary(append([]byte{3}, many(30*mega, 'x')...), abbreviation(3, tagBlock, 0, atName, formString)), want: errTooLarge},
		"blocks larger than the file":                  {file: ordinary(le(uint8(3), uint32(1<<32-1), many(100, 3)), abbreviation(3, tagBlock, 0, odd, formBlock4))},
		"a block of 2^64 bytes":                        {file: ordinary(le(uint8(3), bytes.Repeat([]byte{0xff}, 9), uint8(1)), abbreviation(3, tagBlock, 0, odd, formExprloc))},
		"a form that leads to itself":                  {file: ordinary(le(uint8(3), bytes.Repeat([]byte{formIndirect}, 1000)), abbreviation(3, tagBlock, 0, odd, formIndirect))},
		"a sibling that lies before":                   {file: ordinary(le(uint8(3), uint32(11)), abbreviation(3, tagStruct, 1, 1, formRef4))},
		"60,000 functions inlined into each other": {
			file: with(ordinary(nested(60_000), inlined), func(f dwarfFile) {
				f[".debug_line"] = lines4(nil, []byte{lnsAdvancePC, 0x10, lnsCopy, 0, 1, lneEndSequence})
			}), known: true},
		"an origin that leads in a circle": {
			file: ordinary(le(uint8(3), uint64(0x401000), uint64(0x1000), uint8(1), uint8(1), uint32(11+26+19), []byte{0, 0}), inlined), known: true},
		"ranges without end": {file: with(ordinary(le(uint8(3), uint32(0), []byte{0, 0}), abbreviation(3, tagBlock, 1, atRanges, formSecOffset)), func(f dwarfFile) {
			f[".debug_ranges"] = many(40*mega, 1)
		})},
		"a hundred thousand entries with the same million ranges": {file: with(ordinary(append(many(100_000, 3, 0, 0, 0, 0), 0, 0), abbreviation(3, tagBlock, 0, atRanges, formSecOffset)), func(f dwarfFile) {
			f[".debug_ranges"] = many(16*mega, 1)
		}), want: errTooMuchWork},
		"functions with a million ranges each": {file: with(ordinary(nil, nil), func(f dwarfFile) {
			f[".debug_abbrev"] = slices.Concat(abbreviation(1, tagUnit, 1, atLow, formAddr, atHigh, formData8), abbreviation(2, tagFunction, 0, atRanges, formSecOffset), []byte{0})
			f[".debug_info"] = unit4(0, le(uint8(1), uint64(0x401000), uint64(0x1000), many(1000, 2, 0, 0, 0, 0)))
			f[".debug_ranges"] = bytes.Repeat(le(uint64(0), uint64(1)), mega)
		})},
		"a unit with four million ranges": {file: with(dwarfFile{}, func(f dwarfFile) {
			f[".debug_abbrev"] = append(abbreviation(1, tagUnit, 1, atLow, formAddr, atRanges, formSecOffset), 0)
			f[".debug_info"] = unit4(0, le(uint8(1), uint64(0), uint32(0)))
			f[".debug_ranges"] = bytes.Repeat(le(uint64(0x401000), uint64(0x401001)), 2*mega)
		})},
		"40 million rows of lines": {file: with(ordinary([]byte{0, 0}, nil), func(f dwarfFile) { f[".debug_line"] = lines4(nil, rows) }), known: true, packed: true},
		"files in a directory of a megabyte": {
			file: with(ordinary([]byte{0, 0}, nil), func(f dwarfFile) {
				f[".debug_line"], f[".debug_line_str"] = longLine5(), append(append([]byte{'/'}, many(mega, 'd')...), 0)
			}), known: true},
		"directories and files of 2^60": {file: with(ordinary([]byte{0, 0}, nil), func(f dwarfFile) {
			header := le(uint8(1), uint8(1), uint8(1), int8(-5), uint8(14), uint8(13), []byte{0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}, []byte{0}, uleb(1<<60), []byte{0}, uleb(1<<60))
			body := le(uint16(5), uint8(8), uint8(0), uint32(len(header)), header)
			f[".debug_line"] = le(uint32(len(body)), body)
		}), want: errTooMuchWork},
		"a path of 4,096 bytes": {
			file: with(ordinary(le(nested(5)), inlined), func(f dwarfFile) {
				f[".debug_line"] = lines4(le("/"+strings.Repeat("x", 4090)+"/end.c\x00", []byte{0, 0, 0}), []byte{lnsSetFile, 2, lnsCopy, lnsAdvancePC, 0x10, lnsCopy, 0, 1, lneEndSequence})
			}), known: true},
	} {
		for _, compressed := range []bool{false, true} {
			if compressed && !test.packed {
				continue
			}
			t.Run(fmt.Sprintf("%s/compressed=%v", name, compressed), func(t *testing.T) {
				got, err := resolve(t, test.file.elf(compressed), 0x401000, 0x401008)
				if errors.Is(err, errNoRoom) && compressed {
					return
				}
				assert.ErrorIs(t, err, test.want)
				known := len(got) == 2 && got[0] != nil && got[0].known()
				assert.Check(t, known == test.known, "got %+v", got)
			})
		}
	}
}

// What is refused is counted, and no other file of the process suffers.
func TestRefusedLinesAreCounted(t *testing.T) {
	abbrevs := append(append([]byte{1, tagUnit, 0}, bytes.Repeat([]byte{1, odd}, 1<<20)...), 0, 0, 0)
	for name, file := range map[string]dwarfFile{
		"a unit that is left out": {".debug_abbrev": abbrevs, ".debug_info": unit4(0, []byte{1})},
		"a unit that is listed": {".debug_abbrev": abbrevs, ".debug_info": unit4(0, []byte{1}),
			".debug_aranges": le(uint32(44), uint16(2), uint32(0), uint8(8), uint8(0), uint32(0), uint64(0x401000), uint64(0x1000), uint64(0), uint64(0))},
		"too much to decompress": {".debug_abbrev": {0}, ".debug_info": make([]byte, 20<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLineCache(16<<20, 1)
			where := lineOrigin{file: contentID{"x", 1}, table: &table{hasLines: true}, open: func() (*mapped, error) { return mapBytes(t, file.elf(true)) }}
			for range 3 {
				if got := l.get(t.Context(), where, []uint64{0x401000}); got[0] != nil && got[0].known() {
					t.Errorf("got %+v", got[0])
				}
			}
			n := l.refused.Load()
			assert.Check(t, n == 1, "refused %d times, want 1", n)
		})
	}
	var q quota
	q.limit = 100
	assert.Check(t, is.ErrorIs(q.take(101), errNoRoom), "more than there is")
	assert.Check(t, q.take(60))
	err := q.take(60)
	assert.Check(t, errors.Is(err, errInUse) && errors.Is(err, errNotOpened), "while others have it: got %v", err)
	q.free = func() bool { q.give(60); q.free = nil; return true }
	err = q.take(60)
	assert.Check(t, err == nil && q.used.Load() == 60,
		"after they gave it back: got %v, %d bytes in use", err, q.used.Load())
}
