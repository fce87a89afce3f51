package tracker

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
)

// loadPairs loads a program for each hook, with the maps and live variables of
// the main object.
func (t *Tracker) loadPairs() error {
	if len(t.pairs.hooks) == 0 {
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
	scratches.MaxEntries = uint32(cpus * pairScratches)
	if t.pairScratches, err = ebpf.NewMap(scratches); err != nil {
		return fmt.Errorf("make scratch memory of pairs: %w", err)
	}
	cache := btf.NewCache()
	for _, p := range t.pairs.hooks {
		if p.program, err = t.loadPair(spec.Copy(), p, cache); err != nil {
			if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
				return fmt.Errorf("rule %s: load the program for %s: %w (run as root, or with CAP_BPF and CAP_PERFMON)", p.rule, p.hook.Text, err)
			}
			t.pairs.fail(p, fmt.Errorf("load the program for %s: %w", p.hook.Text, err))
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

// loadPair loads the template of a hook with its constants.
func (t *Tracker) loadPair(spec *ebpf.CollectionSpec, p *pairProgram, cache *btf.Cache) (*ebpf.Program, error) {
	for name := range spec.Programs {
		if name != p.site.template {
			delete(spec.Programs, name)
		}
	}
	program := spec.Programs[p.site.template]
	if p.site.attachTo != "" {
		program.AttachTo, program.AttachType = p.site.attachTo, p.site.attachType
	}
	for name, v := range spec.Variables {
		if m := t.constants[name]; v.Constant() && m != nil {
			v.Value = slices.Clone(m.Value)
		}
	}
	maps.DeleteFunc(spec.Variables, func(_ string, v *ebpf.VariableSpec) bool { return !v.Constant() })
	if err := spec.Variables["hook"].Set(p.wire); err != nil {
		return nil, err
	}
	replace := map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		if name == ".rodata" {
			continue
		}
		with := t.objects.Maps[name]
		if name == "pair_scratches" {
			with = t.pairScratches
		}
		if with == nil {
			return nil, fmt.Errorf("map %s is missing in the main BPF object", name)
		}
		m.MaxEntries, m.ValueSize = with.MaxEntries(), with.ValueSize()
		replace[name] = with
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace, Cache: cache})
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		return nil, fmt.Errorf("the kernel's verifier refused it: %w\n%+v", err, refused) //nolint:errorlint // the same error again: its log
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.DetachProgram(p.site.template), nil
}

// attachPairs attaches what ends work before what begins it.
func (t *Tracker) attachPairs() error {
	for _, role := range []int{roleCancel, roleExit, roleEntry} {
		for _, p := range t.pairs.hooks {
			if p.role != role || t.pairs.failed[p.rule] != nil {
				continue
			}
			l, err := p.site.attach(p.program)
			if err != nil {
				t.pairs.fail(p, fmt.Errorf("attach to %s: %w", p.hook.Text, err))
				if err := t.detachPair(p.rule); err != nil {
					return err
				}
				continue
			}
			t.stopping.Lock()
			t.links = append(t.links, attached{&hook{program: p.name()}, l, p.program, p.hook.Text, p.rule})
			t.stopping.Unlock()
		}
	}
	return nil
}

// fail notes why a rule does not work here.
func (p *pairs) fail(of *pairProgram, err error) {
	if p.failed[of.rule] == nil {
		p.failed[of.rule] = err
	}
}

// detachPair takes the other hooks of a rule away again: half a pair is none.
func (t *Tracker) detachPair(rule string) error {
	t.mu.Lock()
	t.inactive = maps.Clone(t.inactive)
	t.inactive[rule] = t.pairs.failed[rule]
	t.mu.Unlock()
	t.stopping.Lock()
	defer t.stopping.Unlock()
	var errs []error
	t.links = slices.DeleteFunc(t.links, func(a attached) bool {
		if a.rule != rule {
			return false
		}
		errs = append(errs, a.link.Close())
		return true
	})
	return errors.Join(errs...)
}

func (t *Tracker) closePairs() {
	for _, p := range t.pairs.hooks {
		if p.program != nil {
			_ = p.program.Close() // nothing is lost with it
		}
	}
	if t.pairScratches != nil {
		_ = t.pairScratches.Close()
	}
}
