package guest

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// TestBTF proves that the kernel describes its types.
func TestBTF(t *testing.T) {
	inGuest(t)
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var task *btf.Struct
	if err := spec.TypeByName("task_struct", &task); err != nil {
		t.Fatal(err)
	}
}

// TestTracepoint loads and attaches a typed tracepoint program written in
// assembly, and sees it count: what every tracker rests on.
func TestTracepoint(t *testing.T) {
	inGuest(t)
	counter, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "switches", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatalf("load: %+v", err)
	}
	defer prog.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: prog, AttachType: ebpf.AttachTraceRawTp})
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	defer l.Close()

	var n uint64
	for range 100 {
		time.Sleep(time.Millisecond)
		if err := counter.Lookup(uint32(0), &n); err != nil {
			t.Fatal(err)
		}
		if n >= 10 {
			return
		}
	}
	t.Fatalf("counted %d switches in 100 sleeps", n)
}
