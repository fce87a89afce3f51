package accounts

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

// include/uapi/linux/io_uring.h
const (
	uringEntries   = 8
	uringParams    = 120 // struct io_uring_params; offsets of its parts:
	uringSQ        = 40
	uringCQ        = 80
	uringSQEs      = 0x10000000
	uringRead      = 22 // IORING_OP_READ
	uringAsync     = 1 << 4
	uringGetEvents = 1
)

// uring is an io_uring with one request at a time.
type uring struct {
	fd         int
	ring, sqes []byte
	params     [uringParams]byte
}

func newUring(t *testing.T) *uring {
	t.Helper()
	u := &uring{}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uringEntries, uintptr(unsafe.Pointer(&u.params)), 0)
	if errno == unix.ENOSYS || errno == unix.EPERM {
		t.Skipf("this machine has no io_uring: %v", errno)
	}
	assert.Check(t, errno == 0, "%v", errno)
	u.fd = int(fd)
	t.Cleanup(func() { _ = unix.Close(u.fd) })
	size := int(max(u.word(uringCQ+20)+u.word(4)*16, u.word(uringSQ+24)+uringEntries*4))
	var err error
	u.ring, err = unix.Mmap(u.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	assert.NilError(t, err)
	u.sqes, err = unix.Mmap(u.fd, uringSQEs, uringEntries*64, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	assert.NilError(t, err)
	t.Cleanup(func() { _, _ = unix.Munmap(u.ring), unix.Munmap(u.sqes) })
	return u
}

func (u *uring) word(at int) uint32 { return binary.NativeEndian.Uint32(u.params[at:]) }

func (u *uring) at(offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&u.ring[offset])) }

// submit has a worker of the kernel read a file.
func (u *uring) submit(fd int, data []byte) unix.Errno {
	tail := u.at(u.word(uringSQ + 4))
	slot := *tail & (uringEntries - 1)
	sqe := u.sqes[slot*64:][:64]
	clear(sqe)
	sqe[0], sqe[1] = uringRead, uringAsync
	binary.NativeEndian.PutUint32(sqe[4:], uint32(fd))
	binary.NativeEndian.PutUint64(sqe[16:], uint64(uintptr(unsafe.Pointer(&data[0]))))
	binary.NativeEndian.PutUint32(sqe[24:], uint32(len(data)))
	*u.at(u.word(uringSQ+24) + slot*4) = slot
	atomic.StoreUint32(tail, *tail+1)
	return u.enter(1, 0)
}

func (u *uring) enter(submit, wait uintptr) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(u.fd), submit, wait, uringGetEvents, 0, 0)
	return errno
}

// What a worker of io_uring does is of the token that the thread carried when it asked for it.
func TestUringWorker(t *testing.T) {
	p := openGroups(t, Block)
	const size = 4 * mebibyte
	fd := open(t, newFile(t, size), unix.O_RDONLY|unix.O_DIRECT)
	data := aligned(size)
	u := newUring(t)
	asks, later := p.token(), p.token()
	p.carry(asks, func() { assert.Check(t, cmp.Equal(u.submit(fd, data), unix.Errno(0))) })
	p.carry(later, func() {
		for done := u.at(u.word(uringCQ + 4)); atomic.LoadUint32(done) == 0; time.Sleep(time.Millisecond) {
			assert.Check(t, cmp.Equal(u.enter(0, 1), unix.Errno(0)))
		}
	})
	runtime.KeepAlive(data)
	p.show("asks", asks)
	p.show("process", 0)
	assert.Check(t, cmp.Equal(p.value(asks, abi.ActivityBlockBytes), uint64(size)))
	p.none(later, Block)
	p.none(0, Block)
}
