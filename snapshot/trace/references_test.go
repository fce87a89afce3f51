package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMentions(t *testing.T) {
	b := newBuilder(2, 5_000_000_000)
	b.oneOfEach()
	got := FindReferences([]CPU{{CPU: 2, Records: b.out}, {CPU: 3, Records: b.out}}, syscallName)
	want := References{
		TIDs:      []int{50, 100, 200, 201, 300, 400, 500, 501, 600, 601},
		Files:     map[int][]int{399: {7}},
		Functions: []uint64{0xffffffff81000000, 0xffffffff81234560, 0xffffffff81234570},
		Frames:    []uint64{0xffffffff81234567, 0xffffffff8123456f},
		User:      []UserFrame{{4711, 0x7fff12345678}},
		Devices:   []uint32{254<<20 | 16},
		Scaled:    []int{0},
		Listeners: []Listener{{TID: 601, Port: 8080}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b = newBuilder(2, 5_000_000_000)
	b.syscall(SyscallEntry, 0, 0)
	b.syscall(SyscallExit, 0, 9)
	b.syscall(SyscallExit, 0, -9)
	b.syscall(SyscallExit, 1, 100)
	files := FindReferences([]CPU{{CPU: 2, Records: b.out}}, func(nr int) string { return []string{"dup", "read"}[min(nr, 1)] }).Files
	if diff := cmp.Diff(map[int][]int{399: {7, 9}}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if files := FindReferences([]CPU{{CPU: 2, Records: b.out}}, nil).Files; files != nil {
		t.Errorf("files %v of calls without names", files)
	}
}

func TestReferencesWithout(t *testing.T) {
	r := References{
		TIDs: []int{1, 2, 3}, Files: map[int][]int{7: {3, 4}, 8: {5}}, Functions: []uint64{10, 11}, Frames: []uint64{20},
		User: []UserFrame{{1, 2}, {1, 3}}, Devices: []uint32{5},
	}
	got := r.Without(&References{TIDs: []int{2}, Files: map[int][]int{7: {4}, 8: {5}}, Functions: []uint64{10}, User: []UserFrame{{1, 2}}})
	want := References{
		TIDs: []int{1, 3}, Files: map[int][]int{7: {3}}, Functions: []uint64{11}, Frames: []uint64{20},
		User: []UserFrame{{1, 3}}, Devices: []uint32{5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if rest := r.Without(&r); !rest.Empty() || r.Empty() {
		t.Errorf("%+v is left", rest)
	}
}
