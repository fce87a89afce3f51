package kernel

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/btf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// TestLimitedIn: each kind of slot that has a deadline has the start of its work
// before it, and one deadline for each piece of work that it may hold.
func TestLimitedIn(t *testing.T) {
	spec, err := bpf.LoadTailcam()
	assert.NilError(t, err)
	var s specs
	assert.NilError(t, spec.Assign(&s))
	want := [abi.Tables]int{abi.TableTasks: 2, abi.TableCalls: 1, abi.TableRequests: 1, abi.TablePairs: 1, abi.TableSpans: 1, abi.TableWorks: 1}
	check := func(name string, slot btf.Type, n int) {
		size, err := btf.Sizeof(slot)
		assert.NilError(t, err)
		list := limitedIn(slot, 0)
		assert.Check(t, is.Len(list, n), "%s", name)
		for _, l := range list {
			assert.Check(t, l.start+8 <= l.deadline && int(l.deadline)+32 <= size, "%s of %d bytes: %+v", name, size, l)
		}
	}
	for i := range kinds.Tables {
		_, slots := kinds.Tables[i].Specs(&s.TailcamMapSpecs)
		check(kinds.Tables[i].Name, slots.Value, want[i])
	}
	check("interrupts", s.Interrupts.Value, 4+4+16) // nested handlers, nested softirqs, raised vectors
}

func TestStuckIn(t *testing.T) {
	word := func(words ...uint64) (b []byte) {
		for _, w := range words {
			b = binary.NativeEndian.AppendUint64(b, w)
		}
		return b
	}
	list := []limited{{start: 0, deadline: 8}}
	for _, test := range []struct {
		name string
		slot []byte
		want []int // ids
	}{
		{"free", word(0, 0, 3), nil},
		{"in time", word(7, 7, 0), nil},
		{"two rules", word(7, 7, 1<<63|1<<2), []int{2, 63}},
		{"of the work before it", word(8, 7, 1), nil},
	} {
		var got, want [abi.MaxRules]int
		for _, id := range test.want {
			want[id]++
		}
		stuckIn(test.slot, list, &got)
		assert.Check(t, is.DeepEqual(want, got), test.name)
	}
}
