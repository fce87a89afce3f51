package trace

import (
	"encoding/binary"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
)

// TestUnseen: events of a task that no switch has begun, and of those only, are switches that
// were not seen.
func TestUnseen(t *testing.T) {
	event := func(typ Type, tid int, at uint64) Record { return MakeRecord(typ, 0, tid, at) }
	swap := func(at uint64, from, to int) Record {
		r := event(SchedSwitch, from, at)
		binary.LittleEndian.PutUint32(r[abi.OffSwitchNextTid:], uint32(to))
		return r
	}
	exec := func(at uint64, tid, was int) Record {
		r := event(ProcessExec, tid, at)
		binary.LittleEndian.PutUint32(r[abi.OffProcessChildTid:], uint32(was))
		return r
	}
	all := []Interval{{0, 1000}}
	for _, c := range []struct {
		name     string
		records  []Record
		complete []Interval
		want     uint64
	}{
		{"none", nil, all, 0},
		{"all were seen", []Record{event(SchedWaking, 7, 10), swap(20, 7, 0), event(SchedWaking, 0, 30), swap(40, 0, 8), swap(50, 8, 7)}, all, 0},
		{"one is missing", []Record{swap(20, 7, 0), event(SchedWaking, 9, 30), event(SchedWaking, 9, 31), swap(40, 9, 0)}, all, 1},
		{"two are", []Record{swap(20, 7, 0), event(SchedWaking, 9, 30), swap(40, 8, 0)}, all, 2},
		{"one before the first switch is", []Record{event(SchedWaking, 9, 30), swap(40, 8, 0)}, all, 1},
		{"of the time of the switch, by the one that left", []Record{swap(20, 7, 8), event(Steal, 7, 20), swap(30, 8, 7)}, all, 0},
		{"no switches are recorded", []Record{event(SchedWaking, 7, 10), event(SchedWaking, 8, 20)}, all, 0},
		{"a thread takes the id of its process", []Record{swap(20, 0, 9), exec(30, 7, 9), swap(40, 7, 0)}, all, 0},
		{"what is overwritten", []Record{swap(20, 7, 8), swap(40, 9, 0)}, []Interval{{0, 25}, {35, 1000}}, 0},
		{"what is not complete", []Record{swap(20, 7, 8), event(SchedWaking, 9, 30), swap(40, 9, 0)}, []Interval{{0, 25}, {35, 1000}}, 0},
		{"and beside it", []Record{swap(20, 7, 8), swap(40, 9, 0), event(SchedWaking, 9, 50)}, []Interval{{0, 25}, {35, 1000}}, 1},
		{"later than all that is complete", []Record{swap(20, 7, 8), event(SchedWaking, 9, 30)}, []Interval{{0, 25}}, 0},
	} {
		assert.Check(t, Unseen(c.records, c.complete) == c.want, "%s: %d, want %d", c.name, Unseen(c.records, c.complete), c.want)
	}
}
