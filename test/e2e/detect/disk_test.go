package detect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	program "github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

// ordinary is a file on a file system on a block device, all of it written.
type ordinary struct {
	path   string
	device string // disk, such as vda
	// first sector of the file on the disk, and how many follow it there
	sector, sectors uint64
}

// holds tells whether a request lies in the file.
func (f *ordinary) holds(o *events.Outlier) bool {
	return o.Block.Device == f.device && o.Block.Sector >= f.sector && o.Block.Sector < f.sector+f.sectors
}

// newOrdinary makes a file of size bytes, or skips.
func newOrdinary(t *testing.T, size int) *ordinary {
	t.Helper()
	var errs []error
	for _, dir := range []string{t.TempDir(), ".", "/var/tmp", "/"} {
		f, err := os.CreateTemp(dir, ".tailcam-detect-*")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.Cleanup(func() { os.Remove(f.Name()) })
		defer f.Close()
		o, err := f.WriteString(strings.Repeat("tailcam ", size/8))
		assert.Assert(t, err == nil && o == size, "%v", err)
		assert.NilError(t, f.Sync())
		disk, err := where(f, size)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
			continue
		}
		disk.path = f.Name()
		return disk
	}
	t.Skipf("needs a file in one piece on a block device: %v", errors.Join(errs...))
	return nil
}

func where(f *os.File, size int) (*ordinary, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	sys, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return nil, fmt.Errorf("not on a block device: %w", err)
	}
	o := &ordinary{device: filepath.Base(sys)}
	if start, err := os.ReadFile(filepath.Join(sys, "start")); err == nil { // a partition
		o.device = filepath.Base(filepath.Dir(sys))
		if o.sector, err = strconv.ParseUint(strings.TrimSpace(string(start)), 10, 64); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat("/sys/block/" + o.device + "/dm"); err == nil {
		return nil, fmt.Errorf("%s has no requests of its own", o.device)
	}
	at, err := extent(f, size)
	o.sector += at / 512
	o.sectors = uint64(size) / 512
	return o, err
}

// extent returns where a file lies, if it is in one piece (FIEMAP, linux/fiemap.h).
func extent(f *os.File, size int) (uint64, error) {
	const fsIocFiemap, flagSync = 0xc020660b, 1
	var m [32 + 2*56]byte
	binary.NativeEndian.PutUint64(m[8:], uint64(size))
	binary.NativeEndian.PutUint32(m[16:], flagSync)
	binary.NativeEndian.PutUint32(m[24:], 2) // room for two extents
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(&m))); errno != 0 {
		return 0, fmt.Errorf("find the file on its disk: %w", errno)
	}
	if n := binary.NativeEndian.Uint32(m[20:]); n == 0 {
		return 0, errors.New("the file has no extent")
	}
	logical, physical, length := binary.NativeEndian.Uint64(m[32:]), binary.NativeEndian.Uint64(m[40:]), binary.NativeEndian.Uint64(m[48:])
	if logical != 0 || length < uint64(size) {
		return 0, fmt.Errorf("the file is in pieces: the first is %d bytes", length)
	}
	return physical, nil
}

// loopOver puts a loop device over a file or device, and returns its name. It
// goes at the end of the test.
func loopOver(t *testing.T, path string, flags int) string {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("needs loop devices: %v", err)
	}
	dev, err := program.AttachLoop(path, flags)
	assert.NilError(t, err)
	t.Cleanup(func() { dev.Close() })
	return filepath.Base(dev.Name())
}

// aligned is a buffer for direct requests.
func aligned(t *testing.T, size int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	assert.NilError(t, err)
	t.Cleanup(func() { unix.Munmap(b) })
	copy(b, bytes.Repeat([]byte("tailcam "), size/8))
	return b
}

// direct opens a path for requests past the page cache.
func direct(t *testing.T, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	assert.NilError(t, err, "open %s for direct requests", path)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}
