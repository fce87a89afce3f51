package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
)

// ShareVariables makes the programs of spec use the live variables of the main
// object, wherever the compiler has put them in each.
func ShareVariables(spec *ebpf.CollectionSpec) error {
	main, err := bpf.LoadTailcam()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			section := ins.Reference()
			if !ins.IsLoadFromMap() || ins.Src != asm.PseudoMapValue || section == constantsMap {
				continue
			}
			at := uint32(uint64(ins.Constant) >> 32)
			own, ok := variableAt(spec, section, at)
			if !ok {
				return fmt.Errorf("a BPF object beside the main one uses unnamed memory of %s", section)
			}
			v := main.Variables[own.Name]
			if v == nil || v.SectionName != section || v.Size() != own.Size() {
				return fmt.Errorf("variable %s is not the same in both BPF objects", own.Name)
			}
			if err := ins.RewriteMapOffset(v.Offset + at - own.Offset); err != nil {
				return fmt.Errorf("share variable %s: %w", own.Name, err)
			}
		}
	}
	return nil
}

func variableAt(spec *ebpf.CollectionSpec, section string, at uint32) (*ebpf.VariableSpec, bool) {
	for _, v := range spec.Variables {
		if v.SectionName == section && at >= v.Offset && at-v.Offset < v.Size() {
			return v, true
		}
	}
	return nil, false
}

// LoadShared loads an object whose variables are shared (see ShareVariables)
// with the knobs and the maps of the main one, but for its own maps. It changes
// spec. The caller closes what it returns.
func (o *Objects) LoadShared(spec *ebpf.CollectionSpec, own map[string]*ebpf.Map, cache *btf.Cache) (*ebpf.Collection, error) {
	for name, v := range spec.Variables {
		if m := o.loaded.Load().constants[name]; v.Constant() && m != nil {
			v.Value = slices.Clone(m.Value)
		}
	}
	maps.DeleteFunc(spec.Variables, func(_ string, v *ebpf.VariableSpec) bool { return !v.Constant() })
	replace := map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		if name == constantsMap || m.Type == ebpf.ProgramArray { // see bpf/lib/stack.h
			continue
		}
		with := o.Map(name)
		if own[name] != nil {
			with = own[name]
		}
		if with == nil {
			return nil, fmt.Errorf("map %s is missing in the main BPF object", name)
		}
		m.MaxEntries, m.ValueSize = with.MaxEntries(), with.ValueSize()
		m.Type, m.Flags = with.Type(), with.Flags()
		replace[name] = with
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace, Cache: cache})
	if refused, ok := errors.AsType[*ebpf.VerifierError](err); ok {
		return nil, fmt.Errorf("the kernel's verifier refused it: %w\n%+v", err, refused) //nolint:errorlint // the same error again: its log
	}
	return c, err
}
