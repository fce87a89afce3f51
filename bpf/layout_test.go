package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"
)

// TestLayout: what maps hold is told apart, what programs do is not.
func TestLayout(t *testing.T) {
	spec := func() *ebpf.CollectionSpec {
		s, err := LoadTailcam()
		assert.NilError(t, err)
		return s
	}
	same, err := Layout()
	assert.NilError(t, err)
	assert.Equal(t, layoutOf(spec(), layoutMeaning), same)

	s := spec()
	p := s.Programs["sched_switch"]
	p.Instructions = append(asm.Instructions{asm.Mov.Reg(asm.R1, asm.R1)}, p.Instructions...)
	s.Maps["task_slots"].MaxEntries = 4711
	assert.Check(t, layoutOf(s, layoutMeaning) == same, "other instructions and sizes are no other layout")

	assert.Check(t, layoutOf(spec(), layoutMeaning+1) != same, "another meaning")
	slot := func(s *ebpf.CollectionSpec) *btf.Struct {
		return btf.UnderlyingType(s.Maps["task_slots"].Value).(*btf.Struct)
	}
	for name, change := range map[string]func(s *ebpf.CollectionSpec){
		"a map more":      func(s *ebpf.CollectionSpec) { s.Maps["more"] = s.Maps["task_slots"].Copy() },
		"a map less":      func(s *ebpf.CollectionSpec) { delete(s.Maps, "task_slots") },
		"another flag":    func(s *ebpf.CollectionSpec) { s.Maps["task_slots"].Flags++ },
		"a field moved":   func(s *ebpf.CollectionSpec) { slot(s).Members[1].Offset += 8 },
		"a field renamed": func(s *ebpf.CollectionSpec) { slot(s).Members[1].Name = "other" },
		"a variable":      func(s *ebpf.CollectionSpec) { s.Variables["generation"].Offset += 4 },
	} {
		s := spec()
		change(s)
		assert.Check(t, layoutOf(s, layoutMeaning) != same, name)
	}
}
