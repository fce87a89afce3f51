package accounts

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
)

// Every value of the ABI is listed at its place, in a group that there is, and each of its
// programs is in the object, in that group or the scheduler's.
func TestValues(t *testing.T) {
	list, err := Values()
	assert.NilError(t, err)
	assert.Equal(t, len(list), abi.ActivityValues)
	spec, err := bpf.LoadActivity()
	assert.NilError(t, err)
	for i := range list {
		v := &list[i]
		assert.Check(t, cmp.Equal(v.Index(), i), v.Name)
		assert.Check(t, slices.Contains(Names(), v.Group), v.Name)
		assert.Check(t, v.Available == (v.Reason == ""), v.Name)
		for _, p := range v.programs {
			assert.Check(t, spec.Programs[p] != nil, "%s: %s", v.Name, p)
			if !slices.Contains(schedulerPrograms, p) {
				assert.Check(t, hookOf(p).in([]string{v.Group, v.Also}), "%s: %s", v.Name, p)
			}
		}
	}
}

// What is listed as a program's hook is where it is attached.
func TestSites(t *testing.T) {
	list, err := List()
	assert.NilError(t, err)
	spec, err := bpf.LoadActivity()
	assert.NilError(t, err)
	for i := range list {
		for _, p := range list[i].Programs {
			if hook, tracepoint := strings.CutPrefix(p.Hook, "tp_btf:"); tracepoint {
				assert.Check(t, cmp.Equal(hook, spec.Programs[p.name].AttachTo), p.name)
			}
		}
	}
}

// What a group does not need is not loaded.
func TestPrepare(t *testing.T) {
	for _, group := range Names() {
		spec, err := bpf.LoadActivity()
		assert.NilError(t, err)
		_, err = Prepare(spec, []string{group})
		assert.NilError(t, err)
		for i := range Hooks {
			h := &Hooks[i]
			assert.Check(t, h.in([]string{group}) || spec.Programs[h.Program] == nil, "%s with group %s", h.Program, group)
		}
		for name, m := range spec.Maps {
			if m.Type == ebpf.LRUHash && m.MaxEntries > 1 {
				assert.Check(t, group != Scheduler && group != Syscalls || name == "io_works", "%s with group %s", name, group)
			}
		}
	}
	assert.Equal(t, Bits(nil), uint32(0))
	assert.Equal(t, Bits([]string{Block, "nonsense"}), uint32(abi.ActivityGroupBlock))
}

func TestMeasure(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	list, err := Measure(context.Background(), 100*time.Millisecond)
	assert.NilError(t, err)
	assert.Equal(t, len(list), len(Names()))
	for i := range list {
		g := &list[i]
		assert.Check(t, (g.Cost != nil) == (len(g.Programs) > 0), g.Group)
		if g.Group == Scheduler {
			assert.Check(t, g.Cost.Events > 0, "no context switch")
		}
	}
}
