package daemon

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/tailcam/tailcam/internal/budget"
)

// readEvents reads the kernel's own counters of what drives tailcam's programs, and the
// number of CPUs that are online.
func readEvents() (e budget.Events, cpus int, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return e, 0, err
	}
	disks, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		disks = nil // no disks, no requests
	}
	e, cpus = parseEvents(stat, disks)
	return e, cpus, nil
}

func parseEvents(stat, disks []byte) (e budget.Events, cpus int) {
	for line := range bytes.Lines(stat) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseUint(string(f[1]), 10, 64)
		switch name := string(f[0]); {
		case name == "ctxt":
			e[budget.Switches] = n
		case name == "softirq":
			e[budget.Softirqs] = n
		case name == "intr":
			e[budget.Interrupts] = n
		case name == "processes":
			e[budget.Forks] = n
		case len(name) > 3 && name[:3] == "cpu":
			cpus++
		}
	}
	// Reads, writes, discards and flushes that have completed.
	for line := range bytes.Lines(disks) {
		f := bytes.Fields(line)
		for _, i := range []int{3, 7, 14, 18} {
			if i < len(f) {
				n, _ := strconv.ParseUint(string(f[i]), 10, 64)
				e[budget.Requests] += n
			}
		}
	}
	return e, cpus
}

// privateMemory returns the anonymous memory of a process in bytes; 0: it is gone.
func privateMemory(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "RssAnon:" {
			kib, _ := strconv.ParseInt(string(f[1]), 10, 64)
			return kib << 10
		}
	}
	return 0
}
