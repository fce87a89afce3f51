package symbols

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// stuckFS is a file system of one file, prog, whose reads wait.
type stuckFS struct {
	fuse.RawFileSystem
	text    []byte
	release chan struct{}
}

const stuckNode = 2

func (f *stuckFS) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if name != "prog" {
		return fuse.ENOENT
	}
	out.NodeId = stuckNode
	f.attr(&out.Attr)
	return fuse.OK
}

func (f *stuckFS) attr(a *fuse.Attr) {
	a.Ino, a.Mode, a.Nlink, a.Size = stuckNode, syscall.S_IFREG|0o755, 1, uint64(len(f.text))
}

func (f *stuckFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == stuckNode {
		f.attr(&out.Attr)
	} else {
		out.Ino, out.Mode, out.Nlink = in.NodeId, syscall.S_IFDIR|0o755, 2
	}
	return fuse.OK
}

func (f *stuckFS) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.Fh = 1
	return fuse.OK
}

func (f *stuckFS) Read(_ <-chan struct{}, in *fuse.ReadIn, _ []byte) (fuse.ReadResult, fuse.Status) {
	<-f.release
	from := min(in.Offset, uint64(len(f.text)))
	return fuse.ReadResultData(f.text[from:min(from+uint64(in.Size), uint64(len(f.text)))]), fuse.OK
}

// A file whose file system does not answer keeps nobody waiting for longer than
// the time limit, neither who asks for it nor who asks for others, and its
// names are there once it answers.
func TestStuckFile(t *testing.T) {
	needRoot(t, "mounting a file system needs CAP_SYS_ADMIN")
	text, err := os.ReadFile(build(t, "frames", "gcc", "-O0", "-no-pie", "testdata/frames.c"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	fs := &stuckFS{fuse.NewDefaultRawFileSystem(), text, make(chan struct{})}
	server, err := fuse.NewServer(fs, dir, &fuse.MountOptions{DirectMount: true, FsName: "stuck"})
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(func() { close(fs.release) })
	t.Cleanup(func() {
		release()
		for server.Unmount() != nil { // the resolver still has it open
			time.Sleep(10 * time.Millisecond)
		}
	})
	f, err := os.Open(filepath.Join(dir, "prog"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := syscall.Mmap(int(f.Fd()), 0, len(text), syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(m) }()
	table, err := readTable(strings.NewReader(string(text)), 1000)
	if err != nil {
		t.Fatal(err)
	}
	var at uint64 // in the mapping, whose offset in the file is 0
	for _, s := range table.symbols {
		if table.name(s.name, nil) == "local_function" {
			for _, g := range table.segments {
				if s.start >= g.addr && s.start-g.addr < g.size {
					at = uint64(reflect.ValueOf(m).Pointer()) + s.start - g.addr + g.offset + 2
				}
			}
		}
	}

	r := New(&Options{Timeout: 2 * time.Second})
	for got := ""; !strings.HasPrefix(got, "[unknown] (prog+0x"); {
		if got = r.User(os.Getpid(), []uint64{at}).Frames[0]; strings.HasPrefix(got, "local") {
			t.Fatalf("the file was read: %s", got)
		}
	}
	if s := r.Stats(); s.Timeouts == 0 {
		t.Errorf("got %+v", s)
	}
	p := start(t, exec.Command(build(t, "frames", "gcc", "-O0", "testdata/frames.c")), "libc")
	for got := ""; !strings.HasPrefix(got, "local_function+0x"); { // others are named meanwhile
		got = p.frame(t, r, "local_function", true)
	}
	release()
	for got := ""; !strings.HasPrefix(got, "local_function+0x2 (prog)"); {
		got = r.User(os.Getpid(), []uint64{at}).Frames[0]
	}
}
