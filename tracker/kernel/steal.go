package kernel

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
)

// stealVariable is where KVM tells a guest of stolen time, per CPU.
const stealVariable = "steal_time"

// linkSteal lets the programs read KVM's clock of stolen time, if the kernel
// has it and its run queues do not tell of it (bpf/recorder/steal.h). The verifier wants
// a reference to the variable's type, not its address: that takes no right to
// know addresses.
func linkSteal(spec *ebpf.CollectionSpec, v *bpf.TailcamVariableSpecs, kernel *btf.Spec) error {
	id, err := stealType(kernel)
	if err != nil {
		return err
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
	return variableType(kernel, stealVariable)
}

func hasMember(s *btf.Struct, name string) bool {
	for i := range s.Members {
		if s.Members[i].Name == name {
			return true
		}
	}
	return false
}
