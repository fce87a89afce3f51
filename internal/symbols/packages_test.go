package symbols

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// Debian's own debug package of the C library.
func TestLinesOfDebian(t *testing.T) {
	path := build(t, "frames", "gcc", "testdata/frames.c")
	p, r := start(t, exec.Command(path), "libc"), patient()
	s := r.User(p.pid, []uint64{p.addrs["libc"]})
	wantFrame(t, s.Frames[0], "clock_gettime", "libc.so.6")
	if _, err := os.Stat("/usr/share/doc/libc6-dbg"); err != nil {
		t.Skipf("needs libc6-dbg: %v", err)
	}
	assert.Check(t, len(s.Sources) == 1 && strings.HasSuffix(s.Sources[0].File, "clock_gettime.c") &&
		s.Sources[0].Line != 0, "got %+v", s)
	// All of the library's functions: none may be without lines but assembly.
	known, all := 0, 0
	addrs := libcFunctions(t, p.pid, 400)
	s = r.User(p.pid, addrs)
	for i := range addrs {
		all++
		if len(s.Sources) > i && s.Sources[i].known() {
			known++
		}
	}
	t.Logf("%d of %d functions of the C library have lines", known, all)
	assert.Check(t, known*10 >= all*9, "only %d of %d functions of the C library have lines", known, all)
}

// libcFunctions are addresses in functions that the C library exports, each taken as if
// it were the innermost one: as return addresses one off.
func libcFunctions(t *testing.T, pid, most int) []uint64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	assert.NilError(t, err)
	defer f.Close()
	var base uint64
	var path string
	if err := scanMaps(f, func(m mapping) bool {
		if strings.HasSuffix(m.name, "/libc.so.6") && m.offset == 0 {
			base, path = m.start, m.name
		}
		return base == 0
	}); err != nil || base == 0 {
		t.Fatalf("the program has no libc.so.6: %v", err)
	}
	e, err := elf.Open(path)
	assert.NilError(t, err)
	defer e.Close()
	list, err := e.DynamicSymbols()
	assert.NilError(t, err)
	var out []uint64
	for _, s := range list {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 4 && s.Section != elf.SHN_UNDEF && len(out) < most {
			out = append(out, base+s.Value+2)
		}
	}
	return out
}

// What dwz(1) moved to a file that several share is found there.
func TestLinesOfDwz(t *testing.T) {
	if _, err := exec.LookPath("dwz"); err != nil {
		t.Skipf("needs dwz: %v", err)
	}
	dir := t.TempDir()
	var paths []string
	for i := range 2 {
		path := build(t, "inlined", "gcc", "-O2", "-gdwarf-4", fmt.Sprintf("-DUNIQUE=%d", i), inlinedC)
		to := filepath.Join(dir, fmt.Sprintf("inlined%d", i))
		assert.NilError(t, os.Rename(path, to))
		paths = append(paths, to)
	}
	common := filepath.Join(dir, "common.debug")
	text, err := exec.Command("dwz", "-m", common, "-M", common, "-h", paths[0], paths[1]).CombinedOutput()
	assert.NilError(t, err, "dwz: %v\n%s", err, text)
	f, err := elf.Open(paths[0])
	assert.NilError(t, err)
	defer f.Close()
	assert.Assert(t, f.Section(".gnu_debugaltlink") != nil, "dwz has moved nothing")
	p := start(t, exec.Command(paths[0]), "inlined")
	assert.Check(t, is.Equal(p.story(patient(), "inlined"), inlinedStory(t)))
}

// miniDebugged is a stripped program with the symbols of its local functions in
// .gnu_debugdata, as Fedora's have.
func miniDebugged(t *testing.T, flags ...string) string {
	t.Helper()
	path := build(t, "frames", append([]string{"gcc", "-O0", "-rdynamic", "testdata/frames.c"}, flags...)...)
	mini := path + ".mini"
	for _, args := range [][]string{
		{"objcopy", "--only-keep-debug", path, mini},
		{"objcopy", "-S", "--remove-section", ".comment", "--keep-symbol=local_function", "--keep-symbol=calls_stop", mini},
		{"xz", "-k", mini},
		{"strip", path},
		{"objcopy", "--add-section", ".gnu_debugdata=" + mini + ".xz", path},
	} {
		text, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		assert.NilError(t, err, "%v (of binutils and xz-utils): %v\n%s", args, err, text)
	}
	return path
}

func TestMiniDebug(t *testing.T) {
	p, r := start(t, exec.Command(miniDebugged(t)), "libc"), New(nil)
	wantFrame(t, p.frame(t, r, "local_function", true), "local_function", "frames")
	wantFrame(t, p.frame(t, r, "exported_function", true), "exported_function", "frames") // .dynsym still counts
	wantFrame(t, p.frame(t, r, "noreturn", true), "calls_stop", "frames")
}

func TestUnxz(t *testing.T) {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skipf("needs xz: %v", err)
	}
	text := bytes.Repeat([]byte("a line that repeats\n"), 1<<16)
	pack := func(args ...string) []byte {
		cmd := exec.Command("xz", append([]string{"-c"}, args...)...)
		cmd.Stdin = bytes.NewReader(text)
		out, err := cmd.Output()
		assert.NilError(t, err)
		return out
	}
	for _, args := range [][]string{{"-0"}, {"-6"}, {"-9", "--lzma2=dict=8MiB"}, {"--check=none"}, {"--check=sha256"}} {
		for _, room := range []int{len(text), len(text) + 1, maxMini} {
			out := make([]byte, room)
			n, err := unxz(pack(args...), out)
			assert.Check(t, err == nil && bytes.Equal(out[:n], text),
				"xz %v into %d bytes: %d bytes, %v", args, room, n, err)
		}
		n, err := unxz(pack(args...), make([]byte, len(text)-1))
		assert.Check(t, is.ErrorIs(err, errTooLarge), "xz %v into too little: %d bytes", args, n)
	}
	for name, b := range map[string][]byte{
		"huge dictionary": pack("--lzma2=dict=512MiB"), "other filter": pack("--x86", "--lzma2"), "no stream": []byte("\xfd7zXZ"), "torn": pack()[:40],
	} {
		n, err := unxz(b, make([]byte, maxMini))
		assert.Check(t, err != nil, "%s: %d bytes, no error", name, n)
	}
}
