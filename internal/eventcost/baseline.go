package eventcost

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Baseline is an empty program at the scheduler's switch: its run time is the overhead of measuring.
type Baseline struct {
	program *ebpf.Program
	link    link.Link
}

// NewBaseline loads and attaches one. Needs kernel 5.5+.
func NewBaseline() (*Baseline, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "tailcam_nothing", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, License: "Dual BSD/GPL",
	})
	if err != nil {
		return nil, fmt.Errorf("load an empty program: %w", err)
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("attach an empty program: %w", err)
	}
	return &Baseline{p, l}, nil
}

// Close detaches it.
func (e *Baseline) Close() {
	_ = e.link.Close()
	_ = e.program.Close()
}

// PerRun returns nanoseconds per run, while BPF run-time statistics were enabled.
func (e *Baseline) PerRun() (float64, error) {
	s, err := e.program.Stats()
	if err != nil {
		return 0, fmt.Errorf("read the statistics of an empty program: %w", err)
	}
	if s.RunCount == 0 {
		return 0, nil
	}
	return float64(s.Runtime.Nanoseconds()) / float64(s.RunCount), nil
}
