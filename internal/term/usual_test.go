package term

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/events"
)

func TestUsual(t *testing.T) {
	o := events.Outlier{DelayNS: 240_000_000, Track: "syscall"}
	assert.Check(t, is.Equal(Usual(&o), ""))
	o.Usual = &events.Usual{Of: "rule", Count: 312, MedianNS: 1_900_000, P99NS: 4_000_000}
	assert.Check(t, is.Equal(Usual(&o), "1.90ms at the median, 4.00ms at the 99th percentile of 312 delays of this rule; this is 126 times the median"))
	o.Usual = &events.Usual{Of: "tracker", Count: 1, MedianNS: 240_000_000, P99NS: 240_000_000}
	assert.Check(t, is.Equal(Usual(&o), "240ms at the median, 240ms at the 99th percentile of 1 delays of track syscall on this machine"))
}
