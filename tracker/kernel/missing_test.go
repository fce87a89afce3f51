package kernel

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// without makes the types of this kernel less what a hook is found by.
func without(t *testing.T, kernel *btf.Spec, h *kinds.Hook) *btf.Spec {
	t.Helper()
	kernel = kernel.Copy()
	if h.Function {
		var f *btf.Func
		if kernel.TypeByName(h.Tracepoint, &f) == nil {
			f.Name = "absent"
		}
		return kernel
	}
	var tp *btf.Typedef
	if kernel.TypeByName("btf_trace_"+h.Tracepoint, &tp) == nil {
		tp.Name = "absent"
	}
	return kernel
}

// TestAnyHookMissing takes each hook away from this kernel, one at a time: its program is
// not loaded, whatever depended on it is named with the reason, and the other rules run.
func TestAnyHookMissing(t *testing.T) {
	kernel, err := LoadBTF()
	assert.NilError(t, err)
	list := []rules.Rule{{Name: "timeout", Track: rules.Block, Timeout: 1}}
	for _, track := range rules.Tracks {
		list = append(list, rules.Rule{Name: string(track), Track: track, Attach: rules.AttachAll})
	}
	list = append(list, rules.Rule{
		Name: "progress", Track: rules.Syscall, Attach: rules.AttachAll, Stacks: []rules.Stack{rules.ProgressStacks},
	}, rules.Rule{Name: "to-user", Track: rules.Chain, When: rules.Match{Ends: []rules.End{rules.ToUser}}})
	special := map[string]string{tickProgram: "timeout", "sched_switch": "progress", "sys_exit": "to-user"}
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		if h.Part || h.Clock || h.Skipped != "" {
			continue // it has no hook of its own, or none in the kernel's types
		}
		t.Run(h.Program, func(t *testing.T) {
			p, served, inactive, err := NewPlan(list, kinds.Groups, without(t, kernel, h))
			assert.NilError(t, err)
			assert.Check(t, p.Unrecorded[h.Site()] != nil || len(h.Groups) == 0, "%s is missing, and nobody says so", h.Site())
			has := func(name string) bool {
				return slices.ContainsFunc(served, func(r rules.Rule) bool { return r.Name == name })
			}
			dependent := h.Trackers()
			for _, r := range list {
				needs := slices.Contains(dependent, r.Track) || special[h.Program] == r.Name
				assert.Check(t, has(r.Name) != needs && (inactive[r.Name] != nil) == needs,
					"rule %s: served %t, inactive: %v", r.Name, has(r.Name), inactive[r.Name])
			}
			spec, err := bpf.LoadTailcam()
			assert.NilError(t, err)
			var s specs
			assert.NilError(t, spec.Assign(&s))
			p.preempted = true
			assert.NilError(t, p.configure(spec, &s.TailcamVariableSpecs))
			for _, of := range kinds.Hooks {
				if of.Program == h.Program || of.Skipped == h.Program {
					assert.Check(t, spec.Programs[of.Program] == nil, "program %s would be loaded", of.Program)
				}
			}
		})
	}
}
