package kinds

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// threads are by number of their bit (enum thread_bit).
var threads = [abi.FloorThreads]rules.Thread{rules.UserThread, rules.KernelThread}

// inThread: classes are by is-kernel-thread.
func inThread(class int, m *rules.Match) bool { return Admits(m.Thread, nil, threads[class]) }

// inState: classes are by is-kernel-thread, and number of the state.
func inState(class int, m *rules.Match) bool {
	return inThread(class/len(states), m) && Admits(m.State, nil, states[class%len(states)])
}

// least is the lowest of all floors.
func least(floors []uint64) []uint64 { return []uint64{slices.Min(floors)} }

// leastOfStates is the lowest floor of each state, of whichever thread.
func leastOfStates(floors []uint64) []uint64 {
	out := make([]uint64, abi.TimeoutStates)
	for i := range out {
		out[i] = abi.Never
	}
	for class, floor := range floors {
		out[class%len(states)] = min(out[class%len(states)], floor)
	}
	return out
}

func decodeWakeup(o *events.Outlier, m *Message) {
	decodeSched(o, m)
	o.Preempted = m.Flags&abi.OutlierPreempted != 0
}

func decodeOffCPU(o *events.Outlier, m *Message) {
	decodeSched(o, m)
	o.State = string(stateOf(m.State))
}

// decodeSched fills in what both wakeup and offcpu know.
func decodeSched(o *events.Outlier, m *Message) {
	o.RunnableNS = int64(m.RunnableNs)
	wait := int(m.WaitCpu)
	o.WaitCPU = &wait
	addSyscall(o, m)
	if m.WakerComm[0] != 0 {
		o.Waker = waker(m)
		trace := events.Trace{ID: m.WakerTraceId, Span: m.WakerSpanId}
		o.Waker.TraceID, o.Waker.SpanID = trace.Text()
	}
	o.OnCPU = longestRun(m.Runs[:], wait, m.Tid)
	if o.OnCPU != nil && o.OnCPU.TID == int(m.RunTid) {
		trace := events.Trace{ID: m.RunTraceId, Span: m.RunSpanId}
		o.OnCPU.TraceID, o.OnCPU.SpanID = trace.Text()
	}
}

// waker is who made work go on: woke a task, queued a work item.
func waker(m *Message) *events.Waker {
	return &events.Waker{
		Peer:    events.Peer{PID: int(m.WakerPid), TID: int(m.WakerTid), Comm: Text(m.WakerComm[:])},
		Context: contextOf(m.WakerContext),
	}
}

// contextOf names what ran on top of the waker's task (enum waker_context).
func contextOf(c uint32) string {
	number := c & abi.WakerNumber
	switch c &^ abi.WakerNumber {
	case abi.WakerSoftirq:
		if number == abi.WakerNumber {
			return "softirq"
		}
		number &^= abi.WakerLocal | abi.WakerRemote
		return "softirq " + linux.Softirq(number, strconv.Itoa(int(number)))
	case abi.WakerIrq:
		if number == abi.WakerNumber {
			return "irq"
		}
		return fmt.Sprintf("irq %d", number)
	case abi.WakerHrtimer:
		return "timer"
	default:
		return ""
	}
}

// longestRun is the task that ran longest within a wait. nil: none is known.
func longestRun(runs []abi.RunTotal, cpu int, self uint32) *events.OnCPU {
	var best *events.OnCPU
	for i := range runs {
		r := &runs[i]
		if r.Ns == 0 || r.Tid == self || best != nil && int64(r.Ns) <= best.RanNS {
			continue
		}
		best = &events.OnCPU{Peer: events.Peer{PID: int(r.Pid), TID: int(r.Tid), Comm: Text(r.Comm[:])}, CPU: cpu, RanNS: int64(r.Ns)}
	}
	return best
}
