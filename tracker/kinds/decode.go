package kinds

import (
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// Message is an outlier as the kernel side sends it, with the rule that fired.
type Message struct {
	*abi.Outlier
	Rule   *rules.Rule
	Labels []Label // of a declared pair
}

// Decode turns a message into an outlier. Any bytes will do: lengths and
// numbers are checked.
func (m *Message) Decode() *events.Outlier {
	kind := Of(m.Rule.Track)
	o := &events.Outlier{
		Time:        wallTime(m.TimeNs),
		Rule:        m.Rule.Name,
		Track:       string(m.Rule.Track),
		Cause:       causeOf(m.Cause),
		DelayNS:     int64(m.TimeNs - m.StartNs),
		ThresholdNS: int64(m.ThresholdNs),
		Task: events.Task{
			PID: int(m.Pid), TID: int(m.Tid), UID: int(m.Uid), Comm: Text(m.Comm[:]),
			Kernel: m.Flags&abi.OutlierKthread != 0,
		},
		CPU:           int(m.Cpu),
		EntryCPU:      int(m.EntryCpu),
		Suppressed:    m.Suppressed,
		StartMono:     m.StartNs,
		EndMono:       m.TimeNs,
		WantsSnapshot: m.Flags&abi.OutlierSnapshot != 0,
		MatchedRule:   m.Rule,
		Key:           map[string]uint64{"tid": uint64(m.Tid)},
		Raw: events.RawStacks{
			Kernel: Frames(m.Kernel[:], uint64(m.KernelFrames)),
			Waker:  Frames(m.Waker[:], uint64(m.WakerFrames)),
		},
	}
	if ip := m.UserRegs[abi.UserIp]; ip != 0 {
		o.Raw.User = []uint64{ip}
		o.User = &events.UserState{
			Registers: m.UserRegs, Narrow: m.Flags&abi.OutlierUser32 != 0, StartNS: m.UserStartNs, Switches: m.UserSwitches,
		}
	}
	o.SetTrace(events.Trace{ID: m.TraceId, Span: m.SpanId})
	o.AfterTimeout = o.Cause == events.CauseAfterTimeout
	kind.Decode(o, m)
	if o.Cause != events.CauseTimeout {
		return o
	}
	o.Unstacked = m.Flags&abi.OutlierNoStack != 0
	if m.Flags&abi.OutlierRunning == 0 {
		o.Switches = m.UserSwitches
	}
	switch {
	case kind.Stateless != nil && kind.Stateless(m):
	case m.Flags&abi.OutlierRunning != 0:
		o.State = "running"
	default:
		o.State = StateAtSwitch(m.State)
	}
	return o
}

// Facts is what the conditions of a rule ask of the outlier that Decode made.
func (m *Message) Facts(o *events.Outlier) rules.Facts {
	f := rules.Facts{
		CPU:  m.Cpu,
		Comm: o.Task.Comm, PID: m.Pid, TID: m.Tid, UID: m.Uid, Place: rules.Place{Cgroup: o.Task.Cgroup},
		Syscall: int(m.Syscall), Device: Text(m.Disk[:]), Sector: m.Sector,
		Op: rules.Op(linux.BlockOpClass(m.CmdFlags)), State: stateOf(m.State),
		Kernel: o.Task.Kernel, Preempted: m.Flags&abi.OutlierPreempted != 0,
	}
	if facts := Of(m.Rule.Track).Facts; facts != nil {
		facts(&f, m)
	}
	return f
}

// extra is what only outliers of one tracker carry: it begins at outlier.extra.
func extra[T abi.IrqExtra | abi.WorkExtra | abi.Chain | abi.SpanExtra | abi.PairExtra](m *Message) *T {
	return (*T)(unsafe.Pointer(&m.Extra)) // no larger: see TestExtra
}

// causeOf names a cause; what this version does not know is a threshold.
func causeOf(n uint8) events.Cause {
	switch n {
	case abi.CauseTimeout:
		return events.CauseTimeout
	case abi.CauseAfterTimeout:
		return events.CauseAfterTimeout
	default:
		return events.CauseThreshold
	}
}

// states are those that offcpu rules tell apart, by number of their bit (enum state_bit).
var states = [abi.FloorStates]rules.State{rules.Interruptible, rules.Uninterruptible, rules.OtherState}

// stateOf names a kernel task state (include/linux/sched.h; state_class of the kernel side).
func stateOf(state uint32) rules.State {
	const interruptible, uninterruptible, noload = 0x1, 0x2, 0x400
	switch {
	case state&interruptible != 0:
		return rules.Interruptible
	case state&uninterruptible != 0 && state&noload == 0:
		return rules.Uninterruptible
	default:
		return rules.OtherState
	}
}

// StateAtSwitch names the state in which a task left its CPU; runnable if it was preempted.
func StateAtSwitch(state uint32) string {
	if state == 0 { // TASK_RUNNING
		return "runnable"
	}
	return string(stateOf(state))
}

// Frames copies n return addresses, or as many as there are.
func Frames(addresses []uint64, n uint64) []uint64 {
	return slices.Clone(addresses[:min(n, uint64(len(addresses)))])
}

// Text is a C string up to its NUL, which may be missing.
func Text(b []byte) string { return unix.ByteSliceToString(b) }

// utf8Text is Text for people and JSON.
func utf8Text(b []byte) string { return strings.ToValidUTF8(Text(b), "\uFFFD") }

// Admits tells whether a list of wanted values, empty for any, and one of
// unwanted ones let v pass.
func Admits[T comparable](want, not []T, v T) bool {
	return (len(want) == 0 || slices.Contains(want, v)) && !slices.Contains(not, v)
}

// wallTime converts CLOCK_MONOTONIC, with the clocks' difference of this moment.
func wallTime(mono uint64) time.Time {
	return time.Now().UTC().Add(time.Duration(int64(mono - linux.Monotonic())))
}
