package fields

import "github.com/tailcam/tailcam/snapshot/trace"

// vectors are the kernel's softirqs (include/linux/interrupt.h), as it prints them.
var vectors = [...]string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}

// Vector names a softirq.
func Vector(vec uint32) string {
	if int(vec) < len(vectors) {
		return vectors[vec]
	}
	return "unknown"
}

// State writes the state that a task left its CPU in as perf and ftrace do: R
// runnable, R+ preempted, S sleeping, D not to be interrupted, T stopped, t
// traced, X and Z dead, P parked, I an idle kernel thread.
func State(s *trace.Switch) string {
	switch s.Reported() {
	case 0:
		return "R"
	case 1:
		return "S"
	case 2:
		return "D"
	case 4:
		return "T"
	case 8:
		return "t"
	case 16:
		return "X"
	case 32:
		return "Z"
	case 64:
		return "P"
	case 128:
		return "I"
	}
	return "R+"
}

// Bits of a block request's cmd_flags, include/linux/blk_types.h of 6.1 and later.
const (
	opMask    = 0xff
	sync      = 1 << 11
	meta      = 1 << 12
	fua       = 1 << 17
	preflush  = 1 << 18
	readAhead = 1 << 19
)

// Operation names what a block request does.
func Operation(flags uint32) string {
	switch flags & opMask {
	case 0:
		return "read"
	case 1:
		return "write"
	case 2:
		return "flush"
	case 3:
		return "discard"
	case 5:
		return "secure erase"
	}
	return "other"
}

// RWBS writes cmd_flags as blktrace and the kernel's tracepoints do: WS, RA, FF.
func RWBS(flags uint32) string {
	b := make([]byte, 0, 8)
	if flags&preflush != 0 {
		b = append(b, 'F')
	}
	switch flags & opMask {
	case 0:
		b = append(b, 'R')
	case 1:
		b = append(b, 'W')
	case 2:
		b = append(b, 'F')
	case 3:
		b = append(b, 'D')
	case 5:
		b = append(b, 'D', 'E')
	default:
		b = append(b, 'N')
	}
	for _, f := range [...]struct {
		bit    uint32
		letter byte
	}{{fua, 'F'}, {readAhead, 'A'}, {sync, 'S'}, {meta, 'M'}} {
		if flags&f.bit != 0 {
			b = append(b, f.letter)
		}
	}
	return string(b)
}
