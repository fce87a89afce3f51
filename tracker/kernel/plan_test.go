package kernel

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// kernelWith makes the types of a kernel that has no tracepoint but these,
// with arguments of any kind.
func kernelWith(t *testing.T, tracepoints ...string) *btf.Spec {
	t.Helper()
	var list []btf.Type
	for _, name := range tracepoints {
		proto := &btf.FuncProto{Return: (*btf.Void)(nil), Params: []btf.FuncParam{
			{Type: &btf.Pointer{Target: (*btf.Void)(nil)}}, {Type: &btf.Pointer{Target: &btf.Int{Name: "int", Size: 4}}},
		}}
		list = append(list, &btf.Typedef{Name: "btf_trace_" + name, Type: &btf.Pointer{Target: proto}})
	}
	b, err := btf.NewBuilder(list, nil)
	assert.NilError(t, err)
	raw, err := b.Marshal(nil, nil)
	assert.NilError(t, err)
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	assert.NilError(t, err)
	return spec
}

// TestMissingHooks takes tracepoints away from a kernel: a group goes on with
// what is left, is absent without any, and a tracker needs all of its own.
func TestMissingHooks(t *testing.T) {
	kernel := kernelWith(t, "contention_begin", "sched_waking", "kvm_entry")
	p, served, inactive, err := NewPlan([]rules.Rule{{Name: "r", Track: rules.Wakeup}},
		[]string{"lock", "net", "sched", "throttle", "kvm"}, kernel)
	assert.NilError(t, err)
	assert.Check(t, len(served) == 0 && inactive["r"] != nil, "served %v, inactive %v", served, inactive)
	for group, want := range map[string]bool{"lock": true, "sched": true, "net": false, "throttle": false, "kvm": false} {
		assert.Check(t, is.Equal(p.Groups[group], want), "group %s", group)
	}
	for site, want := range map[string]string{
		"tp_btf:contention_end":  "this kernel has no tracepoint contention_end",
		"tp_btf:napi_poll":       "this kernel has no tracepoint napi_poll",
		"fexit:throttle_cfs_rq":  "this kernel has no function throttle_cfs_rq that can be traced",
		"tp_btf:kvm_entry":       "tracepoint kvm_entry has other arguments here: struct kvm_vcpu is not the first",
		"tp_btf:sched_switch":    "this kernel has no tracepoint sched_switch",
		"tp_btf:page_fault_user": "", // nobody asked for it
	} {
		got := ""
		if why := p.Unrecorded[site]; why != nil {
			got = why.Error()
		}
		assert.Check(t, is.Equal(got, want), "%s", site)
	}
	_, _, _, err = NewPlan(nil, []string{"locks"}, kernel)
	assert.Check(t, err != nil, "a group that does not exist is taken")
}

func TestPlan(t *testing.T) {
	p := &Plan{Tracks: map[rules.Track]bool{rules.Wakeup: true}, Groups: map[string]bool{}, wakerStacksAlways: true}
	for _, tc := range []struct {
		q    Plan
		want bool
	}{
		{Plan{Tracks: map[rules.Track]bool{rules.Wakeup: true}}, true},
		{Plan{Tracks: map[rules.Track]bool{rules.Block: true}}, false},
		{Plan{userStacksLater: true}, false},
		{Plan{wakerStacksSlow: true}, true}, // the running side takes more than that
	} {
		got := p.Covers(&tc.q)
		assert.Check(t, got == tc.want, "covers %+v: %t", tc.q, got)
	}
}

// TestProgramNames: programs that are found by their name are there.
func TestProgramNames(t *testing.T) {
	spec, err := bpf.LoadTailcam()
	assert.NilError(t, err)
	names := []string{tickProgram, stackProgram, "sched_switch", "sys_exit", "softirq_raise"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Calls]()) {
		names = append(names, f.Tag.Get("ebpf"))
	}
	for _, name := range names {
		assert.Check(t, spec.Programs[name] != nil, "the kernel side has no program %q", name)
	}
}
