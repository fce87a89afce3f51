package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMentions(t *testing.T) {
	b := newBuilder(2, 5_000_000_000)
	b.oneOfEach()
	got := Mentions([]CPU{{CPU: 2, Records: b.out}, {CPU: 3, Records: b.out}})
	want := Mentioned{
		TIDs:      []int{50, 100, 200, 201, 300, 400, 500, 501, 600, 601},
		Callers:   []int{399},
		Functions: []uint64{0xffffffff81000000, 0xffffffff81234560, 0xffffffff81234570},
		Devices:   []uint32{254<<20 | 16},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
