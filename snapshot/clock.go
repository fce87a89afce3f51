package snapshot

import (
	"time"

	"github.com/tailcam/tailcam/internal/linux"
)

// ReadClock measures the offset between the two clocks now. It changes when
// somebody sets the clock and after a suspend, so nobody should keep it long.
func ReadClock() Clock {
	// The wall clock is read between two reads of the monotonic one; the
	// tightest of a few tries is the least disturbed one.
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

// Wall converts nanoseconds of CLOCK_MONOTONIC into UTC.
func (c Clock) Wall(mono uint64) time.Time {
	return time.Unix(0, int64(mono)+int64(c.WallMinusMono)).UTC()
}
