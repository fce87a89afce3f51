package daemon

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/snapshot/flight"
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
		{"an idle machine gets recorder.size", "mmap", flight.Bytes("mmap", 10, 0), 4, 2 << 20, false},
		// 2 * 100,000 * 5 s * 64 bytes = 64 MB, of a ring that holds 15/16 of its size.
		{"twice the rate", "mmap", flight.Bytes("mmap", 100_000, 0), 4, 128 << 20, false},
		{"a pair takes as much as a record", "mmap", flight.Bytes("mmap", 50_000, 50_000), 4, 128 << 20, false},
		// 80 bytes, and one of two banks: 160 MB.
		{"perf rings hold less", "perf", flight.Bytes("perf", 100_000, 0), 1, 256 << 20, false},
		// 96 bytes a pair: 66 MB, which half of 128 MiB holds, and 68 MB, which it does not.
		{"as many pairs as fit", "perf", flight.Bytes("perf", 0, 69_000), 1, 128 << 20, false},
		{"more pairs than fit", "perf", flight.Bytes("perf", 0, 71_000), 1, 256 << 20, false},
		{"enough for now, if not for twice as much", "mmap", flight.Bytes("mmap", 150_000, 0), 8, 64 << 20, false},
		{"not enough", "mmap", flight.Bytes("mmap", 300_000, 0), 8, 64 << 20, true},
	} {
		r := &config.Recorder{Backend: tc.backend, Size: 2 << 20, Cover: 5 * time.Second, MaxMemory: 512 << 20}
		size, limited := coverSize(r, tc.rate, tc.cpus)
		assert.Check(t, size == tc.size && limited == tc.limited,
			"%s: %d MiB, limited %v, want %d, %v", tc.name, size>>20, limited, tc.size>>20, tc.limited)
	}
}
