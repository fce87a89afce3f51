package kernel

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
)

// TestRefusedProgram gives the verifier programs that it refuses: one that
// only the recorder wants is left out, one that a tracker needs fails it all.
func TestRefusedProgram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		program, hook string
	}{
		{"napi_poll", "tp_btf:napi_poll"},
		{"sched_switch", ""},
	} {
		p, _, _, err := NewPlan(nil, []string{"sched", "net"}, kernel)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := bpf.LoadTailcam()
		if err != nil {
			t.Fatal(err)
		}
		var s specs
		if err := spec.Assign(&s); err != nil {
			t.Fatal(err)
		}
		if err := p.configure(spec, &s.TailcamVariableSpecs); err != nil {
			t.Fatal(err)
		}
		if err := linkSteal(spec, &s.TailcamVariableSpecs, kernel); err != nil {
			t.Fatal(err)
		}
		spec.Programs[test.program].Instructions = asm.Instructions{
			asm.Mov.Reg(asm.R0, asm.R5).WithSymbol(test.program), asm.Return(), // R5 holds nothing yet
		}
		objects, err := newCollection(spec, p.Unrecorded)
		switch {
		case test.hook == "":
			if err == nil {
				objects.Close()
				t.Errorf("%s was refused, and nothing failed", test.program)
			}
		case err != nil:
			t.Error(err)
		default:
			why := p.Unrecorded[test.hook]
			if why == nil || !strings.Contains(why.Error(), "the kernel's verifier refused its program") {
				t.Errorf("%s: %v", test.hook, why)
			}
			if objects.Programs[test.program] != nil || objects.Programs["net_dev_queue"] == nil {
				t.Errorf("loaded: %v", objects.Programs)
			}
			objects.Close()
		}
	}
}
