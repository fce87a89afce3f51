package kernel

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Preemption says in which programs of the running kernel tasks are preempted. The kernel skips a
// program that another task is in on the same CPU, and counts that (see Objects.Missed).
type Preemption struct {
	Functions   bool // fentry and fexit
	Tracepoints bool // since commit a46023d5616e, 7.0
}

// PreemptionHere asks the running kernel, once.
var PreemptionHere = sync.OnceValues(func() (Preemption, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Preemption{}, fmt.Errorf("ask for the kind of kernel: %w", err)
	}
	models, _ := os.ReadFile("/sys/kernel/debug/sched/preempt") // of which there may be none
	commandLine, _ := os.ReadFile("/proc/cmdline")
	release, version := unix.ByteSliceToString(uts.Release[:]), unix.ByteSliceToString(uts.Version[:])
	return preemption(release, version, string(models), string(commandLine)), nil
})

func preemption(release, version, models, commandLine string) Preemption {
	full := preempts(version, models, commandLine)
	digits, _, _ := strings.Cut(release, ".")
	major, err := strconv.Atoi(digits)
	return Preemption{Functions: full, Tracepoints: full && err == nil && major >= 7}
}

// preempts reports whether tasks are preempted in the kernel: on real-time kernels, and on those whose
// model is full. A kernel that can change its model (PREEMPT_DYNAMIC) says which in a file of
// debugfs, such as "none voluntary (full) lazy"; where that cannot be read, it is what the command
// line asks for. With lazy it happens rarely: only real-time tasks preempt there at once.
func preempts(version, models, commandLine string) bool {
	switch {
	case strings.Contains(version, "PREEMPT_RT"):
		return true
	case !strings.Contains(version, "PREEMPT_DYNAMIC"):
		return strings.Contains(version, "PREEMPT")
	case models != "":
		return strings.Contains(models, "(full)")
	}
	return slices.Contains(strings.Fields(commandLine), "preempt=full")
}
