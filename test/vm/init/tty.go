package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// openTTY opens a serial port that passes bytes on unchanged.
func openTTY(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err == nil {
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
		t.Cflag = t.Cflag&^unix.CBAUD | unix.B115200 | unix.CLOCAL
		err = unix.IoctlSetTermios(fd, unix.TCSETS, t)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set up %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// drain waits until the serial port has sent everything.
func drain(f *os.File) {
	const waitOnly = 1 // TCSBRK with an argument other than 0 is tcdrain
	_ = unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, waitOnly)
}

// dumpKernelLog writes the messages that the console's log level held back.
func dumpKernelLog() {
	buf := make([]byte, 1<<18)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return
	}
	tty, err := openTTY(boot.KernelTTY)
	if err != nil {
		return
	}
	fmt.Fprintln(tty, "init: the whole kernel log follows")
	_, _ = tty.Write(buf[:n])
	drain(tty)
}
