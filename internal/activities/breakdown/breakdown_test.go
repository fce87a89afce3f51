package breakdown

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestWords(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		name    string
		elapsed uint64
		live    bool
		v       Values
		want    string
	}{
		{"checkout", 312 * ms, false, Values{"wall_ns": 312 * ms, "blocked_disk_ns": 280 * ms, "runnable_ns": 20 * ms, "cpu_ns": 12 * ms},
			"checkout took 312ms: 280ms blocked on disk, 20.0ms waiting for a CPU, 12.0ms on CPU; nothing unexplained"},
		{"", 10 * ms, true, Values{"wall_ns": 4 * ms, "cpu_ns": 4 * ms},
			"an activity has taken 10.0ms: 4.00ms on CPU; nothing unexplained; 6.00ms carried by no thread"},
		{"two", 10 * ms, false, Values{"wall_ns": 20 * ms, "cpu_ns": 14 * ms, "unexplained_ns": 6 * ms},
			"two took 10.0ms: 14.0ms on CPU; 6.00ms unexplained; 20.0ms in several threads"},
		{"\x1b[2J", 5, false, nil, `\x1b[2J took 5ns, and no thread has carried it`},
	} {
		assert.Equal(t, Words(c.name, c.elapsed, c.live, c.v), c.want)
	}
}
