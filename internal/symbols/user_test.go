package symbols

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/child"
)

func TestUserC(t *testing.T) {
	for _, mode := range [][]string{{"-pie", "-fPIE"}, {"-no-pie", "-fno-PIE"}, {"-static"}, {"-static-pie", "-fPIE"}} {
		t.Run(mode[0], func(t *testing.T) {
			path := build(t, "frames", append([]string{"gcc", "-O0", "-fno-omit-frame-pointer", "testdata/frames.c"}, mode...)...)
			p, r := start(t, exec.Command(path), "libc"), New(nil)
			wantFrame(t, p.frame(t, r, "local_function", true), "local_function", "frames")
			wantFrame(t, p.frame(t, r, "exported_function", true), "exported_function", "frames")
			wantFrame(t, p.frame(t, r, "noreturn", true), "calls_stop", "frames")
			if mode[0] == "-pie" { // else it is the address of a stub in the program
				wantFrame(t, p.frame(t, r, "libc", false), "clock_gettime", "libc.so.6")
			}
		})
	}
}

func TestUserPrintsOffsetOfReturnAddress(t *testing.T) {
	path := build(t, "frames", "gcc", "-O0", "testdata/frames.c")
	p, r := start(t, exec.Command(path), "libc"), New(nil)
	addr := p.addrs["local_function"]
	frames := r.User(p.pid, []uint64{addr, addr}).Frames
	assert.Check(t, frames[0] == frames[1], "inner %q and outer %q differ for one address", frames[0], frames[1])
}

func TestUserStripped(t *testing.T) {
	path := build(t, "frames", "gcc", "-O0", "-rdynamic", "testdata/frames.c")
	strip(t, path)
	p, r := start(t, exec.Command(path), "libc"), New(nil)
	wantFrame(t, p.frame(t, r, "exported_function", true), "exported_function", "frames") // .dynsym
	wantUnknown(t, p.frame(t, r, "local_function", true), "frames")
}

func TestUserCXX(t *testing.T) {
	path := build(t, "frames", "g++", "-O0", "-fno-omit-frame-pointer", "testdata/frames.cc")
	p, r := start(t, exec.Command(path), "plain"), New(nil)
	wantFrame(t, p.frame(t, r, "method", false), "outer::Box<int>::method", "frames")
	wantFrame(t, p.frame(t, r, "plain", false), "outer::plain", "frames")
}

func TestUserRust(t *testing.T) {
	for mangling, flags := range map[string][]string{
		"default": nil, // of this compiler
		"v0":      {"-Csymbol-mangling-version=v0"},
	} {
		t.Run(mangling, func(t *testing.T) {
			path := build(t, "frames", append([]string{"rustc", "testdata/frames.rs"}, flags...)...)
			p, r := start(t, exec.Command(path), "work"), New(nil)
			got := p.frame(t, r, "work", false)
			// The old form has no angle brackets.
			wantFrame(t, strings.NewReplacer("<", "", ">", "").Replace(got), "frames::inner::Thing::work", "frames")
		})
	}
}

func TestUserGo(t *testing.T) {
	eachGo(t, "frames", func(t *testing.T, _, path string) {
		p, r := start(t, exec.Command(path), "work"), New(nil)
		wantFrame(t, p.frame(t, r, "work", false), "main.(*thing).work", "frames")
	})
}

// eachGo builds a Go program of testdata in each way that matters.
func eachGo(t *testing.T, name string, test func(t *testing.T, source, path string)) {
	text, err := os.ReadFile("testdata/" + name + ".go.txt")
	assert.NilError(t, err)
	// Calling C makes the C toolchain link the program.
	withC := strings.Replace(string(text), "import (", "// int one(void) { return 1; }\nimport \"C\"\n\nimport (", 1) + "\nvar _ = C.one()\n"
	for way, flags := range map[string][]string{
		"symbols":          nil,
		"stripped":         {"-ldflags=-s -w"},
		"stripped pie":     {"-ldflags=-s -w", "-buildmode=pie"},
		"stripped cgo":     {"-ldflags=-s -w"},
		"stripped cgo pie": {"-ldflags=-s -w", "-buildmode=pie"},
	} {
		t.Run(way, func(t *testing.T) {
			source, cgo := string(text), "0"
			if strings.Contains(way, "cgo") {
				source, cgo = withC, "1"
				if _, err := exec.LookPath("gcc"); err != nil {
					t.Skipf("needs gcc: %v", err)
				}
			}
			file := filepath.Join(t.TempDir(), "main.go")
			assert.NilError(t, os.WriteFile(file, []byte(source), 0o600))
			t.Setenv("CGO_ENABLED", cgo)
			path := filepath.Join(t.TempDir(), name)
			child.Compile(t, "go", append(append([]string{"build", "-o", path}, flags...), file)...)
			test(t, file, path)
		})
	}
}

func TestUserSelf(t *testing.T) {
	pc := uint64(reflect.ValueOf(TestUserSelf).Pointer())
	got := New(nil).User(os.Getpid(), []uint64{pc + 1}).Frames[0]
	wantFrame(t, got, "github.com/tailcam/tailcam/internal/symbols.TestUserSelf", filepath.Base(os.Args[0]))
}

