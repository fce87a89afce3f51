package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
)

// pseudoBTFID marks a load of the address of a kernel variable
// (BPF_PSEUDO_BTF_ID of linux/bpf.h). Needs kernel 5.10+.
const pseudoBTFID asm.Register = 3

// LinkVariables lets the programs read the kernel's own per-CPU variables
// (bpf/lib/core_fixes.h): the preempt count of an x86 kernel, which says whether an
// interrupt or a softirq runs; whether packets are received; how many softirqs have
// begun. Where a preempt count cannot be found, they know of those alone whose hooks
// are attached.
func LinkVariables(spec *ebpf.CollectionSpec, kernel *btf.Spec) error {
	for _, x := range []struct {
		variable string
		exists   *ebpf.VariableSpec
	}{
		{"__preempt_count", spec.Variables["preempt_own"]}, {"pcpu_hot", spec.Variables["preempt_hot"]},
	} {
		if x.exists == nil {
			return errors.New("these programs do not read the preempt count")
		}
		id, err := variableType(kernel, x.variable)
		if err != nil {
			return err
		}
		if err := set([]knob{{x.exists, id != 0}}); err != nil {
			return err
		}
		for _, p := range spec.Programs {
			referTo(p.Instructions, x.variable, id)
		}
	}
	var cast *btf.Func
	if err := set([]knob{{spec.Variables["plain_reads"], kernel.TypeByName("bpf_rdonly_cast", &cast) == nil}}); err != nil {
		return err
	}
	return setOffsets(spec, kernel)
}

// countsPreemption reports whether the programs can read the preempt count.
func countsPreemption(v *bpf.TailcamVariableSpecs, kernel *btf.Spec) bool {
	var own, hot bool
	var offset int64
	if v.PreemptOwn.Get(&own) != nil || v.PreemptHot.Get(&hot) != nil || v.PercpuPreemptCount.Get(&offset) != nil {
		return false
	}
	var info *btf.Struct
	arm64 := kernel.TypeByName("thread_info", &info) == nil && memberOffset(info.Members, "preempt_count") >= 0
	return own || hot || offset != 0 || arm64
}

// probeVariable tells why programs cannot read a per-CPU variable of the kernel; nil: they can.
func probeVariable(name string, kernel *btf.Spec) error {
	var section *btf.Datasec
	if err := kernel.TypeByName(percpuSection, &section); err != nil {
		return fmt.Errorf("this kernel's types have no per-CPU variables: %w", err)
	}
	for _, x := range section.Vars {
		if variable, ok := x.Type.(*btf.Var); ok && variable.Name == name {
			return nil
		}
	}
	return fmt.Errorf("this kernel's types have no per-CPU variable %s", name)
}

// percpuSection has the kernel's per-CPU variables, in BTF.
const percpuSection = ".data..percpu"

// setOffsets tells the programs how far per-CPU variables are from the run queue, which
// each task points to.
func setOffsets(spec *ebpf.CollectionSpec, kernel *btf.Spec) error {
	var section *btf.Datasec
	err := kernel.TypeByName(percpuSection, &section)
	if errors.Is(err, btf.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the kernel's per-CPU variables: %w", err)
	}
	offsets := map[string]int64{}
	for _, x := range section.Vars {
		if variable, ok := x.Type.(*btf.Var); ok {
			offsets[variable.Name] = int64(x.Offset)
		}
	}
	queue, ok := offsets["runqueues"]
	if !ok {
		return nil
	}
	var knobs []knob
	offset := func(variable, name string, within int64) {
		if at, ok := offsets[name]; ok && spec.Variables[variable] != nil {
			knobs = append(knobs, knob{spec.Variables[variable], at + within - queue})
		}
	}
	offset("percpu_preempt_count", "__preempt_count", 0)
	var hot *btf.Struct
	if kernel.TypeByName("pcpu_hot", &hot) == nil {
		if at := memberOffset(hot.Members, "preempt_count"); at >= 0 {
			offset("percpu_preempt_count", "pcpu_hot", at)
		}
	}
	offset("percpu_softnet_data", "softnet_data", 0)
	offset("percpu_kstat", "kstat", 0)
	offset("percpu_hrtimer_bases", "hrtimer_bases", 0)
	offset("percpu_irq_regs", "__irq_regs", 0)
	var tick *btf.Struct
	if kernel.TypeByName("tick_sched", &tick) == nil {
		if at := memberOffset(tick.Members, "sched_timer"); at >= 0 {
			offset("percpu_tick", "tick_cpu_sched", at)
		}
	}
	return set(knobs)
}

// memberOffset finds a member of a structure, or of those without a name in it; -1: there
// is none.
func memberOffset(members []btf.Member, name string) int64 {
	for _, m := range members {
		at, within := int64(m.Offset.Bytes()), int64(-1)
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			within = memberOffset(t.Members, name)
		case *btf.Union:
			within = memberOffset(t.Members, name)
		}
		switch {
		case m.Name == name:
			return at
		case m.Name == "" && within >= 0:
			return at + within
		}
	}
	return -1
}

// variableType returns the id of the type of a per-CPU variable of the kernel; 0: there
// is none, or the verifier would not find it: its symbol is missing without
// CONFIG_KALLSYMS_ALL.
func variableType(kernel *btf.Spec, name string) (btf.TypeID, error) {
	var variable *btf.Var
	err := kernel.TypeByName(name, &variable)
	if errors.Is(err, btf.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for the kernel's variable %s: %w", name, err)
	}
	symbols, _ := coreSymbols() // which must ask for it; what cannot be read is not found
	if _, found := symbols[name]; !found {
		return 0, nil
	}
	return kernel.TypeID(variable)
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
