package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/internal/linux"
)

// pseudoBTFID marks a load of the address of a kernel variable
// (BPF_PSEUDO_BTF_ID of linux/bpf.h). Needs kernel 5.10+.
const pseudoBTFID asm.Register = 3

// stealVariable is where KVM tells a guest of stolen time, per CPU.
const stealVariable = "steal_time"

// linkSteal lets the programs read KVM's clock of stolen time, if the kernel
// has it and its run queues do not tell of it (bpf/steal.h). The verifier wants
// a reference to the variable's type, not its address: that takes no right to
// know addresses.
func linkSteal(spec *ebpf.CollectionSpec, v *bpf.TailcamVariableSpecs, kernel *btf.Spec) error {
	id, err := stealType(kernel)
	if err != nil {
		return fmt.Errorf("look for the kernel's variable %s: %w", stealVariable, err)
	}
	if err := set([]knob{{v.StealKvm, id != 0}}); err != nil {
		return err
	}
	for _, p := range spec.Programs {
		referTo(p.Instructions, stealVariable, id)
	}
	return nil
}

// queuesTell tells whether the kernel's run queues know of stolen time.
func queuesTell(kernel *btf.Spec) bool {
	var queue *btf.Struct
	return kernel.TypeByName("rq", &queue) == nil && hasMember(queue, "prev_steal_time_rq")
}

// stealMissing tells why this kernel does not tell of stolen time; nil: it does.
func stealMissing(kernel *btf.Spec) (missing, err error) {
	if queuesTell(kernel) {
		return nil, nil
	}
	id, err := stealType(kernel)
	if err == nil && id == 0 {
		missing = errors.New("this kernel has neither CONFIG_PARAVIRT_TIME_ACCOUNTING nor KVM's clock of stolen time")
	}
	return missing, err
}

// stealType returns the id of the variable's type; 0: it is of no use here.
func stealType(kernel *btf.Spec) (btf.TypeID, error) {
	if queuesTell(kernel) {
		return 0, nil
	}
	var variable *btf.Var
	err := kernel.TypeByName(stealVariable, &variable)
	found, _ := linux.HasSymbol(stealVariable) // what cannot be read is not found
	if errors.Is(err, btf.ErrNotFound) || err == nil && !found {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return kernel.TypeID(variable)
}

func hasMember(s *btf.Struct, name string) bool {
	for i := range s.Members {
		if s.Members[i].Name == name {
			return true
		}
	}
	return false
}

// referTo makes each load of an unresolved symbol one of the variable id; 0:
// of nothing, in code that the verifier removes.
func referTo(list asm.Instructions, symbol string, id btf.TypeID) {
	for i := range list {
		ins := &list[i]
		if !ins.OpCode.IsDWordLoad() || ins.Reference() != symbol {
			continue
		}
		label := ins.Symbol()
		ins.Metadata = asm.Metadata{} // else the loader would look the address up
		if label != "" {
			*ins = ins.WithSymbol(label)
		}
		ins.Constant = int64(id)
		if id != 0 {
			ins.Src = pseudoBTFID
		}
	}
}
