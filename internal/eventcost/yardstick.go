package eventcost

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/tailcam/tailcam/internal/budget"
)

const (
	yardstickSteps = 32      // of one run of a yardstick
	yardstickRuns  = 2000    // in a row, which the kernel times
	yardstickTries = 5       // of which the fastest counts: others were interrupted
	yardstickBytes = 1 << 16 // that the work is spread over
)

// Speed measures how fast this machine runs BPF programs: two small ones that are
// attached to nothing, in some ten milliseconds. Needs CAP_BPF and CAP_PERFMON.
func Speed() (s budget.Speed, err error) {
	memory, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "tailcam_speed", Type: ebpf.Array, KeySize: 4, ValueSize: yardstickBytes, MaxEntries: 1,
	})
	if err != nil {
		return s, fmt.Errorf("make a map for a yardstick: %w", err)
	}
	defer memory.Close() //nolint:errcheck // nobody else has it
	clock, err := perStep(clockSteps())
	if err != nil {
		return s, err
	}
	work, err := perStep(workSteps(memory.FD()))
	return budget.Speed{ClockNS: clock, WorkNS: work}, err
}

// perStep loads a program and returns what one of its steps takes, in nanoseconds.
func perStep(steps asm.Instructions) (ns float64, err error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "tailcam_speed", Type: ebpf.SocketFilter, Instructions: steps, License: "Dual BSD/GPL",
	})
	if err != nil {
		return 0, fmt.Errorf("load a yardstick: %w", err)
	}
	defer p.Close() //nolint:errcheck // nobody else has it
	packet := make([]byte, 64)
	for range yardstickTries {
		_, took, err := p.Benchmark(packet, yardstickRuns, nil)
		if err != nil {
			return 0, fmt.Errorf("run a yardstick: %w", err)
		}
		if step := float64(took) / float64(time.Nanosecond) / yardstickSteps; ns == 0 || step < ns {
			ns = step
		}
	}
	if ns <= 0 {
		return 0, errors.New("run a yardstick: the kernel measured no time")
	}
	return ns, nil
}

// clockSteps reads the clock that every program reads.
func clockSteps() (list asm.Instructions) {
	for range yardstickSteps {
		list = append(list, asm.FnKtimeGetNs.Call())
	}
	return append(list, asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// workSteps reads and writes cache lines in an order that is hard to foresee, and
// goes on from run to run where it was.
func workSteps(fd int) asm.Instructions {
	list := asm.Instructions{
		asm.LoadMapValue(asm.R6, fd, 0),
		asm.LoadMem(asm.R7, asm.R6, 0, asm.DWord),
	}
	for range yardstickSteps {
		list = append(list,
			asm.Mul.Imm(asm.R7, 1103515245), asm.Add.Imm(asm.R7, 12345),
			asm.Mov.Reg(asm.R1, asm.R7), asm.RSh.Imm(asm.R1, 5), asm.And.Imm(asm.R1, yardstickBytes-64),
			asm.Mov.Reg(asm.R2, asm.R6), asm.Add.Reg(asm.R2, asm.R1),
			asm.LoadMem(asm.R3, asm.R2, 8, asm.DWord), asm.Add.Reg(asm.R7, asm.R3),
			asm.Xor.Reg(asm.R3, asm.R7), asm.StoreMem(asm.R2, 8, asm.R3, asm.DWord))
	}
	return append(list, asm.StoreMem(asm.R6, 0, asm.R7, asm.DWord), asm.Mov.Imm(asm.R0, 0), asm.Return())
}
