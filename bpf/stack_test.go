package bpf

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"gotest.tools/v3/assert"
)

// TestStack: programs that several tasks of a CPU can be in jump, so that the kernel gives them no
// stack that these would share (lib/stack.h).
func TestStack(t *testing.T) {
	for program, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"call_entry": LoadCall, "call_exit": LoadCall, "pair_regs": LoadPair, "declared_regs": LoadDeclared,
	} {
		spec, err := load()
		assert.NilError(t, err)
		jumps := slices.ContainsFunc(spec.Programs[program].Instructions, func(i asm.Instruction) bool {
			return i.IsBuiltinCall() && i.Constant == int64(asm.FnTailCall)
		})
		assert.Check(t, jumps, program)
	}
}
