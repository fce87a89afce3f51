package kernel

import (
	"os"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf"
)

// TestRefusedProgram gives the verifier programs that it refuses: one that
// only the recorder wants is left out, one that a tracker needs fails it all.
func TestRefusedProgram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	kernel, err := btf.LoadKernelSpec()
	assert.NilError(t, err)
	for _, test := range []struct {
		program, hook string
	}{
		{"napi_poll", "tp_btf:napi_poll"},
		{"sched_switch", ""},
	} {
		p, _, _, err := NewPlan(nil, []string{"sched", "net"}, kernel)
		assert.NilError(t, err)
		spec, err := bpf.LoadTailcam()
		assert.NilError(t, err)
		var s specs
		assert.NilError(t, spec.Assign(&s))
		assert.NilError(t, p.configure(spec, &s.TailcamVariableSpecs))
		assert.NilError(t, linkSteal(spec, &s.TailcamVariableSpecs, kernel))
		assert.NilError(t, LinkVariables(spec, kernel))
		spec.Programs[test.program].Instructions = asm.Instructions{
			asm.Mov.Reg(asm.R0, asm.R5).WithSymbol(test.program), asm.Return(), // R5 holds nothing yet
		}
		objects, err := newCollection(spec, nil, p.Unrecorded)
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
			assert.Check(t, is.ErrorContains(why, "the kernel's verifier refused its program"), "%s", test.hook)
			assert.Check(t, objects.Programs[test.program] == nil && objects.Programs["net_dev_queue"] != nil,
				"loaded: %v", objects.Programs)
			objects.Close()
		}
	}
}
