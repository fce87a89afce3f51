package pair

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// Load loads a program for each hook, with the maps and live variables of
// the main object.
func (p *Set) Load(k *kernel.Objects) error {
	if len(p.hooks) == 0 {
		return nil
	}
	spec, err := bpf.LoadPair()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	main, err := bpf.LoadTailcam()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := shareVariables(spec, main); err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	scratches := spec.Maps["pair_scratches"].Copy()
	scratches.MaxEntries = uint32(cpus * abi.PairScratches)
	if p.scratches, err = ebpf.NewMap(scratches); err != nil {
		return fmt.Errorf("make scratch memory of pairs: %w", err)
	}
	cache := btf.NewCache()
	for _, h := range p.hooks {
		if h.program, err = p.loadHook(k, spec.Copy(), h, cache); err != nil {
			if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
				return fmt.Errorf("rule %s: load the program for %s: %w (run as root, or with CAP_BPF and CAP_PERFMON)", h.rule, h.hook.Text, err)
			}
			p.fail(h, fmt.Errorf("load the program for %s: %w", h.hook.Text, err))
		}
	}
	return nil
}

// shareVariables makes the programs of spec use the live variables of main,
// wherever the compiler has put them in each.
func shareVariables(spec, main *ebpf.CollectionSpec) error {
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			section := ins.Reference()
			if !ins.IsLoadFromMap() || ins.Src != asm.PseudoMapValue || section == ".rodata" {
				continue
			}
			at := uint32(uint64(ins.Constant) >> 32)
			own, ok := variableAt(spec, section, at)
			if !ok {
				return fmt.Errorf("the BPF object of pairs uses unnamed memory of %s", section)
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

// loadHook loads the template of a hook with its constants.
func (p *Set) loadHook(k *kernel.Objects, spec *ebpf.CollectionSpec, h *hookProgram, cache *btf.Cache) (*ebpf.Program, error) {
	var v bpf.PairVariableSpecs
	if err := spec.Assign(&v); err != nil {
		return nil, err
	}
	for name := range spec.Programs {
		if name != h.site.template {
			delete(spec.Programs, name)
		}
	}
	program := spec.Programs[h.site.template]
	if h.site.attachTo != "" {
		program.AttachTo, program.AttachType = h.site.attachTo, h.site.attachType
	}
	for name, v := range spec.Variables {
		if m := k.Constants[name]; v.Constant() && m != nil {
			v.Value = slices.Clone(m.Value)
		}
	}
	maps.DeleteFunc(spec.Variables, func(_ string, v *ebpf.VariableSpec) bool { return !v.Constant() })
	if err := v.Hook.Set(h.wire); err != nil {
		return nil, err
	}
	replace := map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		if name == ".rodata" {
			continue
		}
		with := k.Map(name)
		if name == "pair_scratches" {
			with = p.scratches
		}
		if with == nil {
			return nil, fmt.Errorf("map %s is missing in the main BPF object", name)
		}
		m.MaxEntries, m.ValueSize = with.MaxEntries(), with.ValueSize()
		replace[name] = with
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace, Cache: cache})
	if refused, ok := errors.AsType[*ebpf.VerifierError](err); ok {
		return nil, fmt.Errorf("the kernel's verifier refused it: %w\n%+v", err, refused) //nolint:errorlint // the same error again: its log
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.DetachProgram(h.site.template), nil
}

// Attach attaches what ends work before what begins it. A rule whose hook cannot
// be attached goes without the others, too: see Failed.
func (p *Set) Attach(k *kernel.Objects) error {
	for _, role := range []int{abi.PairCancel, abi.PairExit, abi.PairEntry} {
		for _, h := range p.hooks {
			if h.role != role || p.failed[h.rule] != nil {
				continue
			}
			l, err := h.site.attach(h.program)
			if err != nil {
				p.fail(h, fmt.Errorf("attach to %s: %w", h.hook.Text, err))
				if err := k.DetachRule(h.rule); err != nil {
					return err
				}
				continue
			}
			k.AddLink(kernel.Attachment{Program: h.name(), Hook: h.hook.Text, Rule: h.rule, Link: l, Loaded: h.program})
		}
	}
	return nil
}

// fail notes why a rule does not work here.
func (p *Set) fail(h *hookProgram, err error) {
	if p.failed[h.rule] == nil {
		p.failed[h.rule] = err
	}
}

// Failed are the rules whose hooks the kernel has refused, and why.
func (p *Set) Failed() map[string]error {
	return p.failed
}

// Close unloads the programs. What is attached must be detached before.
func (p *Set) Close() {
	for _, h := range p.hooks {
		if h.program != nil {
			_ = h.program.Close() // nothing is lost with it
		}
	}
	if p.scratches != nil {
		_ = p.scratches.Close()
	}
}
