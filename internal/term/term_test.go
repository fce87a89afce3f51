package term

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"postgres":              "postgres",
		"naïve 数据 ✓":            "naïve 数据 ✓",
		`back\slash`:            `back\slash`,
		"\x1b]0;owned\x07":      `\x1b]0;owned\x07`,
		"a\r\nb\tc\x00":         `a\x0d\x0ab\x09c\x00`,
		"\u009b31m":             `\x9b31m`, // one-byte CSI
		"\xff\xfe":              `\xff\xfe`,
		"cut \xe6\x95":          `cut \xe6\x95`,
		"\u202egnp.exe":         `\u202egnp.exe`, // right to left
		"zero\u200bwidth":       `zero\u200bwidth`,
		"tag\U000e0041":         `tag\U000e0041`,
		"\x7f":                  `\x7f`,
		"replacement \ufffd is": "replacement \ufffd is",
	} {
		assert.Check(t, is.Equal(Clean(in), want), "Clean(%q)", in)
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "a", "\x1b[31m", "\xff\u202e\U000e0041"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		assert.Check(t, utf8.ValidString(got), "Clean(%q) = %q is not UTF-8", s, got)
		assert.Check(t, strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) < 0,
			"Clean(%q) = %q is not printable", s, got)
		assert.Check(t, Clean(got) == got, "Clean(%q) is not clean", s)
	})
}

func TestUnits(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0ns", 1: "1ns", 999: "999ns", 1000: "1.00µs", 1004: "1.00µs", 9_994: "9.99µs", 9_996: "10.0µs",
		99_960: "100µs", 999_400: "999µs", 999_600: "1.00ms", 48_249_000: "48.2ms", 1_200_000_000: "1.20s",
		59_940_000_000: "59.9s", 59_999_000_000: "60.0s", 60_000_000_000: "1m00s", 125_000_000_000: "2m05s",
		3_599_600_000_000: "1h00m", 11_045_000_000_000: "3h04m", 442_800_000_000_000: "5d03h",
		-48_249_000: "-48.2ms", -1 << 63: "-106751d23h",
	} {
		assert.Check(t, is.Equal(Duration(ns), want), "Duration(%d)", ns)
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 5 * time.Millisecond: "5ms", time.Second: "1s", time.Minute: "1m", 90 * time.Second: "1m30s",
		time.Hour: "1h", 70 * time.Minute: "1h10m", 10 * time.Second: "10s", 10 * time.Hour: "10h",
	} {
		assert.Check(t, is.Equal(Setting(int64(d)), want), "Setting(%d)", d)
	}
	for n, want := range map[uint64]string{
		0: "0B", 1023: "1023B", 1024: "1.0KiB", 1536: "1.5KiB", 1<<20 - 1: "1.0MiB", 5 << 30: "5.0GiB", 1<<64 - 1: "16.0EiB",
	} {
		assert.Check(t, is.Equal(Bytes(n), want), "Bytes(%d)", n)
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", 100000: "100,000"} {
		assert.Check(t, is.Equal(Count(n), want), "Count(%d)", n)
	}
	for n, want := range map[int]string{9: "numeration"[:8] + "…", 10: "numeration", 1: "…", 0: ""} {
		assert.Check(t, is.Equal(Shorten("numeration", n), want), "Shorten(%d)", n)
	}
}

func TestTable(t *testing.T) {
	table := NewTable(Column{Title: "NAME"}, Column{Title: "N", Right: true}, Column{})
	table.Row("é", "1")
	table.Cells(Cell{Text: "longer", Style: Red}, Cell{Text: "1,000"}, Cell{Text: "note"})
	table.Row("x", "", "y", "dropped")
	for color, want := range map[bool]string{
		false: "> NAME        N\n> é           1\n> longer  1,000  note\n> x              y\n",
		true:  "> \x1b[2mNAME\x1b[0m        \x1b[2mN\x1b[0m\n> é           1\n> \x1b[31mlonger\x1b[0m  1,000  note\n> x              y\n",
	} {
		var out bytes.Buffer
		table.Print(New(&out, &Options{Color: color}), "> ")
		assert.Check(t, is.DeepEqual(want, out.String()))
	}
}

func TestColor(t *testing.T) {
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	defer r.Close()
	defer w.Close()
	c := New(w, nil)
	assert.Check(t, !c.Terminal() && !c.Color(), "a pipe is taken for a terminal")
	for _, c := range []struct {
		noColor, term string
		want          bool
	}{{"", "xterm", true}, {"1", "xterm", false}, {"", "dumb", false}, {"", "", true}} {
		got := wantsColor(func(name string) string {
			return map[string]string{"NO_COLOR": c.noColor, "TERM": c.term}[name]
		})
		assert.Check(t, got == c.want, "NO_COLOR=%q TERM=%q: %v", c.noColor, c.term, got)
	}
}

// The clock is the test's: ticks are handed in.
func TestProgress(t *testing.T) {
	start := time.Unix(0, 0)
	for terminal, want := range map[bool]string{
		true:  "\r\x1b[Kloading … 1s\r\x1b[Kdraining\\x07 … 2.3s\r\x1b[K",
		false: "loading …\n",
	} {
		var out bytes.Buffer
		p := newProgress(New(&out, &Options{Terminal: terminal}), "loading", start)
		p.tick(start.Add(999 * time.Millisecond))
		assert.Check(t, out.Len() <= 0, "within a second: %q", out.String())
		p.tick(start.Add(time.Second))
		p.Update("draining\x07")
		p.tick(start.Add(2345 * time.Millisecond))
		p.Done()
		p.Done()
		assert.Check(t, is.Equal(out.String(), want), "terminal %v", terminal)
	}
	var out bytes.Buffer
	quick := New(&out, &Options{Terminal: true}).Progress("quick")
	quick.Done()
	assert.Check(t, out.Len() <= 0, "what took no second printed %q", out.String())
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		done, total uint64
		want        string
	}{
		{0, 0, "[--------------------] 0%"},
		{0, 7, "[--------------------] 0%"},
		{52, 100, "[##########----------] 52%"},
		{7, 7, "[####################] 100%"},
		{9, 7, "[####################] 100%"},
	} {
		assert.Check(t, is.Equal(Bar(c.done, c.total), c.want), "Bar(%d, %d)", c.done, c.total)
	}
}
