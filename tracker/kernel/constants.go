package kernel

import (
	"encoding/binary"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// inlineConstants puts the values of constants, as they stand in spec.Variables, into the
// instructions that would load them from memory. The verifier follows a constant to the
// branches that it decides, and removes those, but leaves each load where it is.
func inlineConstants(spec *ebpf.CollectionSpec) {
	image := constants(spec)
	for _, p := range spec.Programs {
		p.Instructions = inlined(p.Instructions, image, spec.ByteOrder)
	}
}

// constantsMap holds the constants of programs: what configuration and rules want of them.
const constantsMap = ".rodata"

// constants are the contents of that map, as it is loaded.
func constants(spec *ebpf.CollectionSpec) []byte {
	m := spec.Maps[constantsMap]
	if m == nil || len(m.Contents) == 0 {
		return nil
	}
	image := slices.Clone(m.Contents[0].Value.([]byte))
	for _, v := range spec.Variables {
		if v.SectionName == constantsMap {
			copy(image[v.Offset:], v.Value)
		}
	}
	return image
}

// inlined replaces each address of a constant that the next instruction loads. Every instruction
// keeps its place, so that jumps stay as they are; one that does nothing is removed by the kernel
// (opt_remove_nops() in kernel/bpf/verifier.c).
func inlined(code asm.Instructions, image []byte, order binary.ByteOrder) asm.Instructions {
	code = slices.Clone(code)
	targets := jumpTargets(code)
	at := asm.RawInstructionOffset(0)
	for i := 0; i+1 < len(code); i++ {
		address, load := &code[i], &code[i+1]
		at += address.Width()
		if targets[at] || load.Symbol() != "" || !address.IsLoadFromMap() || address.Src != asm.PseudoMapValue || address.Reference() != constantsMap {
			continue
		}
		op := load.OpCode
		if op.Class() != asm.LdXClass || op.Mode() != asm.MemMode || load.Src != address.Dst {
			continue
		}
		value, ok := constantAt(image, int(uint64(address.Constant)>>32)+int(load.Offset), op.Size().Sizeof(), order)
		switch {
		case !ok:
		case load.Dst == address.Dst: // nobody else needs the address
			*address = asm.LoadImm(load.Dst, int64(value), asm.DWord).WithMetadata(address.Metadata).WithReference("")
			*load = asm.Instruction{OpCode: nop}.WithMetadata(load.Metadata)
		case value <= 1<<31-1:
			*load = asm.Mov.Imm(load.Dst, int32(value)).WithMetadata(load.Metadata)
		}
	}
	return code
}

// nop is a jump to the next instruction.
var nop = asm.OpCode(asm.JumpClass).SetJumpOp(asm.Ja)

// jumpTargets are the instructions that are jumped to.
func jumpTargets(code asm.Instructions) map[asm.RawInstructionOffset]bool {
	targets := map[asm.RawInstructionOffset]bool{}
	at := asm.RawInstructionOffset(0)
	for i := range code {
		ins := &code[i]
		next := at + ins.Width()
		if ins.OpCode.Class().IsJump() {
			targets[next+asm.RawInstructionOffset(ins.Offset)] = true
			targets[next+asm.RawInstructionOffset(ins.Constant)] = true // a jump that is longer has its way there
		}
		at = next
	}
	return targets
}

// constantAt reads a number of so many bytes.
func constantAt(image []byte, at, size int, order binary.ByteOrder) (value uint64, ok bool) {
	if at < 0 || at+size > len(image) {
		return 0, false
	}
	switch from := image[at:]; size {
	case 1:
		return uint64(from[0]), true
	case 2:
		return uint64(order.Uint16(from)), true
	case 4:
		return uint64(order.Uint32(from)), true
	default:
		return order.Uint64(from), true
	}
}
