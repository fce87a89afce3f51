// Package stuckfs mounts a file system of one file that can be made not to
// answer, for tests of what must go on when it does not. Needs root and FUSE.
//
// The test itself serves it, so the test must not start the file: Go's fork
// lets nothing else run until exec has read it. A shell may.
package stuckfs

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is the number of the only file.
const node = 2

// FS is a mounted file system. Its methods may be called by any goroutine.
type FS struct {
	fuse.RawFileSystem
	path string
	text []byte

	mu      sync.Mutex
	answers chan struct{} // closed while reads are answered
}

// Mount mounts a file system with one executable file of that name and text,
// which every user may run, until the end of the test. It answers at first.
func Mount(t *testing.T, name string, text []byte) *FS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: mounting a file system needs CAP_SYS_ADMIN")
	}
	dir, err := os.MkdirTemp("", "tailcam-stuck-")
	if err != nil {
		t.Fatal(err)
	}
	f := &FS{RawFileSystem: fuse.NewDefaultRawFileSystem(), path: filepath.Join(dir, name), text: text, answers: make(chan struct{})}
	close(f.answers)
	server, err := fuse.NewServer(f, dir, &fuse.MountOptions{DirectMount: true, FsName: "stuck", AllowOther: true, MaxReadAhead: 4096})
	if err != nil {
		os.Remove(dir) //nolint:errcheck // empty, in the temporary directory
		t.Skipf("no FUSE here (try modprobe fuse): %v", err)
	}
	keepFromChildren()
	go server.Serve()
	t.Cleanup(func() {
		f.Answer()
		for server.Unmount() != nil { // somebody has the file open still
			time.Sleep(10 * time.Millisecond)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := server.WaitMount(); err != nil {
		t.Fatal(err)
	}
	return f
}

// keepFromChildren closes the connection to the kernel in programs that the test
// starts: should it be killed, they would keep themselves waiting for ever.
func keepFromChildren() {
	list, _ := os.ReadDir("/proc/self/fd")
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == "/dev/fuse" {
			if fd, err := strconv.Atoi(e.Name()); err == nil {
				syscall.CloseOnExec(fd)
			}
		}
	}
}

// Path is that of the file.
func (f *FS) Path() string { return f.path }

// Hang lets reads wait from now on, but for what the kernel has cached.
func (f *FS) Hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = make(chan struct{})
}

// Answer answers the reads that wait, and all later ones.
func (f *FS) Answer() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.answers:
	default:
		close(f.answers)
	}
}

// Lookup implements fuse.RawFileSystem.
func (f *FS) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if name != filepath.Base(f.path) {
		return fuse.ENOENT
	}
	out.NodeId = node
	f.attributes(&out.Attr)
	return fuse.OK
}

func (f *FS) attributes(a *fuse.Attr) {
	a.Ino, a.Mode, a.Nlink, a.Size = node, syscall.S_IFREG|0o755, 1, uint64(len(f.text))
}

// GetAttr implements fuse.RawFileSystem.
func (f *FS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == node {
		f.attributes(&out.Attr)
	} else {
		out.Ino, out.Mode, out.Nlink = in.NodeId, syscall.S_IFDIR|0o755, 2
	}
	return fuse.OK
}

// Open implements fuse.RawFileSystem.
func (f *FS) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.Fh = 1
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE // else each open takes from programs what they run
	return fuse.OK
}

// Read implements fuse.RawFileSystem.
func (f *FS) Read(_ <-chan struct{}, in *fuse.ReadIn, _ []byte) (fuse.ReadResult, fuse.Status) {
	f.mu.Lock()
	answers := f.answers
	f.mu.Unlock()
	<-answers
	from := min(in.Offset, uint64(len(f.text)))
	return fuse.ReadResultData(f.text[from:min(from+uint64(in.Size), uint64(len(f.text)))]), fuse.OK
}
