package pair

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// Load loads a program for each hook that has none, with the maps and live variables
// of the main object.
func (p *Set) Load(k *kernel.Objects) error {
	if len(p.hooks) == 0 {
		return nil
	}
	k.UsePairs()
	if err := p.prepare(k); err != nil {
		return err
	}
	spec, err := bpf.LoadPair()
	if err != nil {
		return fmt.Errorf("read the embedded BPF object: %w", err)
	}
	if err := kernel.ShareVariables(spec); err != nil {
		return err
	}
	if err := p.makeScratches(spec); err != nil {
		return err
	}
	cache := btf.NewCache()
	for _, h := range p.hooks {
		if h.program != nil || p.failed[h.rule] != nil {
			continue
		}
		if h.program, err = p.loadHook(k, spec.Copy(), h, cache); err != nil {
			if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
				return fmt.Errorf("rule %s: load the program for %s: %w (run as root, or with CAP_BPF and CAP_PERFMON)", h.rule, h.hook.Text, err)
			}
			p.fail(h, fmt.Errorf("load the program for %s: %w", h.hook.Text, err))
		}
	}
	return nil
}

func (p *Set) makeScratches(spec *ebpf.CollectionSpec) error {
	if p.scratches != nil {
		return nil
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
	return nil
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
	if err := v.Hook.Set(h.wire); err != nil {
		return nil, err
	}
	c, err := k.LoadShared(spec, map[string]*ebpf.Map{"pair_scratches": p.scratches}, cache)
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
			if h.role != role || p.failed[h.rule] != nil || h.done {
				continue
			}
			h.done = true
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
