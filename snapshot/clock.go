package snapshot

import (
	"time"

	"github.com/tailcam/tailcam/internal/linux"
)

// ReadClock measures the current offset between CLOCK_REALTIME and CLOCK_MONOTONIC. It
// changes when the clock is set and after a suspend, so do not cache it.
func ReadClock() Clock {
	// Read the wall clock between two reads of the monotonic clock and keep the try
	// with the smallest error.
	best := Clock{}
	var width int64 = 1 << 62
	for range 3 {
		before := linux.Monotonic()
		wall := time.Now().UnixNano()
		after := linux.Monotonic()
		if w := int64(after - before); w < width {
			width = w
			best.WallMinusMono = time.Duration(wall - int64(before) - w/2)
		}
	}
	return best
}

// Wall converts nanoseconds of CLOCK_MONOTONIC to UTC.
func (c Clock) Wall(mono uint64) time.Time {
	return time.Unix(0, int64(mono)+int64(c.WallMinusMono)).UTC()
}
