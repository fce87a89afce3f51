package pair

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// Load loads a program for each hook that has none, or one of another load, with the maps
// and live variables of the main object. The error is a *kernel.TakeoverError if a hook that
// was taken over cannot go on.
func (p *Set) Load(k *kernel.Objects) error {
	if len(p.hooks) == 0 {
		return nil
	}
	k.UsePairs()
	if err := p.prepare(k); err != nil {
		return err
	}
	wanted := func(h *hookProgram) bool { return (h.jump == nil || h.stale) && p.failed[h.rule] == nil }
	return p.each(k, wanted, func(h *hookProgram, err error) error {
		if h.stale {
			return &kernel.TakeoverError{Err: fmt.Errorf("rule %s: load the program for %s: %w", h.rule, h.hook.Text, err)}
		}
		if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
			return fmt.Errorf("rule %s: load the program for %s: %w (run as root, or with CAP_BPF and CAP_PERFMON)", h.rule, h.hook.Text, err)
		}
		p.fail(h, fmt.Errorf("load the program for %s: %w", h.hook.Text, err))
		return nil
	})
}

// Renew loads the programs again, for what the main object is loaded for now. Their hooks
// stay, and each event of them is seen by one of the two.
func (p *Set) Renew(k *kernel.Objects) error {
	return p.each(k, func(h *hookProgram) bool { return h.jump != nil }, func(h *hookProgram, err error) error {
		return fmt.Errorf("rule %s: load the program for %s: %w", h.rule, h.hook.Text, err)
	})
}

// each loads the programs of some hooks. failed is told of those that cannot be.
func (p *Set) each(k *kernel.Objects, wanted func(*hookProgram) bool, failed func(*hookProgram, error) error) error {
	if !slices.ContainsFunc(p.hooks, wanted) {
		return nil
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
		if !wanted(h) {
			continue
		}
		if err := p.loadHook(k, spec.Copy(), h, cache); err != nil {
			if err := failed(h, err); err != nil {
				return err
			}
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

// loadHook loads the template of a hook with its constants, and has the hook jump there.
func (p *Set) loadHook(k *kernel.Objects, spec *ebpf.CollectionSpec, h *hookProgram, cache *btf.Cache) error {
	var v bpf.PairVariableSpecs
	if err := spec.Assign(&v); err != nil {
		return err
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
		return err
	}
	c, err := k.LoadShared(spec, map[string]*ebpf.Map{"pair_scratches": p.scratches}, cache)
	if err != nil {
		return err
	}
	defer c.Close()
	if h.jump == nil {
		if h.jump, err = kernel.NewJump(program); err != nil {
			return err
		}
	}
	if err := h.jump.To(c.Programs[h.site.template]); err != nil {
		return err
	}
	h.stale = false
	return nil
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
			if h.pin == "" {
				p.pinRule(h.rule, k)
			}
			l, err := h.site.attach(h.jump.Program)
			if err != nil {
				p.fail(h, fmt.Errorf("attach to %s: %w", h.hook.Text, err))
				if err := k.DetachRule(h.rule); err != nil {
					return err
				}
				continue
			}
			if h.pin != "" {
				l = k.PinHook(h.pin, h.jump, l)
			}
			k.AddLink(h.attachment(l))
		}
	}
	return nil
}

func (p *hookProgram) attachment(l link.Link) kernel.Attachment {
	return kernel.Attachment{Program: p.name(), Hook: p.hook.Text, Rule: p.rule, Link: l, Loaded: p.jump.Program}
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
		if h.jump != nil {
			_ = h.jump.Close() // nothing is lost with it
		}
	}
	if p.scratches != nil {
		_ = p.scratches.Close()
	}
}
