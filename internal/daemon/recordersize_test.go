package daemon

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/config"
)

func TestCoverSize(t *testing.T) {
	for _, tc := range []struct {
		name    string
		backend string
		rate    float64
		cpus    int
		size    int
		limited bool
	}{
		{"an idle machine gets recorder.size", "mmap", 10, 4, 2 << 20, false},
		// 2 * 100,000 * 5 s * 64 bytes = 64 MB, of a ring that holds 15/16 of its size.
		{"twice the rate", "mmap", 100_000, 4, 128 << 20, false},
		// 80 bytes, and one of two banks: 160 MB.
		{"perf rings hold less", "perf", 100_000, 1, 256 << 20, false},
		{"enough for now, if not for twice as much", "mmap", 150_000, 8, 64 << 20, false},
		{"not enough", "mmap", 300_000, 8, 64 << 20, true},
	} {
		r := &config.Recorder{Backend: tc.backend, Size: 2 << 20, Cover: 5 * time.Second, MaxMemory: 512 << 20}
		size, limited := coverSize(r, tc.rate, tc.cpus)
		assert.Check(t, size == tc.size && limited == tc.limited,
			"%s: %d MiB, limited %v, want %d, %v", tc.name, size>>20, limited, tc.size>>20, tc.limited)
	}
}
