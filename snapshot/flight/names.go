package flight

import (
	"strconv"

	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// unknownName is what a thread is called if nobody knows, as in the kernel's own traces.
const unknownName = "<...>"

// names tells what threads were called. It asks once for each; so it is
// to be made anew for each drain.
type names struct {
	kernel Kernel
	known  map[int][]tracker.Name
}

func newNames(kernel Kernel) *names { return &names{kernel, map[int][]tracker.Name{}} }

// at is what a thread was called at a time; cpu is that of the record, as each has an idle thread.
func (n *names) at(tid, cpu int, time uint64) (c trace.Comm) {
	if tid == 0 {
		copy(c[:], "swapper/"+strconv.Itoa(cpu))
		return c
	}
	list, known := n.known[tid]
	if !known {
		list = n.kernel.Names(tid)
		n.known[tid] = list
	}
	for i := range list {
		if list[i].Since <= time {
			return trace.Comm(list[i].Comm)
		}
	}
	copy(c[:], unknownName)
	return c
}

// whole makes a whole record of a short one.
func (n *names) whole(s *trace.Short, cpu int) trace.Record {
	now := s.Time()
	return s.Whole(func(tid int) trace.Comm { return n.at(tid, cpu, now) })
}
