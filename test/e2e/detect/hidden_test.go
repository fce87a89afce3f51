package detect

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/test/support/slowirq"
)

// hidden counts, by programs of the tests' own on the same tracepoints, what
// the kernel tells no tracer of: it bounds what camera.unseen may forgive.
type hidden struct {
	t      *testing.T
	counts *ebpf.Map
}

// Offsets in the value of a CPU.
const (
	hiddenLast     = 8 * iota // pid that got the CPU last, and 1
	hiddenSwitches            // switches from another task than that, and wake-ups without their event
	hiddenRequests            // requests that are issued again although they did not complete
	hiddenSize
)

// countHidden attaches the programs until the end of the test.
func countHidden(t *testing.T) *hidden {
	t.Helper()
	pids, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := strconv.ParseUint(strings.TrimSpace(string(pids)), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	h := &hidden{t, newMap(t, ebpf.PerCPUArray, 4, hiddenSize, 1)}
	// Of each task: whether it sleeps, and whether it was woken since it ran last.
	states := newMap(t, ebpf.Array, 4, 8, uint32(tasks)+1)
	requests := newMap(t, ebpf.Hash, 8, 4, 65536)
	attachTo(t, "sched_switch", h.onSwitch(states))
	attachTo(t, "sched_waking", h.onWaking(states))
	attachTo(t, "block_rq_issue", h.onIssue(requests))
	for _, end := range []string{"block_rq_complete", "block_rq_requeue"} {
		attachTo(t, end, asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
			asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
			asm.LoadMapPtr(asm.R1, requests.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -8),
			asm.FnMapDeleteElem.Call(),
		})
	}
	return h
}

// soFar returns the counts of all CPUs.
func (h *hidden) soFar() (switches, requests uint64) {
	h.t.Helper()
	var list []struct{ Last, Switches, Requests uint64 }
	if err := h.counts.Lookup(uint32(0), &list); err != nil {
		h.t.Fatal(err)
	}
	for _, c := range list {
		switches += c.Switches
		requests += c.Requests
	}
	return switches, requests
}

func newMap(t *testing.T, kind ebpf.MapType, key, value, entries uint32) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: kind, KeySize: key, ValueSize: value, MaxEntries: entries})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// attachTo runs a program, to which it adds the end, "out", at a tracepoint
// until the end of the test.
func attachTo(t *testing.T, tracepoint string, program asm.Instructions) {
	t.Helper()
	program = append(program, asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "hidden", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: tracepoint,
		License: "Dual BSD/GPL", Instructions: program,
	})
	if err != nil {
		t.Fatalf("load a counter for %s: %+v", tracepoint, err)
	}
	t.Cleanup(func() { p.Close() })
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		t.Fatalf("attach a counter to %s: %v", tracepoint, err)
	}
	t.Cleanup(func() { l.Close() })
}

// lookup finds the value of the 32-bit key in a register, and leaves if there is none.
func lookup(m *ebpf.Map, key asm.Register, none string) asm.Instructions {
	return asm.Instructions{
		asm.StoreMem(asm.RFP, -4, key, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, none),
	}
}

// count adds one to a field of the CPU's value, which R9 points to.
func count(field int16) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.R9, field, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, field, asm.R1, asm.DWord),
	}
}

// join makes one program of several parts.
func join(parts ...asm.Instructions) asm.Instructions {
	var all asm.Instructions
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// onSwitch is the program of sched_switch(preempt, prev, next, prev_state).
func (h *hidden) onSwitch(states *ebpf.Map) asm.Instructions {
	pid, state := field(h.t, "pid"), field(h.t, "__state")
	const sleeps, woken, dead = 0, 4, 0x80
	return join(
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R7, asm.R6, 8, asm.DWord),
			asm.LoadMem(asm.R7, asm.R7, pid, asm.Word),
			asm.LoadMem(asm.R8, asm.R6, 16, asm.DWord),
			asm.LoadMem(asm.R8, asm.R8, pid, asm.Word),
			asm.Mov.Imm(asm.R1, 0),
		},
		lookup(h.counts, asm.R1, "out"),
		asm.Instructions{
			asm.Mov.Reg(asm.R9, asm.R0),
			asm.LoadMem(asm.R1, asm.R9, hiddenLast, asm.DWord),
			asm.JEq.Imm(asm.R1, 0, "follows"),
			asm.Sub.Imm(asm.R1, 1),
			asm.JEq.Reg(asm.R1, asm.R7, "follows"),
		},
		count(hiddenSwitches),
		asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R8).WithSymbol("follows"),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R9, hiddenLast, asm.R1, asm.DWord),
			// prev sleeps now, unless it was preempted, a signal is pending, or it is dead.
			asm.JEq.Imm(asm.R7, 0, "next"),
			asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
			asm.JNE.Imm(asm.R1, 0, "next"),
			asm.LoadMem(asm.R1, asm.R6, 24, asm.DWord),
			asm.JEq.Imm(asm.R1, 0, "next"),
			asm.JSet.Imm(asm.R1, dead, "next"),
			asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord),
			asm.LoadMem(asm.R1, asm.R1, state, asm.Word),
			asm.JEq.Imm(asm.R1, 0, "next"),
		},
		lookup(states, asm.R7, "next"),
		asm.Instructions{
			asm.StoreImm(asm.R0, sleeps, 1, asm.Word),
			// next was woken, if it slept.
			asm.JEq.Imm(asm.R8, 0, "out").WithSymbol("next"),
		},
		lookup(states, asm.R8, "out"),
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.R0, sleeps, asm.Word),
			asm.JEq.Imm(asm.R1, 0, "runs"),
			asm.LoadMem(asm.R1, asm.R0, woken, asm.Word),
			asm.JNE.Imm(asm.R1, 0, "runs"),
		},
		count(hiddenSwitches),
		asm.Instructions{
			asm.StoreImm(asm.R0, sleeps, 0, asm.Word).WithSymbol("runs"),
			asm.StoreImm(asm.R0, woken, 0, asm.Word),
		},
	)
}

// onWaking is the program of sched_waking(task).
func (h *hidden) onWaking(states *ebpf.Map) asm.Instructions {
	return join(
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
			asm.LoadMem(asm.R1, asm.R1, field(h.t, "pid"), asm.Word),
		},
		lookup(states, asm.R1, "out"),
		asm.Instructions{asm.StoreImm(asm.R0, 4, 1, asm.Word)},
	)
}

// onIssue is the program of block_rq_issue(request).
func (h *hidden) onIssue(requests *ebpf.Map) asm.Instructions {
	at := func(helper asm.BuiltinFunc, more ...asm.Instruction) asm.Instructions {
		return join(asm.Instructions{
			asm.LoadMapPtr(asm.R1, requests.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -16),
		}, more, asm.Instructions{helper.Call()})
	}
	return join(
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
			asm.StoreMem(asm.RFP, -16, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R1, 0),
		},
		lookup(h.counts, asm.R1, "out"),
		asm.Instructions{asm.Mov.Reg(asm.R9, asm.R0)},
		at(asm.FnMapLookupElem),
		asm.Instructions{asm.JEq.Imm(asm.R0, 0, "new")},
		count(hiddenRequests),
		asm.Instructions{asm.StoreImm(asm.RFP, -4, 0, asm.Word).WithSymbol("new")},
		at(asm.FnMapUpdateElem,
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -4), asm.Mov.Imm(asm.R4, 0)),
	)
}

// field is where this kernel has a field of a task.
func field(t *testing.T, name string) int16 {
	t.Helper()
	at, err := slowirq.Offset("task_struct", name)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
