package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/perf"

	"github.com/tailcam/tailcam/test/bench/hooked"
)

// startRunqslower is the usual way to find slow wake-ups, as bcc's tool of this
// name does it: a hash map from thread to the time it was woken, written at
// sched_wakeup, read at sched_switch, compared with a threshold there, and an
// event through a perf ring past it. As in the original, an entry below the
// threshold is not deleted, which is the cheaper way.
func startRunqslower(context.Context) (running, error) {
	task, err := taskLayout()
	if err != nil {
		return nil, err
	}
	starts, err := ebpf.NewMap(&ebpf.MapSpec{Name: "starts", Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 10240})
	if err != nil {
		return nil, err
	}
	o := &own{hooked.Set{Others: []io.Closer{starts}}}
	events, err := ebpf.NewMap(&ebpf.MapSpec{Name: "events", Type: ebpf.PerfEventArray})
	if err != nil {
		return nil, errors.Join(err, o.stop())
	}
	o.Others = append(o.Others, events)
	reader, err := perf.NewReader(events, 64<<10)
	if err != nil {
		return nil, errors.Join(err, o.stop())
	}
	o.Others = append(o.Others, reader)
	go func() {
		var rec perf.Record
		for reader.ReadInto(&rec) == nil { // until it is closed
		}
	}()
	maps := map[string]*ebpf.Map{"starts": starts, "events": events}
	for _, p := range []struct {
		hook string
		code asm.Instructions
	}{
		{"sched_wakeup", task.enqueue()}, {"sched_wakeup_new", task.enqueue()}, {"sched_switch", task.switched()},
	} {
		if err := o.Attach(p.hook, p.code, maps); err != nil {
			return nil, errors.Join(err, o.stop())
		}
	}
	return o, nil
}

// layout holds offsets in struct task_struct of the running kernel.
type layout struct{ pid, state int16 }

func taskLayout() (layout, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return layout{}, err
	}
	var task *btf.Struct
	if err := kernel.TypeByName("task_struct", &task); err != nil {
		return layout{}, err
	}
	l := layout{-1, -1}
	for _, m := range task.Members {
		switch m.Name {
		case "pid":
			l.pid = int16(m.Offset.Bytes())
		case "__state":
			l.state = int16(m.Offset.Bytes())
		}
	}
	if l.pid < 0 || l.state < 0 {
		return l, fmt.Errorf("this kernel's task_struct has no pid or __state")
	}
	return l, nil
}

const (
	keyAt   = -4  // u32 on the stack
	valueAt = -16 // u64
	eventAt = -32 // u64 delay, u64 pid

	currentCPU = 0xffffffff // BPF_F_CURRENT_CPU
)

// remember stores now for the thread whose task_struct is in R8, and goes on at label.
func (l layout) remember(label string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R7, asm.R8, l.pid, asm.Word),
		asm.JEq.Imm(asm.R7, 0, label),
		asm.StoreMem(asm.RFP, keyAt, asm.R7, asm.Word),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.RFP, valueAt, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, 0).WithReference("starts"),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, keyAt),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, valueAt),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
	}
}

// enqueue is for sched_wakeup(p) and sched_wakeup_new(p).
func (l layout) enqueue() asm.Instructions {
	code := asm.Instructions{asm.LoadMem(asm.R8, asm.R1, 0, asm.DWord)}
	code = append(code, l.remember("out")...)
	return append(code, asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return())
}

// switched is for sched_switch(preempt, prev, next, prev_state).
func (l layout) switched() asm.Instructions {
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R8, asm.R6, 8, asm.DWord),
		asm.LoadMem(asm.R9, asm.R6, 16, asm.DWord),
		asm.LoadMem(asm.R1, asm.R8, l.state, asm.Word),
		asm.JNE.Imm(asm.R1, 0, "next"), // blocked: not on the run queue
	}
	code = append(code, l.remember("next")...)
	return append(code,
		asm.LoadMem(asm.R7, asm.R9, l.pid, asm.Word).WithSymbol("next"),
		asm.StoreMem(asm.RFP, keyAt, asm.R7, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference("starts"),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, keyAt),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R1, asm.R8, 0, asm.DWord),
		asm.Sub.Reg(asm.R0, asm.R1),
		asm.Div.Imm(asm.R0, 1000), // the original's unit
		asm.JLE.Imm(asm.R0, int32(threshold.Microseconds()), "out"),
		asm.StoreMem(asm.RFP, eventAt, asm.R0, asm.DWord),
		asm.StoreMem(asm.RFP, eventAt+8, asm.R7, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, 0).WithReference("events"),
		asm.LoadImm(asm.R3, currentCPU, asm.DWord),
		asm.Mov.Reg(asm.R4, asm.RFP), asm.Add.Imm(asm.R4, eventAt),
		asm.Mov.Imm(asm.R5, 16),
		asm.FnPerfEventOutput.Call(),
		asm.LoadMapPtr(asm.R1, 0).WithReference("starts"),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, keyAt),
		asm.FnMapDeleteElem.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return())
}
