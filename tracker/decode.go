package tracker

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
)

// Bits of outlier.flags (bpf/abi/abi.h, enum outlier_flag).
const (
	flagPreempted = 1 << iota
	flagKthread
	flagSnapshot
	flagFroze
	flagUndecided
	flagNew
	flagUserLater
	flagNoStack
	flagRunning
)

// newOutlier turns what the kernel side sent into an Outlier. Any bytes will
// do: lengths and numbers are checked.
func newOutlier(raw *bpf.TailcamOutlier, rule *rules.Rule) *Outlier {
	o := &Outlier{
		Time:        wallTime(raw.TimeNs),
		Rule:        rule.Name,
		Track:       string(rule.Track),
		Cause:       causeOf(raw.Cause),
		DelayNS:     int64(raw.TimeNs - raw.StartNs),
		ThresholdNS: int64(raw.ThresholdNs),
		Task: Task{
			PID: int(raw.Pid), TID: int(raw.Tid), UID: int(raw.Uid), Comm: text(raw.Comm[:]),
			Kernel: raw.Flags&flagKthread != 0,
		},
		CPU:           int(raw.Cpu),
		EntryCPU:      int(raw.EntryCpu),
		Suppressed:    raw.Suppressed,
		StartMono:     raw.StartNs,
		EndMono:       raw.TimeNs,
		WantsSnapshot: raw.Flags&flagSnapshot != 0,
		From:          rule,
		Raw: RawStacks{
			Kernel: frames(raw.Kernel[:], raw.KernelFrames),
			User:   frames(raw.User[:], raw.UserFrames),
			Waker:  frames(raw.Waker[:], uint16(min(raw.WakerFrames, uint32(len(raw.Waker))))),
		},
	}
	o.AfterTimeout = o.Cause == CauseAfterTimeout
	switch rule.Track {
	case rules.Block:
		o.Key = map[string]uint64{"dev": uint64(raw.Dev), "sector": raw.Sector}
		o.Block = &BlockInfo{
			Device: text(raw.Disk[:]), Sector: raw.Sector, Bytes: raw.Bytes,
			Op: linux.BlockOpClass(raw.CmdFlags), Flags: linux.RWBS(raw.CmdFlags),
			QueueNS: int64(raw.QueueNs), Requeues: raw.Requeues, Error: int32(raw.Ret),
		}
	case rules.Syscall:
		o.Key = map[string]uint64{"tid": uint64(raw.Tid)}
		o.Syscall = &SyscallInfo{NR: int(raw.Syscall), Name: rules.SyscallName(int(raw.Syscall))}
		if ret := raw.Ret; o.Cause != CauseTimeout {
			o.Syscall.Ret = &ret
		}
	case rules.IRQ, rules.Softirq:
		o.addInterrupt(raw)
	case rules.Pair:
		o.Key = map[string]uint64{}
	case rules.Span:
		o.addSpan(raw)
	case rules.Chain:
		o.Key = map[string]uint64{"tid": uint64(raw.Tid)}
		o.addChain(raw)
	default:
		o.Key = map[string]uint64{"tid": uint64(raw.Tid)}
		o.addSched(raw, rule)
	}
	if o.Cause == CauseTimeout {
		o.addPending(raw, rule)
	}
	return o
}

// addPending fills in what is only known of work that is not done yet.
func (o *Outlier) addPending(raw *bpf.TailcamOutlier, rule *rules.Rule) {
	o.Unstacked = raw.Flags&flagNoStack != 0
	o.UserSP, o.UserFP = raw.UserSp, raw.UserFp
	switch {
	case rule.Track == rules.Block, rule.Track == rules.IRQ, rule.Track == rules.Softirq:
	case o.Span != nil && o.Span.gone:
	case raw.Flags&flagRunning != 0:
		o.State = "running"
	case raw.State == 0: // TASK_RUNNING: it could
		o.State = "runnable"
	default:
		o.State = string(stateOf(raw.State))
	}
}

