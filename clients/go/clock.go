package tailcam

import (
	"bytes"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// nanotime is CLOCK_MONOTONIC, which the kernel side has its times from, through the vDSO.
//
//go:linkname nanotime runtime.nanotime
func nanotime() uint64

// prctl's PR_GET_TSC and its answer (include/uapi/linux/prctl.h).
const (
	prGetTSC    = 25
	prTSCEnable = 1
)

// counts reports whether this process may read the time stamp counter, and the kernel has its
// clock from it.
func counts() bool {
	if runtime.GOARCH != "amd64" {
		return false
	}
	mode := int32(0)
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prGetTSC, uintptr(unsafe.Pointer(&mode)), 0)
	if errno != 0 || mode != prTSCEnable {
		return false
	}
	name, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return err == nil && string(bytes.TrimSpace(name)) == "tsc"
}

const (
	maxBracket = 1000          // cycles that a reading of both clocks may take
	minAge     = 10_000_000    // ns, between the readings that the speed is known from
	maxAge     = 1_000_000_000 // ns
	believed   = 1_000_000     // ns, that a reading is believed for
)

// clock is the time stamp counter as CLOCK_MONOTONIC, for one thread: half the price. The line through
// two readings of both holds for a millisecond, so whatever happens to the counter (suspend,
// migration, a kernel that stops trusting it) is over then.
type clock struct {
	cycles, ns       uint64 // the last reading
	limit            uint64 // cycles for which it is believed
	speed            uint64 // ns a cycle, times 2^32; 0: not known yet
	oldCycles, oldNS uint64 // the reading that the speed is known from
	tsc              bool
}

func (c *clock) now() uint64 {
	cycles := counter() - c.cycles
	if cycles < c.limit {
		return c.ns + cycles*c.speed>>32
	}
	return c.read()
}

// read reads both clocks.
func (c *clock) read() uint64 {
	if !c.tsc {
		return nanotime()
	}
	c.limit = 0
	before := counter()
	ns := nanotime()
	after := counter()
	if after-before > maxBracket {
		return ns // it was interrupted
	}
	cycles := before + (after-before)/2
	speed, age := c.speed, ns-c.oldNS
	if c.oldNS != 0 && age >= minAge {
		speed = uint64(float64(age) / float64(cycles-c.oldCycles) * (1 << 32))
		if speed < 1<<28 || speed > 1<<36 || (c.speed != 0 && max(speed, c.speed)-min(speed, c.speed) > c.speed/1000) {
			c.speed, c.oldNS, speed = 0, 0, 0
		}
	}
	if c.oldNS == 0 || age > maxAge {
		c.oldNS, c.oldCycles = ns, cycles
	}
	if speed != 0 {
		c.speed, c.cycles, c.ns = speed, cycles, ns
		c.limit = believed << 32 / speed
	}
	return ns
}
