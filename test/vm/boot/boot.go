// Package boot is what the harness outside a virtual machine and the init
// inside it agree on: the file that says what to do, and how the outcome
// comes back.
package boot

import "time"

// ConfigPath is where init finds its Config, as JSON, in the initramfs.
const ConfigPath = "/boot.json"

// LockupProvoked is the file by which a test tells init that it makes the kernel's watchdog
// report a lockup, of a program that is called LockupComm.
const (
	LockupProvoked = "/run/lockup-provoked"
	LockupComm     = "tc-lockup"
)

// StoodStill begins the line that a guest prints when a CPU has let timers wait for seconds, as
// emulated ones do at times.
const StoodStill = "the guest stood still: "

// ExitPort is the I/O port of QEMU's isa-debug-exit device, on x86.
const ExitPort = 0xf4

// Config tells init what to do.
type Config struct {
	Modules []Module      // the initramfs has them
	Tests   []Test        // run one after the other, also after one failed
	Env     []string      // of every test
	Timeout time.Duration // for all tests together; then they are killed
}

// Test is one program whose exit status counts.
type Test struct {
	Path string
	Args []string // without the program's name
	Dir  string   // working directory
}

// Status is the outcome of a guest. The values are neither 0, which QEMU
// returns after a panic, nor small, which QEMU returns for errors of its own.
type Status uint8

// Outcomes that init reports.
const (
	Passed  Status = 0x21 + iota // every test exited with 0
	Failed                       // a test did not
	Broken                       // init could not set up the guest
	Expired                      // Config.Timeout passed
	Warned                       // the tests passed, but the kernel warned while they ran
)

// ExitCode is what QEMU exits with: the exit device of x86 makes this of s.
func (s Status) ExitCode() int { return int(s)<<1 | 1 }
