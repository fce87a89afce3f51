package guest

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"gotest.tools/v3/assert"
)

// TestBTF proves that the kernel describes its types.
func TestBTF(t *testing.T) {
	inGuest(t)
	spec, err := btf.LoadKernelSpec()
	assert.NilError(t, err)
	var task *btf.Struct
	assert.NilError(t, spec.TypeByName("task_struct", &task))
}

// TestTracepoint loads and attaches a typed tracepoint program written in
// assembly, and sees it count: what every tracker rests on.
func TestTracepoint(t *testing.T) {
	inGuest(t)
	counter, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "switches", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	})
	assert.NilError(t, err)
	defer counter.Close()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:       "count_switches",
		Type:       ebpf.Tracing,
		AttachType: ebpf.AttachTraceRawTp,
		AttachTo:   "sched_switch",
		License:    "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, counter.FD(), 0),
			asm.Mov.Imm(asm.R2, 1),
			asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	})
	assert.NilError(t, err, "load: %+v", err)
	defer prog.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: prog, AttachType: ebpf.AttachTraceRawTp})
	assert.NilError(t, err, "attach")
	defer l.Close()

	var n uint64
	for range 100 {
		time.Sleep(time.Millisecond)
		assert.NilError(t, counter.Lookup(uint32(0), &n))
		if n >= 10 {
			return
		}
	}
	t.Fatalf("counted %d switches in 100 sleeps", n)
}
