package detect

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/slowirq"
)

// hidden counts, by programs of the tests' own on the same tracepoints, what
// the kernel tells no tracer of: it bounds what camera.unseen and camera.pardons
// may forgive.
type hidden struct {
	t             *testing.T
	counts, tasks *ebpf.Map
}

// Offsets in the value of a CPU.
const (
	hiddenLast     = 0  // thread id of who got the CPU last
	hiddenProcess  = 4  // the process id, and 1; 0: not known yet
	hiddenSwitches = 8  // switches from another task than that, and wake-ups without their event
	hiddenRequests = 16 // requests that are issued again although they did not complete
	hiddenSize     = 24
)

// Offsets in the value of a task.
const (
	taskSleeps  = 4 * iota
	taskWoken   // since it ran last; 2: while it slept
	taskThread  // hidden events of the thread
	taskProcess // and of all threads of the process with this id
	taskSize
)

// countHidden attaches the programs until the end of the test.
func countHidden(t *testing.T) *hidden {
	t.Helper()
	pids, err := os.ReadFile("/proc/sys/kernel/pid_max")
	assert.NilError(t, err)
	tasks, err := strconv.ParseUint(strings.TrimSpace(string(pids)), 10, 32)
	assert.NilError(t, err)
	h := &hidden{t, newMap(t, ebpf.PerCPUArray, 4, hiddenSize, 1), newMap(t, ebpf.Array, 4, taskSize, uint32(tasks)+1)}
	requests := newMap(t, ebpf.Hash, 8, 4, 65536)
	attachTo(t, "sched_switch", h.onSwitch())
	attachTo(t, "sched_waking", h.onWaking())
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
	var list []struct{ _, Switches, Requests uint64 }
	assert.NilError(h.t, h.counts.Lookup(uint32(0), &list))
	for _, c := range list {
		switches += c.Switches
		requests += c.Requests
	}
	return switches, requests
}

// of returns how many events of a thread were hidden, and of all threads of the
// process with this id. That it sleeps is said of threads that are gone: the last
// time they ran was hidden.
func (h *hidden) of(id int) (thread, process int) {
	h.t.Helper()
	var task struct{ Sleeps, Woken, Thread, Process uint32 }
	assert.NilError(h.t, h.tasks.Lookup(uint32(id), &task))
	return int(task.Thread + task.Sleeps), int(task.Process)
}

func newMap(t *testing.T, kind ebpf.MapType, key, value, entries uint32) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: kind, KeySize: key, ValueSize: value, MaxEntries: entries})
	assert.NilError(t, err)
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
	assert.NilError(t, err, "load a counter for %s: %+v", tracepoint, err)
	t.Cleanup(func() { p.Close() })
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	assert.NilError(t, err, "attach a counter to %s", tracepoint)
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

// hide counts a hidden event of a task: where first makes R1 point to are its ids.
func (h *hidden) hide(first asm.Instruction, thread, process int16) asm.Instructions {
	add := func(id, field int16) asm.Instructions {
		return join(
			asm.Instructions{first, asm.LoadMem(asm.R1, asm.R1, id, asm.Word)},
			lookup(h.tasks, asm.R1, "out"),
			asm.Instructions{asm.Mov.Imm(asm.R1, 1), asm.Add.Imm(asm.R0, int32(field)), asm.StoreXAdd(asm.R0, asm.R1, asm.Word)},
		)
	}
	return join(add(thread, taskThread), add(process, taskProcess))
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
func (h *hidden) onSwitch() asm.Instructions {
	pid, tgid, state := field(h.t, "pid"), field(h.t, "tgid"), field(h.t, "__state")
	prev, next := asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord), asm.LoadMem(asm.R1, asm.R6, 16, asm.DWord)
	const dead = 0x80
	return join(
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			prev,
			asm.LoadMem(asm.R7, asm.R1, pid, asm.Word),
			next,
			asm.LoadMem(asm.R8, asm.R1, pid, asm.Word),
			asm.Mov.Imm(asm.R1, 0),
		},
		lookup(h.counts, asm.R1, "out"),
		asm.Instructions{
			asm.Mov.Reg(asm.R9, asm.R0),
			asm.LoadMem(asm.R1, asm.R9, hiddenProcess, asm.Word),
			asm.JEq.Imm(asm.R1, 0, "follows"),
			asm.Sub.Imm(asm.R1, 1),
			asm.StoreMem(asm.R9, hiddenProcess, asm.R1, asm.Word),
			asm.LoadMem(asm.R1, asm.R9, hiddenLast, asm.Word),
			asm.JEq.Reg(asm.R1, asm.R7, "follows"),
		},
		count(hiddenSwitches),
		h.hide(asm.Mov.Reg(asm.R1, asm.R9), hiddenLast, hiddenProcess),
		h.hide(prev, pid, tgid),
		// What was seen of prev is of before it got the CPU: a waker, too.
		lookup(h.tasks, asm.R7, "follows"),
		asm.Instructions{
			asm.StoreImm(asm.R0, taskSleeps, 0, asm.Word),
			asm.StoreImm(asm.R0, taskWoken, 0, asm.Word),
			next.WithSymbol("follows"),
			asm.StoreMem(asm.R9, hiddenLast, asm.R8, asm.Word),
			asm.LoadMem(asm.R1, asm.R1, tgid, asm.Word),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R9, hiddenProcess, asm.R1, asm.Word),
			// prev sleeps now, unless it was preempted, a signal is pending, or it is dead.
			asm.JEq.Imm(asm.R7, 0, "next"),
			asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
			asm.JNE.Imm(asm.R1, 0, "next"),
			asm.LoadMem(asm.R1, asm.R6, 24, asm.DWord),
			asm.JEq.Imm(asm.R1, 0, "next"),
			asm.JSet.Imm(asm.R1, dead, "next"),
			prev,
			asm.LoadMem(asm.R1, asm.R1, state, asm.Word),
			asm.JEq.Imm(asm.R1, 0, "next"),
		},
		lookup(h.tasks, asm.R7, "next"),
		asm.Instructions{
			asm.StoreImm(asm.R0, taskSleeps, 1, asm.Word),
			// next was woken, if it slept.
			asm.JEq.Imm(asm.R8, 0, "out").WithSymbol("next"),
		},
		lookup(h.tasks, asm.R8, "out"),
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.R0, taskSleeps, asm.Word),
			asm.LoadMem(asm.R2, asm.R0, taskWoken, asm.Word),
			asm.StoreImm(asm.R0, taskSleeps, 0, asm.Word),
			asm.StoreImm(asm.R0, taskWoken, 0, asm.Word),
			asm.JEq.Imm(asm.R1, 0, "out"),
			asm.JNE.Imm(asm.R2, 0, "out"),
		},
		count(hiddenSwitches),
		h.hide(next, pid, tgid),
	)
}

// onWaking is the program of sched_waking(task). Who is woken from its sleep twice
// ran between, which was hidden altogether.
func (h *hidden) onWaking() asm.Instructions {
	pid, tgid := field(h.t, "pid"), field(h.t, "tgid")
	task := asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord)
	return join(
		asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), task, asm.LoadMem(asm.R1, asm.R1, pid, asm.Word)},
		lookup(h.tasks, asm.R1, "out"),
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.R0, taskSleeps, asm.Word),
			asm.LoadMem(asm.R2, asm.R0, taskWoken, asm.Word),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R0, taskWoken, asm.R1, asm.Word),
			asm.JNE.Imm(asm.R1, 2, "out"),
			asm.JNE.Imm(asm.R2, 2, "out"),
		},
		h.hide(task, pid, tgid),
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
	assert.NilError(t, err)
	return at
}