func TestUserVDSO(t *testing.T) {
	path := build(t, "frames", "gcc", "testdata/frames.c")
	p, r := start(t, exec.Command(path), "libc"), New(nil)
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", p.pid))
	assert.NilError(t, err)
	defer f.Close()
	var vdso mapping
	err = scanMaps(f, func(m mapping) bool {
		if m.name == "[vdso]" {
			vdso = m
		}
		return true
	})
	assert.Assert(t, err == nil && vdso.end != 0, "no vdso: %v", err)
	wantUnknown(t, r.User(p.pid, []uint64{vdso.start}).Frames[0], "[vdso]") // the ELF header
	found := false
	for a := vdso.start; a < vdso.end; a += 16 {
		found = found || strings.Contains(r.User(p.pid, []uint64{a}).Frames[0], "clock_gettime+0x")
	}
	assert.Check(t, found, "no address of the vdso is in clock_gettime")
}

func TestUserUnknown(t *testing.T) {
	cmd := exec.Command("true")
	assert.NilError(t, cmd.Run())
	r := New(nil)
	for _, pid := range []int{cmd.Process.Pid, 0, -1, os.Getpid()} {
		got := r.User(pid, []uint64{0, 0x10, 1<<64 - 1}).Frames
		want := []string{"[unknown] 0x0", "[unknown] 0x10", "[unknown] 0xffffffffffffffff"}
		assert.Check(t, reflect.DeepEqual(got, want), "pid %d: got %q", pid, got)
	}
	got := r.User(1, nil)
	assert.Check(t, got.Frames == nil, "no addresses: got %q", got.Frames)
}

func TestUserDeletedAndReplaced(t *testing.T) {
	needRoot(t, "reading /proc/PID/map_files needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN")
	path := build(t, "frames", "gcc", "-O0", "testdata/frames.c")
	p, r := start(t, exec.Command(path), "libc"), New(nil)
	assert.NilError(t, os.Remove(path))
	assert.NilError(t, os.WriteFile(path, []byte("another file"), 0o600))
	wantFrame(t, p.frame(t, r, "local_function", true), "local_function", "frames")
}

func TestUserChroot(t *testing.T) {
	needRoot(t, "chroot(2) and a new mount namespace need CAP_SYS_ADMIN")
	path := build(t, "frames", "gcc", "-O0", "-static", "testdata/frames.c")
	cmd := exec.Command("/frames")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: filepath.Dir(path), Cloneflags: syscall.CLONE_NEWNS}
	cmd.Dir = "/"
	p, r := start(t, cmd, "libc"), New(nil)
	wantFrame(t, p.frame(t, r, "local_function", true), "local_function", "frames")

	// The same where map_files is not permitted: by path, in the process's root.
	opener := NewOpener(nil)
	f, err := opener.InRoot(p.pid, "/frames")
	assert.NilError(t, err)
	id, err := identify(f)
	assert.NilError(t, err)
	defer f.Close()
	st, err := os.Stat(path)
	assert.NilError(t, err)
	want := st.Sys().(*syscall.Stat_t).Ino
	assert.Check(t, id.ino == want, "opened inode %d, want %d", id.ino, want)
	// A link to the root stays inside.
	assert.NilError(t, os.Symlink("/etc/passwd", filepath.Join(filepath.Dir(path), "link")))
	_, err = opener.InRoot(p.pid, "/link")
	assert.Check(t, err != nil, "a link led out of the process's root")
}

// Opening a device has effects, opening a pipe waits: neither is done.
func TestReopenOnlyRegularFiles(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	assert.NilError(t, syscall.Mkfifo(fifo, 0o600))
	self := NewOpener(nil)
	for _, path := range []string{fifo, "/dev/null", "/"} {
		_, err := self.InRoot(os.Getpid(), path)
		assert.Check(t, is.ErrorIs(err, errNotRegular), "%s", path)
	}
}

func TestUserPerfMap(t *testing.T) {
	m, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	assert.NilError(t, err)
	defer func() { _ = syscall.Munmap(m) }()
	addr := uint64(reflect.ValueOf(m).Pointer())
	path := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	text := fmt.Sprintf("%x 40 old\nbroken\n%x 40 LFoo;bar method\n", addr, addr)
	assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
	defer os.Remove(path)
	got := New(nil).User(os.Getpid(), []uint64{addr + 0x10, addr + 0x41}).Frames
	want := []string{"LFoo:bar method+0x10 ([anon])", "[unknown] ([anon]+0x41)"}
	assert.Check(t, reflect.DeepEqual(got, want), "got %q, want %q", got, want)
}

func TestUserConcurrent(t *testing.T) {
	path := build(t, "frames", "gcc", "-O0", "testdata/frames.c")
	p, r := start(t, exec.Command(path), "libc"), New(&Options{MaxFiles: 1, Concurrent: 8, Timeout: time.Minute, NoLines: true})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				got := r.User(p.pid, []uint64{p.addrs["local_function"], p.addrs["libc"] + 1}).Frames
				wantFrame(t, got[0], "local_function", "frames")
				wantFrame(t, got[1], "clock_gettime", "libc.so.6")
			}
		})
	}
	wg.Wait()
	s := r.Stats()
	assert.Check(t, s.Files <= 1 && s.Evicted != 0 && s.Timeouts == 0 && s.Stuck == 0, "got %+v", s)
}

func needRoot(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: " + why)
	}
}

func BenchmarkUser(b *testing.B) {
	pc := uint64(reflect.ValueOf(BenchmarkUser).Pointer())
	addrs := make([]uint64, 16)
	for i := range addrs {
		addrs[i] = pc + uint64(i)
	}
	r := New(nil)
	for b.Loop() {
		r.User(os.Getpid(), addrs)
	}
}
