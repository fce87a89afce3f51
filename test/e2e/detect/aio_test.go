package detect

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// submit reads n adjoining blocks of 4 KiB with one system call, so that the
// block layer may merge them (linux/aio_abi.h, struct iocb).
func submit(t *testing.T, fd int, buf []byte, n int) {
	t.Helper()
	var ring uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, uintptr(n), uintptr(unsafe.Pointer(&ring)), 0); errno != 0 {
		t.Skipf("needs asynchronous I/O: %v", errno)
	}
	defer unix.Syscall(unix.SYS_IO_DESTROY, ring, 0, 0)
	const opcode = 0 // IOCB_CMD_PREAD
	blocks := make([][64]byte, n)
	list := make([]*[64]byte, n)
	for i := range blocks {
		b := &blocks[i]
		binary.NativeEndian.PutUint16(b[16:], opcode)
		binary.NativeEndian.PutUint32(b[20:], uint32(fd))
		binary.NativeEndian.PutUint64(b[24:], uint64(uintptr(unsafe.Pointer(&buf[i*4096]))))
		binary.NativeEndian.PutUint64(b[32:], 4096)
		binary.NativeEndian.PutUint64(b[40:], uint64(i)*4096)
		list[i] = b
	}
	got, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, ring, uintptr(n), uintptr(unsafe.Pointer(&list[0])))
	assert.Assert(t, errno == 0 && int(got) == n, "submit %d blocks: %d, %v", n, got, errno)
	done := make([][32]byte, n)
	for need := n; need > 0; {
		got, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, ring, uintptr(need), uintptr(need), uintptr(unsafe.Pointer(&done[0])), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		assert.Assert(t, errno == 0, "%v", errno)
		for i := range int(got) {
			res := int64(binary.NativeEndian.Uint64(done[i][16:]))
			assert.Assert(t, res == 4096, "read %d bytes of 4096", res)
		}
		need -= int(got)
	}
}
