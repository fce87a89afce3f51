package symbols

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// container starts a program of testdata, linked statically, in a root of its
// own, as /prog, process 1 of its own.
func container(t *testing.T, root string) *exec.Cmd {
	t.Helper()
	needRoot(t, "chroot(2) and namespaces need CAP_SYS_ADMIN")
	cmd := exec.Command("/prog")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	cmd.Dir = "/"
	return cmd
}

// install puts a file into a root.
func install(t *testing.T, from, root, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	assert.NilError(t, err)
	to = filepath.Join(root, to)
	assert.NilError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	assert.NilError(t, os.WriteFile(to, text, 0o755))
}

func buildIDOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	e, err := elf.NewFile(f)
	assert.NilError(t, err)
	id := buildID(e, f)
	assert.Assert(t, len(id) >= 8, "%s has no build-id", path)
	return id
}

// Two containers have different programs at the same path, stripped, each with
// its debug file by build-id in its own root.
func TestLinesInContainers(t *testing.T) {
	var stacks []string
	r := patient()
	for i := range 2 {
		root := t.TempDir()
		path := build(t, "inlined", "gcc", "-O2", "-g", "-static", "-Wl,--build-id", fmt.Sprintf("-Douter=outer_%d", i), inlinedC)
		id := buildIDOf(t, path)
		debug := path + ".debug"
		split(t, path, debug)
		strip(t, path)
		install(t, path, root, "/prog")
		install(t, debug, root, "/usr/lib/debug/.build-id/"+id[:2]+"/"+id[2:]+".debug")
		p := start(t, container(t, root), "inlined")
		want := strings.ReplaceAll(inlinedStory(t), "outer ", fmt.Sprintf("outer_%d ", i))
		got := p.story(r, "inlined")
		assert.Check(t, got == want, "got  %s\nwant %s", got, want)
		stacks = append(stacks, got)
	}
	assert.Check(t, stacks[0] != stacks[1], "the two programs were not told apart")
	// A debug file of another build is not believed.
	root := t.TempDir()
	path := build(t, "inlined", "gcc", "-O2", "-g", "-static", "-Wl,--build-id", inlinedC)
	other := build(t, "inlined", "gcc", "-O1", "-g", "-static", "-Wl,--build-id", inlinedC)
	id := buildIDOf(t, path)
	strip(t, path)
	install(t, path, root, "/prog")
	install(t, other, root, "/usr/lib/debug/.build-id/"+id[:2]+"/"+id[2:]+".debug")
	p := start(t, container(t, root), "inlined")
	got := p.story(r, "inlined")
	assert.Check(t, strings.HasPrefix(got, "[unknown] (prog"), "got %s", got)
}

func TestJITInContainer(t *testing.T) {
	root := t.TempDir()
	install(t, build(t, "jit", "gcc", "-static", "testdata/jit.c"), root, "/prog")
	assert.NilError(t, os.Mkdir(filepath.Join(root, "tmp"), 0o777))
	p := start(t, container(t, root), "jit")
	_, err := os.Stat(filepath.Join(root, "tmp/perf-1.map"))
	assert.NilError(t, err, "the program is not process 1")
	want := "LazyCompile:*seven script.js:3+0x2 ([anon])"
	assert.Check(t, is.Equal(New(nil).User(p.pid, []uint64{p.addrs["jit"] + 2}).Frames[0], want))
}

// Node.js writes the map of a real just-in-time compiler.
func TestNode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("needs Node.js, which is not worth its size to the other tests (apt-get install nodejs): %v", err)
	}
	script := `function hot(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s; }
		for (let i = 0; i < 3000; i++) hot(1000);
		console.log("ready 0"); process.stdin.on("end", () => process.exit(0)); process.stdin.resume();`
	cmd := exec.Command(node, "--perf-basic-prof", "-e", script)
	cmd.Dir = t.TempDir() // it writes a log there as well
	p := start(t, cmd, "ready")
	path := fmt.Sprintf("/tmp/perf-%d.map", p.pid)
	t.Cleanup(func() { os.Remove(path) })
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	var at uint64
	for line := range bytes.Lines(text) {
		start, size, name, ok := parsePerfLine(bytes.TrimSpace(line))
		if ok && bytes.Contains(name, []byte("hot ")) && size > 8 {
			at = start + 8
		}
	}
	assert.Assert(t, at != 0, "the map has no function hot")
	got := New(&Options{Timeout: time.Minute}).User(p.pid, []uint64{at}).Frames[0]
	assert.Check(t, strings.Contains(got, "hot ") && strings.Contains(got, "+0x8 ("), "got %s", got)
}

// end ends a program and waits until nothing is left of it.
func (p *program) end(t *testing.T) {
	t.Helper()
	assert.NilError(t, syscall.Kill(p.pid, syscall.SIGKILL))
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.pid))
		if err != nil || len(text) == 0 {
			return // a zombie has none
		}
		time.Sleep(time.Millisecond)
	}
}

func TestEndedProcess(t *testing.T) {
	path := build(t, "inlined", "gcc", "-O2", "-g", inlinedC)
	p, r := start(t, exec.Command(path), "inlined"), patient()
	before := p.story(r, "inlined")
	assert.Assert(t, before == inlinedStory(t), "got %s", before)
	// Another address, whose file was read but which itself was not named.
	other := start(t, exec.Command(path), "inlined")
	r.User(other.pid, []uint64{0x1000}) // it is seen, none of its files is opened
	p.end(t)
	other.end(t)
	got := p.story(r, "inlined")
	assert.Check(t, got == before, "after its end: got %s", got)
	got = other.story(r, "inlined")
	assert.Check(t, got == before, "after the end of one whose files were never opened: got %s", got)
	// With its file gone as well, the names stay.
	assert.NilError(t, os.Remove(path))
	got = p.story(r, "inlined")
	assert.Check(t, got == before, "after the file's end: got %s", got)
	got = other.story(New(nil), "inlined")
	assert.Check(t, strings.HasPrefix(got, "[unknown] 0x"), "never seen alive: got %s", got)
}
