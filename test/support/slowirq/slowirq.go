// Package slowirq makes an interrupt handler or a softirq of the running kernel
// take long, by a known time: a BPF program that is attached behind the others
// to the tracepoint at their entry spins there. No module is needed.
package slowirq

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"gotest.tools/v3/assert"
)

// Any stands for every value of the tracepoint's first argument.
const Any = -1

// Spun is what a spinner did, by CLOCK_MONOTONIC.
type Spun struct {
	Start, End uint64
	Arg        uint64 // first argument of the tracepoint: irq, or vector
	CPU        uint64
}

// Delay is how long it spun.
func (s Spun) Delay() time.Duration { return time.Duration(s.End - s.Start) }

// Spinner is a program on a tracepoint that spins when it is told to.
type Spinner struct {
	t     testing.TB
	state *ebpf.Map
}

// state of the program.
type state struct {
	Armed uint64
	Spun
}

// Attach puts a spinner behind everything that is attached to a tracepoint by
// now. It heeds only what has this first argument, and, with own, only what
// interrupts this process. It is taken away at the end of the test. Needs root
// and kernel 5.17+.
func Attach(t testing.TB, tracepoint string, arg int, own bool, d time.Duration) *Spinner {
	t.Helper()
	f := Filter{Arg: arg}
	if own {
		f.PID = os.Getpid()
	}
	return AttachTo(t, tracepoint, f, d)
}

// Filter says what a spinner heeds.
type Filter struct {
	Arg int // the tracepoint's first argument, of which 32 bits count, or Any
	CPU int // that it happens on, plus 1; 0: any
	PID int // of the process that runs; 0: any
	// Struct.Field is what the first argument points to, of which the first
	// Bytes (4 or 8) are Value; an empty Struct: any.
	Struct, Field string
	Bytes         int
	Value         uint64
}

// AttachTo is Attach with any filter.
func AttachTo(t testing.TB, tracepoint string, f Filter, d time.Duration) *Spinner {
	t.Helper()
	var offset int16
	if f.Struct != "" {
		var err error
		offset, err = Offset(f.Struct, f.Field)
		assert.NilError(t, err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "spinner", Type: ebpf.Array, KeySize: 4, ValueSize: 5 * 8, MaxEntries: 1})
	assert.NilError(t, err)
	closeAfter(t, m)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "spin", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: tracepoint,
		License: "Dual BSD/GPL", Instructions: program(m, f, offset, d),
	})
	assert.NilError(t, err, "load a spinner for %s: %+v", tracepoint, err)
	closeAfter(t, p)
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	assert.NilError(t, err, "attach a spinner to %s", tracepoint)
	closeAfter(t, l)
	return &Spinner{t, m}
}

func closeAfter(t testing.TB, c io.Closer) {
	t.Cleanup(func() { assert.Check(t, c.Close()) })
}

// Arm lets the next one that fits take long.
func (s *Spinner) Arm() {
	s.t.Helper()
	assert.NilError(s.t, s.state.Put(uint32(0), state{Armed: 1}))
}

// Wait calls provoke until one has taken long, and returns it.
func (s *Spinner) Wait(provoke func()) (Spun, error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if provoke != nil {
			provoke()
		}
		var now state
		if err := s.state.Lookup(uint32(0), &now); err != nil {
			return Spun{}, err
		}
		if now.End != 0 {
			return now.Spun, nil
		}
	}
	return Spun{}, fmt.Errorf("nothing passed the tracepoint")
}

// Offset is where the running kernel has a field of a structure.
func Offset(of, field string) (int16, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return 0, err
	}
	var s *btf.Struct
	if err := kernel.TypeByName(of, &s); err != nil {
		return 0, err
	}
	for _, m := range s.Members {
		if m.Name == field {
			return int16(m.Offset.Bytes()), nil
		}
	}
	return 0, fmt.Errorf("struct %s has no %s", of, field)
}

// Offsets in the state.
const (
	armed = 8 * iota
	start
	end
	argument
	cpu
)

func program(m *ebpf.Map, f Filter, offset int16, d time.Duration) asm.Instructions {
	ins := asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord)}
	if f.Arg != Any {
		ins = append(ins, asm.JNE.Imm32(asm.R6, int32(f.Arg), "out"))
	}
	if f.CPU != 0 {
		ins = append(ins, asm.FnGetSmpProcessorId.Call(), asm.JNE.Imm(asm.R0, int32(f.CPU-1), "out"))
	}
	if f.PID != 0 {
		ins = append(ins,
			asm.FnGetCurrentPidTgid.Call(),
			asm.RSh.Imm(asm.R0, 32),
			asm.JNE.Imm(asm.R0, int32(f.PID), "out"),
		)
	}
	if f.Struct != "" {
		ins = append(ins,
			asm.LoadMem(asm.R2, asm.R6, offset, map[int]asm.Size{4: asm.Word, 8: asm.DWord}[f.Bytes]),
			asm.LoadImm(asm.R1, int64(f.Value), asm.DWord),
			asm.JNE.Reg(asm.R2, asm.R1, "out"),
			asm.Mov.Imm(asm.R6, 0), // a pointer is nothing to store
		)
	}
	ins = append(ins,
		asm.LoadMapValue(asm.R7, m.FD(), 0),
		asm.LoadMem(asm.R1, asm.R7, armed, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "out"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R7, armed, asm.R1, asm.DWord),
		asm.StoreMem(asm.R7, argument, asm.R6, asm.DWord),
		asm.FnGetSmpProcessorId.Call(),
		asm.StoreMem(asm.R7, cpu, asm.R0, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R7, start, asm.R0, asm.DWord),
		asm.LoadImm(asm.R1, d.Nanoseconds(), asm.DWord),
		asm.Add.Reg(asm.R0, asm.R1),
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R1, 1<<23),
		asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R2, Src: asm.PseudoFunc, Constant: -1}.WithReference("step"),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnLoop.Call(),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R7, end, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
	number, pointer := &btf.Int{Size: 4, Name: "int"}, &btf.Pointer{Target: &btf.Void{}}
	ins[0] = btf.WithFuncMetadata(ins[0].WithSymbol("spin"), &btf.Func{
		Name: "spin", Linkage: btf.GlobalFunc,
		Type: &btf.FuncProto{Return: number, Params: []btf.FuncParam{{Name: "ctx", Type: pointer}}},
	})
	step := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R2),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R1, "stop"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("stop"),
		asm.Return(),
	}
	step[0] = btf.WithFuncMetadata(step[0].WithSymbol("step"), &btf.Func{
		Name: "step", Linkage: btf.StaticFunc,
		Type: &btf.FuncProto{Return: number, Params: []btf.FuncParam{{Name: "i", Type: number}, {Name: "until", Type: pointer}}},
	})
	return append(ins, step...)
}
