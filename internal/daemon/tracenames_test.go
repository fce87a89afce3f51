package daemon

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestInOrder: what matters most comes first, as far as the trace has it, and each task once.
func TestInOrder(t *testing.T) {
	assert.DeepEqual(t, inOrder([]int{7, 9, 3, 7, 0}, []int{1, 3, 5, 7}), []int{7, 3, 1, 5})
	assert.DeepEqual(t, inOrder(nil, []int{1, 3}), []int{1, 3})
}

// TestNamesLimits: on an overloaded machine all lookups share one limit, of which the last ones
// have a little in any case.
func TestNamesLimits(t *testing.T) {
	calm := calmly()
	assert.Equal(t, calm.of(time.Hour), time.Hour)
	busy := raised()
	left := busy.of(time.Hour)
	assert.Check(t, left > leastTimeout && left <= boostNamesTimeout, "%s", left)
	assert.Equal(t, busy.of(time.Microsecond), time.Microsecond)
	busy.end = time.Now()
	assert.Equal(t, busy.of(time.Hour), leastTimeout)
}
