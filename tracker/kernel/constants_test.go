package kernel

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"gotest.tools/v3/assert"
)

// knobs are the constants of a test: at offset 4 there is 7, and behind it a long one.
func knobs(code asm.Instructions) *ebpf.CollectionSpec {
	return &ebpf.CollectionSpec{
		ByteOrder: binary.LittleEndian,
		Maps: map[string]*ebpf.MapSpec{constantsMap: {
			Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1,
			Contents: []ebpf.MapKV{{Key: uint32(0), Value: make([]byte, 16)}},
		}},
		Variables: map[string]*ebpf.VariableSpec{
			"small": {Name: "small", SectionName: constantsMap, Offset: 4, Value: []byte{7, 0, 0, 0}},
			"long":  {Name: "long", SectionName: constantsMap, Offset: 8, Value: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
			"other": {Name: "other", SectionName: ".bss", Offset: 4, Value: []byte{9, 0, 0, 0}},
		},
		Programs: map[string]*ebpf.ProgramSpec{"p": {Instructions: code}},
	}
}

func constantAddress(to asm.Register, at uint32) asm.Instruction {
	return asm.LoadMapValue(to, 0, at).WithReference(constantsMap)
}

func TestInlineConstants(t *testing.T) {
	jump := asm.JEq.Imm(asm.R1, 0, "")
	over := func(n int16) asm.Instruction { jump.Offset = n; return jump }
	for _, tt := range []struct {
		name       string
		code, want asm.Instructions
	}{
		{
			"its address is needed for it alone",
			asm.Instructions{constantAddress(asm.R1, 4), asm.LoadMem(asm.R1, asm.R1, 0, asm.Word)},
			asm.Instructions{asm.LoadImm(asm.R1, 7, asm.DWord), {OpCode: nop}},
		},
		{
			"within it", asm.Instructions{constantAddress(asm.R1, 4), asm.LoadMem(asm.R1, asm.R1, 5, asm.Byte)},
			asm.Instructions{asm.LoadImm(asm.R1, 2, asm.DWord), {OpCode: nop}},
		},
		{
			"a long one", asm.Instructions{constantAddress(asm.R2, 8), asm.LoadMem(asm.R2, asm.R2, 0, asm.DWord)},
			asm.Instructions{asm.LoadImm(asm.R2, 0x0807060504030201, asm.DWord), {OpCode: nop}},
		},
		{
			"its address may be needed again",
			asm.Instructions{constantAddress(asm.R1, 4), asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.LoadMem(asm.R3, asm.R1, 0, asm.Word)},
			asm.Instructions{constantAddress(asm.R1, 4), asm.Mov.Imm(asm.R2, 7), asm.LoadMem(asm.R3, asm.R1, 0, asm.Word)},
		},
		{
			"a long one, whose address may be needed again",
			asm.Instructions{constantAddress(asm.R1, 8), asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord)}, nil,
		},
		{
			"jumped to, from before",
			asm.Instructions{over(2), constantAddress(asm.R1, 4), asm.LoadMem(asm.R1, asm.R1, 0, asm.Word)}, nil,
		},
		{
			"jumped to, from behind",
			asm.Instructions{constantAddress(asm.R1, 4), asm.LoadMem(asm.R1, asm.R1, 0, asm.Word), over(-2)}, nil,
		},
		{
			"jumped over",
			asm.Instructions{over(3), constantAddress(asm.R1, 4), asm.LoadMem(asm.R1, asm.R1, 0, asm.Word), asm.Return()},
			asm.Instructions{over(3), asm.LoadImm(asm.R1, 7, asm.DWord), {OpCode: nop}, asm.Return()},
		},
		{
			"a variable", asm.Instructions{asm.LoadMapValue(asm.R1, 0, 4).WithReference(".bss"), asm.LoadMem(asm.R1, asm.R1, 0, asm.Word)}, nil,
		},
		{
			"behind the last one", asm.Instructions{constantAddress(asm.R1, 12), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord)}, nil,
		},
		{
			"written to", asm.Instructions{constantAddress(asm.R1, 4), asm.StoreMem(asm.R1, 0, asm.R1, asm.Word)}, nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := knobs(tt.code)
			want := tt.want
			if want == nil {
				want = tt.code
			}
			inlineConstants(spec)
			got := spec.Programs["p"].Instructions
			assert.Equal(t, len(got), len(want))
			for i := range got {
				assert.Check(t, got[i].OpCode == want[i].OpCode && got[i].Dst == want[i].Dst && got[i].Src == want[i].Src &&
					got[i].Offset == want[i].Offset && got[i].Constant == want[i].Constant && got[i].Reference() == want[i].Reference(),
					"%d: %v, want %v", i, got[i], want[i])
			}
		})
	}
}
