package tracker

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/rules"
)

// hook is one program on one tracepoint or function of the kernel.
type hook struct {
	program    string // in bpf/tailcam.bpf.c
	tracepoint string // its BTF name is btf_trace_<tracepoint>
	trackers   []rules.Track
	groups     []string // of the recorder that have its records
	record     uint16   // type of these, as in bpf/abi/record.h
	function   bool     // it is no tracepoint but the end of a function
	module     string   // of the kernel that may have it
	first      string   // struct that its first argument must point to: others are of another architecture
}

// site is where the program is attached.
func (h *hook) site() string {
	if h.function {
		return "fexit:" + h.tracepoint
	}
	return "tp_btf:" + h.tracepoint
}

// name is where the program is attached.
func (a *attached) name() string {
	if a.where != "" {
		return a.where
	}
	return a.hook.site()
}

// Probe is one hook of the kernel and whether this kernel has it.
type Probe struct {
	Name      string        `json:"name"`     // tp_btf:<tracepoint>
	Trackers  []rules.Track `json:"trackers"` // that need it
	Groups    []string      `json:"groups"`   // of the recorder that record it
	Available bool          `json:"available"`
	Reason    string        `json:"reason,omitempty"` // why not
}

// Probes asks the running kernel's BTF for every hook. It needs no privileges.
func Probes() ([]Probe, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's BTF: %w (tailcam needs a kernel with CONFIG_DEBUG_INFO_BTF)", err)
	}
	probes := make([]Probe, 0, len(hooks))
	for _, h := range hooks {
		p := Probe{Name: h.site(), Trackers: h.trackers, Groups: h.groups, Available: true}
		if err := h.probe(kernel); err != nil {
			p.Available, p.Reason = false, err.Error()
		}
		probes = append(probes, p)
	}
	return append(probes, pairProbes()...), nil
}

// probe tells why this kernel cannot serve the hook; nil: it can.
func (h *hook) probe(kernel *btf.Spec) error {
	if h.function {
		return h.probeFunction(kernel)
	}
	var t *btf.Typedef
	err := kernel.TypeByName("btf_trace_"+h.tracepoint, &t)
	if errors.Is(err, btf.ErrNotFound) && h.module != "" {
		module, failed := btf.LoadKernelModuleSpec(h.module)
		if failed != nil {
			return fmt.Errorf("this kernel has no tracepoint %s, and no module %s is loaded", h.tracepoint, h.module)
		}
		err = module.TypeByName("btf_trace_"+h.tracepoint, &t)
	}
	if errors.Is(err, btf.ErrNotFound) {
		return fmt.Errorf("this kernel has no tracepoint %s", h.tracepoint)
	}
	if err != nil || h.first == "" {
		return err
	}
	if pointer, ok := t.Type.(*btf.Pointer); ok {
		if proto, ok := pointer.Target.(*btf.FuncProto); ok && len(proto.Params) > 1 && pointsTo(proto.Params[1].Type, h.first) {
			return nil
		}
	}
	return fmt.Errorf("tracepoint %s has other arguments here: struct %s is not the first", h.tracepoint, h.first)
}

func pointsTo(t btf.Type, name string) bool {
	pointer, ok := t.(*btf.Pointer)
	if !ok {
		return false
	}
	s, ok := pointer.Target.(*btf.Struct)
	return ok && s.Name == name
}

func (h *hook) probeFunction(kernel *btf.Spec) error {
	var f *btf.Func
	err := kernel.TypeByName(h.tracepoint, &f)
	if errors.Is(err, btf.ErrNotFound) {
		return fmt.Errorf("this kernel has no function %s that can be traced", h.tracepoint)
	}
	if err != nil {
		return err
	}
	if err := canTrace(); err != nil {
		return fmt.Errorf("fexit of %s: %w", h.tracepoint, err)
	}
	return nil
}

// attach attaches the program to its hook. Needs kernel 5.5+.
func (h *hook) attach(p *ebpf.Program) (link.Link, error) {
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", h.site(), err)
	}
	return l, nil
}
