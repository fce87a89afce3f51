package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// Probe is one hook of the kernel, or something else that is needed of it, and whether
// this kernel has it.
type Probe struct {
	Name      string        `json:"name"`     // tp_btf:<tracepoint>
	Trackers  []rules.Track `json:"trackers"` // that need it
	Groups    []string      `json:"groups"`   // of the recorder that record it
	Available bool          `json:"available"`
	Reason    string        `json:"reason,omitempty"` // why not
	// Declared: not one hook but a kind of hooks, which rules may declare.
	Declared bool `json:"declared,omitempty"`
	// Required: nothing can be loaded without it.
	Required bool `json:"required,omitempty"`
}

// required are types of the kernel that it has along with what they stand for.
var required = []struct{ name, of, what string }{
	{"map:ringbuf", "bpf_ringbuf_map", "BPF ring buffer (5.8)"},
	{"iter:task", "bpf_iter__task", "BPF iterator of tasks (5.8)"},
}

// Probes asks the running kernel's BTF for every hook, and for what all need. It needs no
// privileges.
func Probes() ([]Probe, error) {
	kernel, err := LoadBTF()
	if err != nil {
		return nil, err
	}
	probes := make([]Probe, 0, len(kinds.Hooks))
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		if h.Skipped != "" {
			continue // its tracepoint is listed
		}
		p := Probe{Name: h.Site(), Trackers: h.Trackers(), Groups: h.Groups, Available: true}
		if err := probe(h, kernel); err != nil {
			p.Available, p.Reason = false, err.Error()
		}
		probes = append(probes, p)
	}
	for _, r := range required {
		p := Probe{Name: r.name, Available: true, Required: true}
		var t *btf.Struct
		if err := kernel.TypeByName(r.of, &t); err != nil {
			p.Available, p.Reason = false, "this kernel has no "+r.what
		}
		probes = append(probes, p)
	}
	return probes, nil
}

// LoadBTF reads the running kernel's types.
func LoadBTF() (*btf.Spec, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's BTF: %w (tailcam needs a kernel with CONFIG_DEBUG_INFO_BTF)", err)
	}
	return kernel, nil
}

// probe tells why this kernel cannot serve the hook; nil: it can.
func probe(h *kinds.Hook, kernel *btf.Spec) error {
	switch {
	case h.Function:
		return probeFunction(h, kernel)
	case h.Clock:
		return probeClock()
	case h.Variable != "":
		if err := probeVariable(h.Variable, kernel); err != nil {
			return err
		}
	}
	var t *btf.Typedef
	err := kernel.TypeByName("btf_trace_"+h.Tracepoint, &t)
	if errors.Is(err, btf.ErrNotFound) && h.Module != "" {
		module, failed := btf.LoadKernelModuleSpec(h.Module)
		if failed != nil {
			return fmt.Errorf("this kernel has no tracepoint %s, and no module %s is loaded", h.Tracepoint, h.Module)
		}
		err = module.TypeByName("btf_trace_"+h.Tracepoint, &t)
	}
	if errors.Is(err, btf.ErrNotFound) {
		return fmt.Errorf("this kernel has no tracepoint %s", h.Tracepoint)
	}
	if err != nil || h.First == "" {
		return err
	}
	if pointer, ok := t.Type.(*btf.Pointer); ok {
		if proto, ok := pointer.Target.(*btf.FuncProto); ok && len(proto.Params) > 1 && pointsTo(proto.Params[1].Type, h.First) {
			return nil
		}
	}
	return fmt.Errorf("tracepoint %s has other arguments here: struct %s is not the first", h.Tracepoint, h.First)
}

func pointsTo(t btf.Type, name string) bool {
	pointer, ok := t.(*btf.Pointer)
	if !ok {
		return false
	}
	s, ok := pointer.Target.(*btf.Struct)
	return ok && s.Name == name
}

func probeFunction(h *kinds.Hook, kernel *btf.Spec) error {
	var f *btf.Func
	err := kernel.TypeByName(h.Tracepoint, &f)
	if errors.Is(err, btf.ErrNotFound) {
		return fmt.Errorf("this kernel has no function %s that can be traced", h.Tracepoint)
	}
	if err != nil {
		return err
	}
	if err := CanTrace(); err != nil {
		return fmt.Errorf("fexit of %s: %w", h.Tracepoint, err)
	}
	return nil
}

// attach attaches to a hook what jumps into its program. Needs kernel 5.5+.
func attach(h *kinds.Hook, j *Jump) (Attachment, error) {
	var l link.Link
	var err error
	if h.Clock {
		l, err = attachClocks(j.Program)
	} else {
		l, err = link.AttachTracing(link.TracingOptions{Program: j.Program})
	}
	if err != nil {
		return Attachment{}, fmt.Errorf("attach to %s: %w", h.Site(), err)
	}
	return Attachment{Program: h.Program, Hook: h.Site(), Link: l, Loaded: j.Program}, nil
}
