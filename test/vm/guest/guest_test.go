package guest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// slowDisk takes slowDiskDelay for each request.
const (
	slowDisk      = "/dev/nullb0"
	slowDiskDelay = 20 * time.Millisecond
)

// inGuest skips a test that runs outside a virtual machine of the matrix.
// Every test of this package calls it first.
func inGuest(t *testing.T) {
	t.Helper()
	if os.Getenv("TAILCAM_GUEST") != "1" {
		t.Skip("runs inside a test virtual machine only: go run ./test/vm")
	}
}

// loadModules loads modules that only some tests need, if they are not built in.
func loadModules(t *testing.T, names ...string) {
	t.Helper()
	cfg, err := boot.ReadConfig()
	assert.NilError(t, err)
	for _, name := range names {
		assert.NilError(t, cfg.Load(name))
	}
}

// switchOfCPU1 returns what switches the second CPU on ("1") and off ("0").
func switchOfCPU1(t *testing.T) (power func(on string)) {
	t.Helper()
	const file = "/sys/devices/system/cpu/cpu1/online"
	if _, err := os.Stat(file); err != nil {
		t.Skipf("this guest has one CPU, or cannot take it away: %v", err)
	}
	return func(on string) {
		t.Helper()
		assert.NilError(t, os.WriteFile(file, []byte(on), 0))
	}
}

// stepClock sets the wall clock forth or back.
func stepClock(t *testing.T, by time.Duration) {
	t.Helper()
	to := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
	assert.Check(t, unix.Settimeofday(&to))
}

// readDirect reads one block past the page cache and returns how long it took.
func readDirect(path string, offset int64) (took time.Duration, err error) {
	err = direct(path, unix.O_RDONLY, func(fd int, block []byte) (int, error) {
		start := time.Now()
		n, err := unix.Pread(fd, block, offset)
		took = time.Since(start)
		return n, err
	})
	return took, err
}

// direct reads or writes one block past the page cache.
func direct(path string, flags int, do func(fd int, block []byte) (int, error)) error {
	const block = 4096
	fd, err := unix.Open(path, flags|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	// O_DIRECT wants an aligned buffer: a mapping is.
	buf, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	defer func() { _ = unix.Munmap(buf) }()
	for {
		n, err := do(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		case n != block:
			return fmt.Errorf("%s: %d bytes of %d", path, n, block)
		}
		return nil
	}
}

// realTime reports whether this is a real-time kernel.
func realTime() bool { return strings.HasSuffix(os.Getenv("TAILCAM_GUEST_KERNEL"), "-rt") }

// TestKernel proves that the guest runs the kernel that the matrix claims.
func TestKernel(t *testing.T) {
	inGuest(t)
	var uts unix.Utsname
	assert.NilError(t, unix.Uname(&uts))
	release, build := unix.ByteSliceToString(uts.Release[:]), unix.ByteSliceToString(uts.Version[:])
	t.Logf("%s %s", release, build)
	name := os.Getenv("TAILCAM_GUEST_KERNEL")
	assert.Check(t, is.Equal(release, os.Getenv("TAILCAM_GUEST_RELEASE")))
	assert.Check(t, is.Equal(strings.Contains(build, "PREEMPT_RT"), realTime()), "real-time kernel")
	assert.Check(t, is.Equal(os.Getpagesize() == 16<<10, strings.HasSuffix(name, "-16k")), "pages of %d bytes", os.Getpagesize())
	t.Log(boot.FormatFact("page size", fmt.Sprint(os.Getpagesize()), ""))
}

// TestSlowDisk proves that the injector of slow block requests works. The
// device never answers early, so only that is asserted.
func TestSlowDisk(t *testing.T) {
	inGuest(t)
	for i := range 5 {
		took, err := readDirect(slowDisk, int64(i)<<20)
		assert.NilError(t, err)
		t.Logf("read in %s", took)
		assert.Check(t, took >= slowDiskDelay*99/100,
			"read %d took %s: %s is not slowed down to %s", i, took, slowDisk, slowDiskDelay)
	}
}
