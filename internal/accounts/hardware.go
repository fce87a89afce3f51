package accounts

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// counter is an event that a map of bpf/accounts/hardware.h counts on each CPU.
type counter struct {
	events string // the map
	kind   uint32
	config uint64
}

func hardware() []counter {
	return []counter{
		{"hardware_cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
		{"hardware_instructions", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
		{"hardware_misses", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES},
	}
}

// CountHardware has the CPUs that are online count what the group hardware is about, for as
// long as the maps are open. What one CPU cannot count, as those of many virtual machines,
// is counted nowhere, which the error says; the others go on. Needs CAP_PERFMON.
func CountHardware(maps map[string]*ebpf.Map) error {
	return countAll(maps, hardware())
}

func countAll(maps map[string]*ebpf.Map, list []counter) error {
	var errs []error
	for _, c := range list {
		if err := c.count(maps[c.events]); err != nil {
			errs = append(errs, fmt.Errorf("count %s: %w", c.events, err))
		}
	}
	return errors.Join(errs...)
}

func (c *counter) count(to *ebpf.Map) error {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	attr := unix.PerfEventAttr{Type: c.kind, Config: c.config, Bits: unix.PerfBitPinned}
	for cpu := range n {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
			continue // it is offline
		}
		if err != nil {
			return fmt.Errorf("on CPU %d: %w", cpu, err)
		}
		if err := errors.Join(to.Put(uint32(cpu), uint32(fd)), unix.Close(fd)); err != nil { // the map holds the event
			return fmt.Errorf("on CPU %d: %w", cpu, err)
		}
	}
	return nil
}

// noCounters says why hardware counters cannot be read here; "": they can.
func noCounters() string {
	for _, pattern := range []string{"cpu", "cpu_core", "armv8*"} {
		if found, _ := filepath.Glob("/sys/bus/event_source/devices/" + pattern); len(found) > 0 {
			return ""
		}
	}
	return "this machine shows no hardware counters"
}
