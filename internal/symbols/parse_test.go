package symbols

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func wantPrintable(t testing.TB, s string) {
	t.Helper()
	assert.Check(t, len(s) <= 2*maxName && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == ';' || !unicode.IsPrint(r) }),
		"not safe to print: %q", s)
}

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]mapping{
		"55d0c0a00000-55d0c0a01000 r-xp 00001000 fe:00 1234                       /usr/bin/a b": {
			start: 0x55d0c0a00000, end: 0x55d0c0a01000, offset: 0x1000, dev: 0xfe00, inode: 1234, executable: true, name: "/usr/bin/a b"},
		"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ": {start: 0x7f0000000000, end: 0x7f0000001000},
		"7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [heap]": {
			start: 0x7f0000000000, end: 0x7f0000001000, name: "[heap]"},
		`1000-2000 r--p 00000000 00:01 9 /a\012b (deleted)`: {start: 0x1000, end: 0x2000, dev: 1, inode: 9, name: "/a\nb (deleted)"},
	} {
		got, err := parseMapping(line)
		assert.Check(t, err, "%q", line)
		diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{}))
		assert.Check(t, diff == "", "%q: %s", line, diff)
	}
	for _, line := range []string{"", "x", "2000-1000 r-xp 0 0:0 0", "1000-2000", "1000-2000 r-xp", "1000-2000 r-xp z 0:0 1", "1000-2000 r-xp 0 0:0 z", "1000-2000 r 0 0:0 1"} {
		_, err := parseMapping(line)
		assert.Check(t, err != nil, "%q: no error", line)
	}
}

func TestModule(t *testing.T) {
	for name, want := range map[string]string{
		"/usr/lib/libc.so.6":   "libc.so.6",
		"/usr/bin/x (deleted)": "x",
		"/a/b\n\x1b[2Jc":       "b??[2Jc",
		"[stack]":              "[stack]",
		"":                     "[anon]",
	} {
		assert.Check(t, is.Equal((mapping{name: name}).module(), want), "%q", name)
	}
}

func TestReadable(t *testing.T) {
	for name, want := range map[string]string{
		"main.(*T).Method[...]":                            "main.(*T).Method[...]",
		"_ZN3foo3barILi3EEEvRKSt6vectorIiSaIiEE":           "foo::bar<3>",
		"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE": "core::fmt::Write::write_fmt",
		"_RNvC6_123foo3bar":                                "123foo::bar",
		"_Znonsense":                                       "_Znonsense",
		"\x1b[31mred;\n":                                   "?[31mred:?",
		"bad\xffutf8":                                      "bad?utf8",
		strings.Repeat("a", maxName+1):                     strings.Repeat("a", maxName) + "…",
		strings.Repeat("a", maxName-1) + "é":               strings.Repeat("a", maxName-1) + "…",
		strings.Repeat("a", maxName-2) + "é":               strings.Repeat("a", maxName-2) + "é",
		strings.Repeat("a", maxName-2) + "éa":              strings.Repeat("a", maxName-2) + "é…",
		"_Z" + strings.Repeat("N1a", maxMangled):           "_Z" + strings.Repeat("N1a", maxName)[:maxName-2] + "…",
	} {
		got := printableName(name)
		assert.Check(t, is.Equal(got, want), "%q", name)
		wantPrintable(t, got)
	}
}

func TestTableFind(t *testing.T) {
	names := "\x00outer\x00inner\x00__alias\x00alias\x00label\x00"
	table := &table{
		segments: []segment{{0x0, 0x1000, 0x400000, false}, {0x800, 0x1000, 0x401800, true}},
		strings:  []byte(names), stringsN: int64(len(names)),
	}
	at := func(s string) uint32 { return uint32(strings.Index(names, "\x00"+s+"\x00") + 1) }
	table.setSymbols([]symbol{
		{0x1000, 0x100, at("outer")}, {0x1010, 0x10, at("inner")},
		{0x2000, 0x20, at("__alias")}, {0x2000, 0x20, at("alias")},
		{0x3000, 0, at("label")}, {0x3010, 1, at("inner")}, {0x4000, 0, at("label")}, {0x5000, 0, at("label")},
	}, []extent{{0x1000, 0x4008}})
	for addr, want := range map[uint64]string{
		0xfff: "", 0x1000: "outer", 0x1010: "inner", 0x101f: "inner", 0x1020: "outer", 0x10ff: "outer", 0x1100: "",
		0x2000: "alias", 0x2020: "", 0x300f: "label", 0x3011: "", 0x4007: "label", 0x4008: "", 0x5000: "",
	} {
		got, _, _ := table.find(addr, nil)
		assert.Check(t, got == want, "0x%x: got %q, want %q", addr, got, want)
	}
	table.strings = nil // a large one is read from the file
	got, _, _ := table.find(0x1000, strings.NewReader(names))
	assert.Check(t, got == "outer", "from file: got %q", got)
	for offset, want := range map[uint64]uint64{0x10: 0x400010, 0x900: 0x401900, 0x1001: 0x402001} {
		got, ok := table.address(offset)
		assert.Check(t, ok && got == want, "offset 0x%x: got 0x%x", offset, got)
	}
	_, ok := table.address(0x1800)
	assert.Check(t, !ok, "an offset past the segments has an address")
}

