package inject

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// loopDisk is a loop device, and what was in it when it was attached.
type loopDisk struct {
	name string // loop0
	seq  string // changes when the device gets another file
	dev  *os.File
}

// AttachLoop puts a loop device over a file or device, opened with these flags.
// The kernel takes it apart when its last user is gone. Needs root and kernel 5.8+.
func AttachLoop(path string, flags int) (*os.File, error) {
	backing, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("set up a loop device: %w", err)
	}
	defer backing.Close() // the device has its own reference
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("set up a loop device: %w (needs root; try modprobe loop)", err)
	}
	defer control.Close() // nothing is written
	// Another program may take the free device first.
	for range 16 {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), flags, 0)
		if err != nil {
			return nil, fmt.Errorf("set up a loop device: %w", err)
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(config.Info.File_name[:], "tailcam")
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return dev, nil
		}
		dev.Close() // nothing was written
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("configure %s: %w", dev.Name(), err)
		}
	}
	return nil, errors.New("set up a loop device: every free one was taken by others; try again")
}

// detach lets go of the device and waits until the kernel has taken it apart,
// which it does when the other users have let go too.
func (l *loopDisk) detach() error {
	if err := l.dev.Close(); err != nil {
		return fmt.Errorf("close %s: %w", l.name, err)
	}
	for range 400 {
		if !l.attached() {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("%s is still open somewhere; it disappears when that ends", l.name)
}

// attached tells whether the device still is over our file: a free one may have
// been taken by others at once.
func (l *loopDisk) attached() bool {
	_, err := os.Stat("/sys/block/" + l.name + "/loop/backing_file")
	return err == nil && diskSeq(l.name) == l.seq
}

// diskSeq reads the kernel's number of what is in a device; empty before 5.15.
func diskSeq(name string) string {
	// older kernels have none
	seq, _ := os.ReadFile("/sys/block/" + name + "/diskseq")
	return string(seq)
}
