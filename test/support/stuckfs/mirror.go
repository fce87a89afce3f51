package stuckfs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Op is an operation that a Mirror can get wrong.
type Op string

// The operations.
const (
	Create Op = "create" // of files and directories
	Read   Op = "read"
	Write  Op = "write"
	Sync   Op = "sync" // of files and directories
	Rename Op = "rename"
	Remove Op = "remove" // of files and directories
)

// Mirror is a mounted file system that shows a directory. One goroutine at a
// time may call its methods.
type Mirror struct{ fs *FS }

// MountMirror mounts a mirror of a directory until the end of the test. All of
// its operations work at first.
func MountMirror(t *testing.T, dir string) *Mirror {
	t.Helper()
	return &Mirror{mount(t, "", dir)}
}

// Path is that of the directory, as root sees it from here.
func (m *Mirror) Path() string { return strings.TrimSuffix(m.fs.Path(), "/") }

// Fail lets these operations fail with EIO from now on, and all others work at once.
func (m *Mirror) Fail(ops ...Op) { m.fs.order(0, ops...) }

// Slow lets each of these operations take so long, and all others work at once.
func (m *Mirror) Slow(each time.Duration, ops ...Op) { m.fs.order(each, ops...) }

// Mend lets all operations work at once, those that wait included.
func (m *Mirror) Mend() { m.fs.order(0) }

// mirror is the file system.
type mirror struct {
	fuse.RawFileSystem

	mu      sync.Mutex
	each    time.Duration // 0: fail
	ops     []string
	changed chan struct{} // closed by the next order
}

func newMirror(dir string) (*mirror, error) {
	root, err := fs.NewLoopbackRoot(dir)
	if err != nil {
		return nil, err
	}
	return &mirror{RawFileSystem: fs.NewNodeFS(root, &fs.Options{}), changed: make(chan struct{})}, nil
}

// Init implements fuse.RawFileSystem. The server stays unknown to what it embeds:
// that would let the kernel write to the files behind by itself.
func (m *mirror) Init(*fuse.Server) {}

func (m *mirror) order(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("empty order")
	}
	each, err := time.ParseDuration(words[0])
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.each, m.ops = each, words[1:]
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// before waits, or fails, as it was ordered for an operation.
func (m *mirror) before(op Op) fuse.Status {
	m.mu.Lock()
	each, hit, changed := m.each, slices.Contains(m.ops, string(op)), m.changed
	m.mu.Unlock()
	switch {
	case !hit:
	case each == 0:
		return fuse.Status(syscall.EIO)
	default:
		select {
		case <-time.After(each):
		case <-changed:
		}
	}
	return fuse.OK
}

// do carries out an operation, unless it is to fail.
func (m *mirror) do(op Op, fn func() fuse.Status) fuse.Status {
	if s := m.before(op); s != fuse.OK {
		return s
	}
	return fn()
}

// Create implements fuse.RawFileSystem.
func (m *mirror) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return m.do(Create, func() fuse.Status { return m.RawFileSystem.Create(cancel, in, name, out) })
}

// Mkdir implements fuse.RawFileSystem.
func (m *mirror) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return m.do(Create, func() fuse.Status { return m.RawFileSystem.Mkdir(cancel, in, name, out) })
}

// Open implements fuse.RawFileSystem. What was read stays in the page cache, else each
// open takes from programs what they run.
func (m *mirror) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	status := m.RawFileSystem.Open(cancel, in, out)
	out.OpenFlags |= fuse.FOPEN_KEEP_CACHE
	return status
}

// Read implements fuse.RawFileSystem.
func (m *mirror) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	if s := m.before(Read); s != fuse.OK {
		return nil, s
	}
	return m.RawFileSystem.Read(cancel, in, buf)
}

// Write implements fuse.RawFileSystem.
func (m *mirror) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if s := m.before(Write); s != fuse.OK {
		return 0, s
	}
	return m.RawFileSystem.Write(cancel, in, data)
}

// Writev implements fuse.RawFileSystem.
func (m *mirror) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	if s := m.before(Write); s != fuse.OK {
		return 0, s
	}
	return m.RawFileSystem.Writev(cancel, in, data)
}

// Fsync implements fuse.RawFileSystem.
func (m *mirror) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return m.do(Sync, func() fuse.Status { return m.RawFileSystem.Fsync(cancel, in) })
}

// FsyncDir implements fuse.RawFileSystem.
func (m *mirror) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return m.do(Sync, func() fuse.Status { return m.RawFileSystem.FsyncDir(cancel, in) })
}

// Rename implements fuse.RawFileSystem.
func (m *mirror) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	return m.do(Rename, func() fuse.Status { return m.RawFileSystem.Rename(cancel, in, from, to) })
}

// Unlink implements fuse.RawFileSystem.
func (m *mirror) Unlink(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return m.do(Remove, func() fuse.Status { return m.RawFileSystem.Unlink(cancel, header, name) })
}

// Rmdir implements fuse.RawFileSystem.
func (m *mirror) Rmdir(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return m.do(Remove, func() fuse.Status { return m.RawFileSystem.Rmdir(cancel, header, name) })
}