// addSched fills in what only wakeup and offcpu know.
func (o *Outlier) addSched(raw *bpf.TailcamOutlier, rule *rules.Rule) {
	o.RunnableNS = int64(raw.RunnableNs)
	wait := int(raw.WaitCpu)
	o.WaitCPU = &wait
	if raw.Syscall >= 0 {
		o.Syscall = &SyscallInfo{NR: int(raw.Syscall), Name: rules.SyscallName(int(raw.Syscall))}
	}
	if comm := text(raw.WakerComm[:]); comm != "" {
		o.Waker = &Waker{
			Peer:    Peer{PID: int(raw.WakerPid), TID: int(raw.WakerTid), Comm: comm},
			Context: contextOf(raw.WakerContext),
		}
	}
	if rule.Track == rules.OffCPU {
		o.State = string(stateOf(raw.State))
	} else {
		o.Preempted = raw.Flags&flagPreempted != 0
	}
	o.OnCPU = ranLongest(raw.Runs[:], wait, raw.Tid)
}

// causeOf names a cause; what this version does not know is a threshold.
func causeOf(n uint8) Cause {
	causes := []Cause{CauseThreshold, CauseTimeout, CauseAfterTimeout}
	if int(n) < len(causes) {
		return causes[n]
	}
	return CauseThreshold
}

// contextOf names what ran on top of the waker's task (bpf/abi/abi.h, WAKER_*).
func contextOf(c uint32) string {
	number := c & 0x3fff
	switch c >> 14 {
	case 1:
		return "softirq " + linux.Softirq(number, strconv.Itoa(int(number)))
	case 2:
		return fmt.Sprintf("irq %d", number)
	case 3:
		return "timer"
	default:
		return ""
	}
}

// ranLongest is the task that ran longest within a wait. nil: none is known.
func ranLongest(accounts []bpf.TailcamRunTotal, cpu int, self uint32) *OnCPU {
	var best *OnCPU
	for i := range accounts {
		a := &accounts[i]
		if a.Ns == 0 || a.Tid == self || best != nil && int64(a.Ns) <= best.RanNS {
			continue
		}
		best = &OnCPU{Peer: Peer{PID: int(a.Pid), TID: int(a.Tid), Comm: text(a.Comm[:])}, CPU: cpu, RanNS: int64(a.Ns)}
	}
	return best
}

// factsOf is what rules.Match asks for.
func factsOf(raw *bpf.TailcamOutlier, o *Outlier) rules.Facts {
	f := rules.Facts{
		CPU:  raw.Cpu,
		Comm: o.Task.Comm, PID: raw.Pid, TID: raw.Tid, UID: raw.Uid, Cgroup: o.Task.Cgroup,
		Syscall: int(raw.Syscall), Device: text(raw.Disk[:]), Sector: raw.Sector,
		Op: rules.Op(linux.BlockOpClass(raw.CmdFlags)), State: stateOf(raw.State),
		Kernel: o.Task.Kernel, Preempted: raw.Flags&flagPreempted != 0,
	}
	switch {
	case o.Span != nil:
		f.Key = o.Span.Key
	case o.Chain != nil:
		o.Chain.facts(&f)
	case o.IRQ != nil:
		x := irqExtra(raw)
		f.IRQ, f.Handler, f.Vector, f.Phase = x.Irq, text(x.Name[:]), vectorOf(x.Vector), phaseOf(x.Phase)
	}
	return f
}

// stateOf names a kernel task state (include/linux/sched.h; bpf/task.h state_class).
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

func frames(addrs []uint64, n uint16) []uint64 {
	return slices.Clone(addrs[:min(int(n), len(addrs))])
}

// wallTime converts CLOCK_MONOTONIC, with the clocks' difference of this moment.
func wallTime(mono uint64) time.Time {
	return time.Now().UTC().Add(time.Duration(int64(mono - linux.Monotonic())))
}
