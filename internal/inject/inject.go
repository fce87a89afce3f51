// Package inject provokes real latencies on this machine whose start and end
// are known from the injector's own clock. `tailcam demo` and the end-to-end
// tests hold what was reported against that truth.
//
// The work is done by child processes, because a latency must belong to a
// process and a thread of its own and must end with them: the package starts
// its own executable again with [Verb] as first argument, and the program has
// to hand the remaining arguments to [Main]. A child lives as long as the pipe
// to its parent, so that nothing outlives a parent that was killed.
//
// Everything here needs root: CAP_SYS_NICE for the wake-up, CAP_SYS_ADMIN for
// the slow disk.
package inject

import (
	"fmt"
	"os"
	"time"
)

// Verb is the hidden command that makes the program a child of this package.
const Verb = "inject-child"

// Names of the threads that do the work, at most 15 bytes as the kernel has it.
const (
	CommVictim  = "tailcam-victim"  // is woken and has to wait for a CPU
	CommHog     = "tailcam-hog"     // keeps that CPU
	CommServer  = "tailcam-slowfs"  // serves the slow file system
	CommReader  = "tailcam-reader"  // asks for the slow block request
	CommBlocked = "tailcam-blocked" // sleeps uninterruptibly
	CommSyscall = "tailcam-syscall" // sits in a slow pread64

	commIdle = "tailcam-demo" // the reader between its reads
)

// Truth is one injected latency as the injector itself measured it.
type Truth struct {
	Track     string `json:"track"` // wakeup, offcpu, syscall, block
	PID       int    `json:"pid"`   // process (thread group) id
	TID       int    `json:"tid"`
	Comm      string `json:"comm"`
	StartMono uint64 `json:"start_mono_ns"` // CLOCK_MONOTONIC
	EndMono   uint64 `json:"end_mono_ns"`   // CLOCK_MONOTONIC
	Device    string `json:"device,omitempty"`
	Sector    uint64 `json:"sector,omitempty"` // of Device, in units of 512 bytes
	// Detail says in a few words what was done, for people.
	Detail string `json:"detail"`
}

// Delay is the length of the latency.
func (t Truth) Delay() time.Duration {
	return time.Duration(t.EndMono - t.StartMono)
}

// Main is what the program has to call with the arguments after [Verb]. It
// returns the exit status. It turns the calling thread into a real-time one
// and must not be used for anything but a whole process.
func Main(args []string) int {
	roles := map[string]func(*wire) error{
		"victim": victim,
		"hog":    hog,
		"slowfs": slowfs,
		"reader": reader,
	}
	if len(args) != 1 || roles[args[0]] == nil {
		fmt.Fprintf(os.Stderr, "%s is internal: run tailcam demo instead\n", Verb)
		return 1
	}
	ignoreStops()
	w := newWire(os.Stdin, os.Stdout)
	if err := roles[args[0]](w); err != nil {
		_ = w.send(message{Error: err.Error()}) // where the parent is gone, nobody wants to know
		return 1
	}
	return 0
}
