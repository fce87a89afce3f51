// Command init is process 1 of a test guest: it mounts what tests need, loads
// modules, runs the tests on the second serial port, and tells QEMU how it
// went. The first serial port belongs to the kernel's log.
package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/vm/boot"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: runs only as process 1 of a virtual machine: use go run ./test/vm")
		os.Exit(1)
	}
	// The right to write to I/O ports belongs to a thread.
	runtime.LockOSThread()

	out := os.Stderr
	cfg, err := setup(&out)
	if err != nil {
		fmt.Fprintln(out, "init:", err)
		exit(out, boot.Broken)
	}
	exit(out, run(out, cfg))
}

// setup prepares the guest. *out becomes the test port as soon as there is one.
func setup(out **os.File) (*boot.Config, error) {
	if err := mountAll(); err != nil {
		return nil, err
	}
	tty, err := openTTY(boot.TestTTY)
	if err != nil {
		return nil, err
	}
	*out = tty

	cfg, err := boot.ReadConfig()
	if err != nil {
		return nil, err
	}
	for _, m := range cfg.Modules {
		if m.ByTest {
			continue
		}
		if err := cfg.Load(m.Name); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}

// exit reports s to QEMU, which ends at once; the logs are flushed before.
func exit(out *os.File, s boot.Status) {
	if s != boot.Passed {
		dumpKernelLog()
	}
	drain(out)
	if err := report(s); err != nil {
		fmt.Fprintln(out, "init: report exit status:", err)
		drain(out)
	}
	// Only without the exit device. The harness sees the missing status.
	time.Sleep(time.Second)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}