func TestCache(t *testing.T) {
	c := newCache(2, 1<<20)
	reads := 0
	get := func(ino uint64, name string) (*table, error) {
		return c.get(context.Background(), fileID{ino: ino}, nil, func(*os.File) (*table, error) {
			reads++
			if name == "" {
				return nil, errors.New("bad file")
			}
			return &table{buildID: name, strings: []byte(name)}, nil
		})
	}
	a, _ := get(1, "a")
	copied, _ := get(2, "a")
	assert.Check(t, copied == a, "copies do not share their table")
	b, _ := get(2, "a")
	assert.Check(t, b == a && reads == 2, "read again: %d times", reads)
	s := c.stats()
	assert.Check(t, s.Files == 2 && s.Bytes == a.bytes(), "got %+v", s)
	_, _ = get(1, "a")
	_, _ = get(3, "c") // 2 goes
	_, _ = get(1, "a")
	assert.Check(t, reads == 3, "the recently used one went: %d reads", reads)
	_, _ = get(2, "a") // 3 goes
	s = c.stats()
	assert.Check(t, s.Files == 2 && s.Evicted == 2 && s.Bytes == a.bytes(), "got %+v", s)
	_, err := get(4, "")
	assert.Check(t, err != nil, "no error of a bad file")
	reads = 0
	_, err = get(4, "")
	assert.Check(t, err != nil && reads == 0, "bad file: %v, read %d times more", err, reads)
	small := newCache(10, 1)
	_, err = small.get(context.Background(), fileID{}, nil, func(*os.File) (*table, error) { return &table{}, nil })
	assert.Check(t, err)
	s = small.stats()
	assert.Check(t, s.Files == 0 && s.Bytes == 0, "more than the limit stays: %+v", s)
}

func FuzzMaps(f *testing.F) {
	limitFuzz(f)
	f.Add("1000-2000 r-xp 00000000 00:00 1 /bin/x\n3000-4000 r-xp 00000000 00:00 0 [vdso]\n", uint64(0x1800), uint64(0x3000))
	f.Add("-", uint64(0), uint64(1))
	f.Fuzz(func(t *testing.T, text string, a, b uint64) {
		var hits []hit
		var err error
		allocates(t, 1<<20+64*int64(len(text)), func() { hits, err = findMappings(strings.NewReader(text), []uint64{a, b}, nil) })
		if err != nil {
			return
		}
		seen := map[int]bool{}
		for _, h := range hits {
			wantPrintable(t, h.module())
			for _, f := range h.frames {
				assert.Assert(t, f.at >= h.start && f.at < h.end && !seen[f.index],
					"frame %+v in mapping %+v", f, h.mapping)
				seen[f.index] = true
			}
		}
	})
}

func FuzzPerfMap(f *testing.F) {
	limitFuzz(f)
	f.Add("1000 10 name\n0x1000 0x10 b c\n", 15)
	f.Fuzz(func(t *testing.T, text string, grown int) {
		var m perfMap
		r, begin := strings.NewReader(text), time.Unix(1, 0)
		allocates(t, 64*int64(len(text))+1<<20, func() {
			m.update(r, int64(min(max(grown, 0), len(text))), begin)
			m.update(r, int64(len(text)), begin)
		})
		assert.Assert(t, m.end <= int64(len(text)) && len(m.lines) <= len(text),
			"read %d bytes of %d, %d lines", m.end, len(text), len(m.lines))
		for _, l := range m.lines {
			start, size, name := perfLineAt(r, l.at)
			assert.Assert(t, start == l.start && size == l.size && name != "",
				"line at %d: got %x %x %q, want %x %x", l.at, start, size, name, l.start, l.size)
			wantPrintable(t, printableName(name))
		}
	})
}

func FuzzELF(f *testing.F) {
	limitFuzz(f)
	f.Add(makeELF(symtab("\x00f\x00_ZN1a1bEv\x00", fn(0x1000, 0x10, 1), fn(0x1010, 0, 3))...), uint64(0x1001))
	f.Add(tinyGo(), uint64(0x401000))
	f.Fuzz(func(t *testing.T, b []byte, addr uint64) {
		file := bytes.NewReader(b)
		var table *table
		var err error
		allocates(t, 48<<20, func() { table, err = readTable(file, 1000) })
		if err != nil {
			return
		}
		assert.Assert(t, len(table.symbols) <= 1000 && int64(len(table.strings)) <= int64(len(b)),
			"%d symbols, %d bytes of names", len(table.symbols), len(table.strings))
		addrs := []uint64{addr}
		if len(table.symbols) > 0 {
			addrs = append(addrs, table.symbols[0].start, table.symbols[len(table.symbols)-1].start)
		}
		for _, a := range addrs {
			name, start, ok := table.find(a, file)
			assert.Assert(t, !ok || start <= a, "0x%x is before %q at 0x%x", a, name, start)
			wantPrintable(t, printableName(name))
		}
		table.address(addr)
	})
}
