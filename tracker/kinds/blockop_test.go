package kinds

import (
	"testing"
)

func TestRWBS(t *testing.T) {
	for _, tc := range []struct {
		flags uint32
		want  string
	}{
		{0, "R"}, {1 | 1<<11, "WS"}, {1 | 1<<18 | 1<<17 | 1<<11, "FWFS"}, {2, "F"}, {3, "D"}, {5, "DE"}, {0 | 1<<19 | 1<<12, "RAM"}, {34, "N"},
	} {
		if got := rwbs(tc.flags); got != tc.want {
			t.Errorf("flags %#x: %s, want %s", tc.flags, got, tc.want)
		}
	}
}
