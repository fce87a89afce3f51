package kernel

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// inlineConstants puts the values of constants into the instructions that would load them
// from memory. The verifier follows a constant to the branches that it decides, but leaves
// the load: on each event, for each of the choices that the configuration has made, and
// in a cache line that is cold by then. What another load or a jump may still need stays.
// Constants are those of the map ".rodata", with the values of spec.Variables.
func inlineConstants(spec *ebpf.CollectionSpec) {
	image := constants(spec)
	for _, p := range spec.Programs {
		p.Instructions = inlined(p.Instructions, image, spec.ByteOrder.Uint64)
	}
}

const constantsMap = ".rodata"

// constants are the contents of that map, as it is loaded.
func constants(spec *ebpf.CollectionSpec) []byte {
	m := spec.Maps[constantsMap]
	if m == nil || len(m.Contents) == 0 {
		return nil
	}
	image := append([]byte(nil), m.Contents[0].Value.([]byte)...)
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
func inlined(code asm.Instructions, image []byte, number func([]byte) uint64) asm.Instructions {
	code = append(asm.Instructions(nil), code...)
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
		value, ok := constantAt(image, int(uint64(address.Constant)>>32)+int(load.Offset), op.Size().Sizeof(), number)
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
func constantAt(image []byte, at, size int, number func([]byte) uint64) (uint64, bool) {
	if at < 0 || at+size > len(image) {
		return 0, false
	}
	var word [8]byte
	little := number([]byte{1, 0, 0, 0, 0, 0, 0, 0}) == 1
	if little {
		copy(word[:], image[at:at+size])
	} else {
		copy(word[8-size:], image[at:at+size])
	}
	return number(word[:]), true
}
