package kernel

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
)

func TestPeriodFor(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond:  4 * time.Millisecond, // the shortest that a rule may have
		500 * time.Millisecond: 4 * time.Millisecond,
		time.Second:            7812500 * time.Nanosecond,
		2 * time.Second:        15625 * time.Microsecond, // of the shipped rules
		time.Hour:              16 * time.Millisecond,
	} {
		assert.Check(t, periodFor(uint64(timeout)) == want, "%v: every %v, want %v", timeout, periodFor(uint64(timeout)), want)
	}
	assert.Equal(t, periodFor(abi.Never), mostPeriod)
}
