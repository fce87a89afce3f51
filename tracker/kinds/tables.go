package kinds

import (
	"math/bits"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

// Table is a pending table of the kernel side.
type Table struct {
	Name  string // as in the configuration
	Specs func(*bpf.TailcamMapSpecs) (keys, slots *ebpf.MapSpec)
	Mask  func(*bpf.TailcamVariableSpecs) *ebpf.VariableSpec // buckets of the first segment less one
	// Maps are those of the first segment, and the map of the slots of the
	// others; nil: it does not grow.
	Maps func(*bpf.TailcamMaps) (keys, slots, moreSlots *ebpf.Map)
}

// Tables are in the order of the kernel side's (enum table_kind).
var Tables = [abi.Tables]Table{
	{
		Name:  "tasks",
		Specs: func(m *bpf.TailcamMapSpecs) (keys, slots *ebpf.MapSpec) { return m.TaskKeys, m.TaskSlots },
		Mask:  func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.TaskMask },
		Maps: func(m *bpf.TailcamMaps) (keys, slots, moreSlots *ebpf.Map) {
			return m.TaskKeys, m.TaskSlots, m.MoreTaskSlots
		},
	},
	{
		Name:  "syscalls",
		Specs: func(m *bpf.TailcamMapSpecs) (keys, slots *ebpf.MapSpec) { return m.CallKeys, m.CallSlots },
		Mask:  func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.CallMask },
		Maps: func(m *bpf.TailcamMaps) (keys, slots, moreSlots *ebpf.Map) {
			return m.CallKeys, m.CallSlots, m.MoreCallSlots
		},
	},
	{
		Name:  "block",
		Specs: func(m *bpf.TailcamMapSpecs) (keys, slots *ebpf.MapSpec) { return m.RequestKeys, m.RequestSlots },
		Mask:  func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.RequestMask },
		Maps: func(m *bpf.TailcamMaps) (keys, slots, moreSlots *ebpf.Map) {
			return m.RequestKeys, m.RequestSlots, m.MoreRequestSlots
		},
	},
	{
		Name:  "pairs",
		Specs: func(m *bpf.TailcamMapSpecs) (keys, slots *ebpf.MapSpec) { return m.PairKeys, m.PairSlots },
		Mask:  func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.PairMask },
		Maps:  func(m *bpf.TailcamMaps) (keys, slots, moreSlots *ebpf.Map) { return m.PairKeys, m.PairSlots, nil },
	},
	{
		Name:  "spans",
		Specs: func(m *bpf.TailcamMapSpecs) (keys, slots *ebpf.MapSpec) { return m.SpanKeys, m.SpanSlots },
		Mask:  func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.SpanMask },
		Maps:  func(m *bpf.TailcamMaps) (keys, slots, moreSlots *ebpf.Map) { return m.SpanKeys, m.SpanSlots, nil },
	},
	{
		Name:  "workqueue",
		Specs: func(m *bpf.TailcamMapSpecs) (keys, slots *ebpf.MapSpec) { return m.WorkKeys, m.WorkSlots },
		Mask:  func(v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec { return v.WorkMask },
		Maps: func(m *bpf.TailcamMaps) (keys, slots, moreSlots *ebpf.Map) {
			return m.WorkKeys, m.WorkSlots, m.MoreWorkSlots
		},
	},
}

// Trackers are those that keep their pending work in the table with this number.
func Trackers(table int) []rules.Track {
	var list []rules.Track
	for i := range All {
		if All[i].Table == &Tables[table] {
			list = append(list, All[i].Track)
		}
	}
	return list
}

// PowerOfTwo rounds up to one, at least 1.
func PowerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
