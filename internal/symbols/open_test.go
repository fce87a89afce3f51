package symbols

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// A container may put anything where a debug file or a perf map belongs:
// nothing but what they should be is handed out, and nothing waits.
func TestHostileRoot(t *testing.T) {
	root := t.TempDir()
	install(t, build(t, "jit", "gcc", "-static", "testdata/jit.c"), root, "/prog")
	assert.NilError(t, os.Mkdir(filepath.Join(root, "tmp"), 0o777))
	p := start(t, container(t, root), "jit")
	in := func(path string) string { return filepath.Join(root, path) }
	perfMap := in("/tmp/perf-1.map")
	opener := NewOpener(&OpenerOptions{Local: true})
	if f, err := opener.PerfMap(p.pid); err != nil {
		t.Fatalf("its own map: %v", err)
	} else {
		f.Close()
	}
	for name, put := range map[string]func(path string) error{
		"a pipe":            func(path string) error { return unix.Mkfifo(path, 0o644) },
		"a device":          func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
		"a directory":       func(path string) error { return os.Mkdir(path, 0o755) },
		"a link out":        func(path string) error { return os.Symlink("../../../../../../etc/passwd", path) },
		"a link into /proc": func(path string) error { return os.Symlink("/proc/self/root/etc/passwd", path) },
		"a link to itself":  func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"text":              func(path string) error { return os.WriteFile(path, []byte("not for parsers"), 0o644) },
		"memory of a crash": func(path string) error {
			return os.WriteFile(path, append([]byte("\x7fELF\x02\x01\x01"), "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x3e\x00"...), 0o644)
		},
		"a map of a stranger": func(path string) error {
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				return err
			}
			return os.Chown(path, 4321, 4321)
		},
	} {
		assert.NilError(t, os.RemoveAll(perfMap))
		assert.NilError(t, put(perfMap))
		owned := name == "text" || name == "memory of a crash" // these may be a map, but no debug file
		if f, err := opener.PerfMap(p.pid); err == nil {
			if f.Close(); !owned {
				t.Errorf("%s is taken for a perf map", name)
			}
		}
		if f, err := opener.InRoot(p.pid, "/tmp/perf-1.map"); err == nil {
			f.Close()
			t.Errorf("%s is taken for a debug file", name)
		}
	}
	if f, err := opener.InRoot(p.pid, "/../../prog"); err != nil {
		t.Errorf("the program itself: %v", err)
	} else {
		f.Close()
	}
}

// Nothing is asked of a file system that may not answer.
func TestRemoteIsNotAsked(t *testing.T) {
	source := build(t, "frames", "gcc", "-O0", "-static", "testdata/frames.c")
	fs := stuckfs.Mount(t, "frames", source)
	args := fs.Program(1234)
	p := start(t, exec.Command(args[0], args[1:]...), "libc")
	r, local := New(nil), New(&Options{Opener: NewOpener(&OpenerOptions{Local: true})})
	wantFrame(t, p.frame(t, r, "local_function", true), "local_function", "frames")
	fs.Hang()
	defer fs.Answer()
	opener := NewOpener(&OpenerOptions{Local: true})
	for _, path := range []string{"/media/frames", "/media/none", "/media/../media/frames", "/proc/../media/frames"} {
		_, err := opener.InRoot(p.pid, path)
		assert.Check(t, is.ErrorIs(err, ErrRemote), "%s", path)
	}
	begin := time.Now()
	got := p.frame(t, local, "local_function", true)
	assert.Check(t, strings.HasPrefix(got, "[unknown] (frames+0x"), "got %s", got)
	s := local.Stats()
	assert.Check(t, s.Remote != 0 && s.Timeouts == 0 && s.Stuck == 0, "after %v: got %+v", time.Since(begin), s)
	n := strings.Count(child.States(os.Getpid()), "D")
	assert.Check(t, n == 0, "%d threads hang", n)
}

func TestReadMounts(t *testing.T) {
	got, err := readMounts(strings.NewReader(`23 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
24 23 0:21 / /mnt/a\040b rw - fuse.sshfs host:/ rw,user_id=1000
broken
25 23 0:x / /mnt rw - tmpfs tmpfs rw
26 23 0:22 / /ov rw master:2 - overlay overlay rw,lowerdir=/a
`))
	assert.Assert(t, err == nil && len(got.byID) == 3, "got %+v, %v", got, err)
	for id, kind := range map[uint64]string{23: "ext4", 24: "fuse.sshfs", 26: "overlay"} {
		m := got.byID[id]
		assert.Check(t, m.kind == kind && got.byDev[m.dev].kind == kind, "mount %d: got %+v", id, m)
	}
}
