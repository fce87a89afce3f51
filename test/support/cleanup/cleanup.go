// Package cleanup takes away what a test has made on the machine, and does so
// even if the test is killed: a child waits for its end.
package cleanup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
)

// role makes a test program the child, by its name of itself.
const role = "tailcam-afterwards"

const (
	unmount      = "unmount"
	removeCgroup = "remove-cgroup"
	setClock     = "set-clock"
)

// Unmount unmounts a directory at the end of the test. If its file system is
// frozen, it goes on before.
func Unmount(t testing.TB, dir string) {
	t.Helper()
	start(t, unmount, dir)
}

// RemoveCgroup removes a control group at the end of the test, once what runs
// in it has ended. If it is frozen, it goes on before.
func RemoveCgroup(t testing.TB, dir string) {
	t.Helper()
	start(t, removeCgroup, dir)
}

// RestoreClock sets the wall clock at the end of the test to what it would be then
// if nobody had set it since this call.
func RestoreClock(t testing.TB) {
	t.Helper()
	start(t, setClock, strconv.FormatInt(wallLessMono(), 10))
}

// wallLessMono is CLOCK_REALTIME less CLOCK_MONOTONIC, in nanoseconds.
func wallLessMono() int64 {
	before, wall, after := linux.Monotonic(), time.Now().UnixNano(), linux.Monotonic()
	return wall - int64(before+after)/2
}

// StepClock moves the wall clock by so many nanoseconds.
func StepClock(by int64) error { return setWallLessMono(wallLessMono() + by) }

func setWallLessMono(offset int64) error {
	wall := unix.NsecToTimespec(int64(linux.Monotonic()) + offset)
	return unix.ClockSettime(unix.CLOCK_REALTIME, &wall)
}

func start(t testing.TB, what, dir string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{role, what, dir}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal of a terminal ends it
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	assert.NilError(t, err, "%s %s yourself", what, dir)
	t.Cleanup(func() {
		in.Close() // it does it then
		assert.Check(t, cmd.Wait(), "%s %s", what, dir)
	})
}

// Every test program with this package in it can be the child.
func init() {
	if os.Args[0] != role {
		return
	}
	io.Copy(io.Discard, os.Stdin) //nolint:errcheck // it ends with the test, however that ends
	err := undo(os.Args[1], os.Args[2])
	for deadline := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(deadline); err = undo(os.Args[1], os.Args[2]) {
		time.Sleep(50 * time.Millisecond) // who uses it may be ending
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func undo(what, dir string) error {
	switch what {
	case setClock:
		offset, err := strconv.ParseInt(dir, 10, 64)
		if err != nil {
			return err
		}
		return setWallLessMono(offset)
	case unmount:
		thaw(dir)
		return unix.Unmount(dir, 0)
	case killCgroup:
		return killTree(dir)
	}
	for file, value := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		_ = os.WriteFile(filepath.Join(dir, file), []byte(value), 0) // of one version or the other
	}
	if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) { // it may be asked for twice
		return err
	}
	return nil
}

// thaw undoes fsfreeze; most file systems are not frozen.
func thaw(dir string) {
	const fithaw = 0xc0045878 // FITHAW of linux/fs.h
	if fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.IoctlSetInt(fd, fithaw, 0)
		_ = unix.Close(fd)
	}
}
