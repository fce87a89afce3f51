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

// chainStages names the stages (enum chain_kind).
var chainStages = map[uint64]string{
	abi.ChainIrq: "irq", abi.ChainTimer: "timer", abi.ChainRaise: "raise", abi.ChainSoftirq: "softirq", abi.ChainWakeup: "wakeup",
	abi.ChainRun: "run", abi.ChainUser: "user", abi.ChainPreempted: "preempted", abi.ChainLock: "lock",
}

// inEnd: classes are by number of the end; the last is not used.
func inEnd(class int, m *rules.Match) bool {
	return class < len(rules.Ends) && Admits(m.Ends, nil, rules.Ends[class])
}

// ChainFrom is a list of origins in the kernel side's bits (enum chain_from); an empty one is all.
func ChainFrom(list []rules.Origin) uint8 {
	var bits uint8
	if len(list) == 0 {
		list = rules.Origins
	}
	for _, o := range list {
		bits |= 1 << slices.Index(rules.Origins, o)
	}
	return bits
}

func decodeChain(o *events.Outlier, m *Message) {
	c := extra[abi.Chain](m)
	info := &events.ChainInfo{Stages: []events.ChainStage{}, Cut: c.Truncated != 0}
	if int(c.End) < len(rules.Ends) {
		info.End = string(rules.Ends[c.End])
	}
	var since int64
	for i := range min(int(c.Stages), len(c.Stage)) {
		// Two CPUs' clocks may differ by a little; no stage begins before the one before it.
		since = min(max(since, int64(c.Stage[i].Packed&abi.ChainNsMask)), max(o.DelayNS, 0))
		info.Stages = append(info.Stages, newStage(&c.Stage[i], since))
	}
	for i := range info.Stages {
		end := o.DelayNS
		if i+1 < len(info.Stages) {
			end = info.Stages[i+1].AtNS
		}
		info.Stages[i].NS = end - info.Stages[i].AtNS
	}
	info.Origin = originOf(info.Stages)
	o.Chain = info
	if len(info.Stages) > 0 {
		o.EntryCPU = info.Stages[0].CPU
	}
	addSyscall(o, m)
	switch info.End {
	case string(rules.ToRun):
		o.RunnableNS = int64(m.RunnableNs)
		o.OnCPU = longestRun(m.Runs[:], int(m.WaitCpu), m.Tid)
	case string(rules.ToBlock):
		o.State = string(stateOf(m.State))
	}
}

func newStage(raw *abi.ChainStage, since int64) events.ChainStage {
	s := events.ChainStage{
		Stage: chainStages[raw.Packed>>abi.ChainKindShift], CPU: int(raw.Packed >> abi.ChainCpuShift & abi.ChainCpuMask), AtNS: since,
	}
	switch name := Text(raw.Name[:]); s.Stage {
	case "irq":
		s.What = fmt.Sprint(raw.Id)
		if name != "" {
			s.What += " " + name
		}
	case "raise", "softirq":
		s.What = linux.Softirq(raw.Id, strconv.Itoa(int(raw.Id)))
	case "timer":
	default:
		s.Task = &events.Peer{PID: int(raw.Pid), TID: int(raw.Id), Comm: name}
	}
	return s
}

// originOf names where a chain began.
func originOf(stages []events.ChainStage) string {
	if len(stages) == 0 {
		return ""
	}
	switch s := stages[0]; {
	case s.Stage == "irq":
		return "irq " + s.What
	case s.Stage == "timer", s.What == "HRTIMER": // only timers raise that one
		return "timer"
	default:
		return "softirq " + s.What
	}
}

func chainFacts(f *rules.Facts, m *Message) {
	c := extra[abi.Chain](m)
	for i, o := range rules.Origins {
		if c.From>>i&1 != 0 {
			f.From = append(f.From, o)
		}
	}
	if int(c.End) < len(rules.Ends) {
		f.End = rules.Ends[c.End]
	}
	f.IRQ = c.Irq
	for i, v := range rules.Vectors {
		if c.Vectors>>i&1 != 0 {
			f.Through = append(f.Through, v)
		}
	}
}
