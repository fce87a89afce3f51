package symbols

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

const someKallsyms = `ffffffff81000000 T _stext
ffffffff81000000 T alias
ffffffff81000100 t middle
ffffffff81000100 d not_code_at_same_place
ffffffff81000200 D data
ffffffffc0000000 t mod_fn	[some_mod]
ffffffffc0000000 b mod_bss	[some_mod]
ffffffffc0010000 t bpf_prog_0123456789abcdef_x	[bpf]
0000000000000000 A absolute
`

func TestParseKallsyms(t *testing.T) {
	table, err := parseKallsyms(strings.NewReader(someKallsyms))
	assert.NilError(t, err)
	for addr, want := range map[uint64]string{
		0xffffffff80ffffff: "[unknown] 0xffffffff80ffffff",
		0xffffffff81000000: "_stext+0x0",
		0xffffffff810000ff: "_stext+0xff",
		0xffffffff81000100: "middle+0x0",
		0xffffffff81000200: "[unknown] 0xffffffff81000200",
		0xffffffffc0000010: "mod_fn+0x10 [some_mod]",
		0xffffffffc0010004: "bpf_prog_0123456789abcdef_x+0x4 [bpf]",
		0xffffffffc0200000: "[unknown] 0xffffffffc0200000",
	} {
		out := unknowns([]uint64{addr})
		table.describe(out, []uint64{addr}, []uint64{addr})
		assert.Check(t, is.Equal(out[0], want), "0x%x", addr)
	}
}

func TestParseKallsymsBad(t *testing.T) {
	for text, want := range map[string]string{
		"":                               ErrHidden.Error(),
		"0000000000000000 T _stext\n":    ErrHidden.Error(),
		"xyz T _stext\n":                 `line 1: unexpected form "xyz T _stext"`,
		"ffffffff81000000 T \n":          `line 1: unexpected form "ffffffff81000000 T "`,
		"ffffffff81000000 T a\nnonsense": `line 2: unexpected form "nonsense"`,
	} {
		_, err := parseKallsyms(strings.NewReader(text))
		assert.Check(t, is.Error(err, want), "%q", text)
	}
}

func TestKernelHidden(t *testing.T) {
	proc := t.TempDir()
	path := filepath.Join(proc, "kallsyms")
	assert.NilError(t, os.WriteFile(path, []byte("0000000000000000 T _stext\n"), 0o600))
	r := New(&Options{Proc: proc, ReloadInterval: time.Nanosecond})
	stack, err := r.Kernel([]uint64{0xffffffff81000000})
	frames := stack.Frames
	assert.Assert(t, errors.Is(err, ErrHidden) &&
		reflect.DeepEqual(frames, []string{"[unknown] 0xffffffff81000000"}), "got %q, %v", frames, err)
	assert.Check(t, strings.Contains(err.Error(), "kernel.kptr_restrict") &&
		strings.Contains(err.Error(), "CAP_SYSLOG"), "error does not say what to change: %v", err)
	// Once permitted, it works without a new resolver.
	assert.NilError(t, os.WriteFile(path, []byte(someKallsyms), 0o600))
	stack, err = r.Kernel([]uint64{0xffffffff81000001})
	assert.Assert(t, err == nil && stack.Frames[0] == "_stext+0x1", "got %q, %v", stack.Frames, err)
	// A module that comes later is found, and so is the return address at its end.
	more := someKallsyms + "ffffffffc1000000 t late\t[late_mod]\nffffffffc1000010 t next\t[late_mod]\n"
	assert.NilError(t, os.WriteFile(path, []byte(more), 0o600))
	stack, err = r.Kernel([]uint64{0xffffffffc1000010, 0xffffffffc1000010})
	frames = stack.Frames
	want := []string{"next+0x0 [late_mod]", "late+0x10 [late_mod]"}
	assert.Assert(t, err == nil && reflect.DeepEqual(frames, want), "got %q, %v; want %q", frames, err, want)
}

// TestKernelInVain: for an address that a reading did not find, the table is not read again at
// once, as a snapshot waits for that. For others it is, and for that one in the end.
func TestKernelInVain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kallsyms")
	k := newKernelTable(path, time.Hour)
	const trampoline, late = 0xffffffffc2000000, 0xffffffffc1000000
	ask := func(addr uint64, text string) string {
		t.Helper()
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		k.last = time.Now().Add(-2 * k.interval)
		frames, _, err := k.frames([]uint64{addr})
		assert.NilError(t, err)
		return frames[0]
	}
	const unknown = "[unknown] 0xffffffffc2000000"
	for range 2 { // the first time, the table has just been read for the first time
		assert.Equal(t, ask(trampoline, someKallsyms), unknown)
	}
	first := someKallsyms + "ffffffffc2000000 t tramp\t[mod]\n"
	assert.Equal(t, ask(trampoline, first), unknown, "the table was read again")
	k.vain.Store(trampoline, time.Now().Add(-2*vainIntervals*k.interval))
	assert.Equal(t, ask(trampoline, first), "tramp+0x0 [mod]")
	assert.Equal(t, ask(late, first+"ffffffffc1000000 t late\t[mod]\n"), "late+0x0 [mod]")
	many := make([]uint64, maxVain+1)
	for i := range many {
		many[i] = uint64(i)
	}
	for range 2 {
		k.last = time.Now().Add(-2 * k.interval)
		k.refreshed(k.table.Load(), many)
	}
	assert.Equal(t, k.vain.Size(), len(many), "those of before are forgotten")
}

func TestKernelReal(t *testing.T) {
	needRoot(t, "/proc/kallsyms shows addresses only with CAP_SYSLOG")
	text, err := os.ReadFile("/proc/kallsyms")
	assert.NilError(t, err)
	table, err := parseKallsyms(strings.NewReader(string(text)))
	assert.NilError(t, err)
	var addr uint64
	for _, s := range table.symbols {
		if bytes.HasPrefix(table.names[s.name:], []byte("schedule\x00")) {
			addr = s.addr
		}
	}
	r := New(nil)
	got, err := r.Kernel([]uint64{addr + 4})
	assert.Assert(t, err == nil && got.Frames[0] == "schedule+0x4", "got %q, %v", got.Frames, err)
	assert.NilError(t, r.ReloadKernel())
}

func FuzzKallsyms(f *testing.F) {
	limitFuzz(f)
	f.Add(someKallsyms, uint64(0xffffffff81000001))
	f.Add("0 t a\n", uint64(0))
	f.Fuzz(func(t *testing.T, text string, addr uint64) {
		table, err := parseKallsyms(strings.NewReader(text))
		if err != nil {
			return
		}
		for i := 1; i < len(table.symbols); i++ {
			assert.Assert(t, table.symbols[i-1].addr < table.symbols[i].addr, "not in order")
		}
		out := unknowns([]uint64{addr})
		table.describe(out, []uint64{addr}, []uint64{addr})
		wantPrintable(t, out[0])
	})
}

func BenchmarkKallsyms(b *testing.B) {
	for b.Loop() {
		if _, err := readKallsyms("/proc/kallsyms"); err != nil {
			b.Skip(err)
		}
	}
}
