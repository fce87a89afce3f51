package tracker

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// ChainInfo is the way of a chain, from its origin to its end.
type ChainInfo struct {
	Origin string       `json:"origin"` // "irq 24 virtio0-req.0", "softirq NET_RX", "timer"
	End    string       `json:"end"`    // run, user, block
	Stages []ChainStage `json:"stages"` // what they took adds up to the delay
	Cut    bool         `json:"cut"`    // there was more than could be followed: a branch, or stages between the last two

	from    uint8 // chain.from (bpf/abi/abi.h)
	vectors uint16
	irq     uint32
}

// ChainStage is a part of the way.
type ChainStage struct {
	// Stage is irq, timer, raise (a softirq waits to run), softirq, wakeup (the
	// task waits for a CPU), run, user (it runs, and has returned to user space
	// once), preempted, or lock (real-time kernels: it sleeps for a lock of the kernel).
	Stage string `json:"stage"`
	What  string `json:"what,omitempty"` // of an irq its number and handler, of a softirq its name
	CPU   int    `json:"cpu"`            // where it began
	AtNS  int64  `json:"at_ns"`          // when it began, since the origin
	NS    int64  `json:"ns"`             // how long it took
	Task  *Peer  `json:"task,omitempty"`
}

// ChainCounters are what chains had to leave out since New.
type ChainCounters struct {
	Cut    uint64 // branches and softirqs that were not followed
	Met    uint64 // wake-ups of tasks that were busy with an older chain
	Ended  uint64 // chains that were too old to be followed further
	Unseen uint64 // chains whose return to user space no hook tells of
}

func (c *ChainCounters) add(s *bpf.TailcamCpuState) {
	c.Cut += s.ChainTruncated
	c.Met += s.ChainMet
	c.Ended += s.ChainEnded
	c.Unseen += s.ChainUnseen
}

// chainStages names the stages (bpf/abi/abi.h, enum chain_kind).
var chainStages = []string{"", "irq", "timer", "raise", "softirq", "wakeup", "run", "user", "preempted", "lock"}

// chainFrom is a list of origins in the kernel's bits (enum chain_from); an empty one is all.
func chainFrom(list []rules.Origin) uint8 {
	var bits uint8
	if len(list) == 0 {
		list = rules.Origins
	}
	for _, o := range list {
		bits |= 1 << slices.Index(rules.Origins, o)
	}
	return bits
}

// addChain fills in what only chain knows. Any bytes will do.
func (o *Outlier) addChain(raw *bpf.TailcamOutlier) {
	var c bpf.TailcamChain
	bytes := make([]byte, 0, 8*len(raw.Extra))
	for _, word := range raw.Extra {
		bytes = binary.LittleEndian.AppendUint64(bytes, word)
	}
	if _, err := binary.Decode(bytes, binary.LittleEndian, &c); err != nil {
		return // cannot be: extra is as large as the largest of them
	}
	info := &ChainInfo{
		Stages: []ChainStage{}, Cut: c.Truncated != 0, from: c.From, vectors: c.Vectors, irq: c.Irq,
	}
	if int(c.End) < len(rules.Ends) {
		info.End = string(rules.Ends[c.End])
	}
	var at int64
	for i := range min(int(c.Stages), len(c.Stage)) {
		// Two CPUs' clocks may differ by a little; no stage begins before the one before it.
		at = min(max(at, int64(c.Stage[i].Packed&(1<<40-1))), max(o.DelayNS, 0))
		info.Stages = append(info.Stages, newStage(&c.Stage[i], at))
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
	if raw.Syscall >= 0 {
		o.Syscall = &SyscallInfo{NR: int(raw.Syscall), Name: rules.SyscallName(int(raw.Syscall))}
	}
	switch info.End {
	case string(rules.ToRun):
		o.RunnableNS = int64(raw.RunnableNs)
		o.OnCPU = ranLongest(raw.Runs[:], int(raw.WaitCpu), raw.Tid)
	case string(rules.ToBlock):
		o.State = string(stateOf(raw.State))
	}
}

func newStage(raw *bpf.TailcamChainStage, at int64) ChainStage {
	s := ChainStage{CPU: int(raw.Packed >> 40 & 0xffff), AtNS: at}
	if kind := int(raw.Packed >> 56); kind < len(chainStages) {
		s.Stage = chainStages[kind]
	}
	switch name := text(raw.Name[:]); s.Stage {
	case "irq":
		s.What = fmt.Sprint(raw.Id)
		if name != "" {
			s.What += " " + name
		}
	case "raise", "softirq":
		s.What = strings.ToUpper(string(vectorOf(raw.Id)))
	case "timer":
	default:
		s.Task = &Peer{PID: int(raw.Pid), TID: int(raw.Id), Comm: name}
	}
	return s
}

// originOf names where a chain began.
func originOf(stages []ChainStage) string {
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

// facts are what rules ask of a chain.
func (c *ChainInfo) facts(f *rules.Facts) {
	for i, o := range rules.Origins {
		if c.from>>i&1 != 0 {
			f.From = append(f.From, o)
		}
	}
	f.End = rules.End(c.End)
	f.IRQ = c.irq
	for i, v := range rules.Vectors {
		if c.vectors>>i&1 != 0 {
			f.Through = append(f.Through, v)
		}
	}
}
