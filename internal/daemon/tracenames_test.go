package daemon

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestInOrder: what matters most comes first, as far as the trace has it, and each task once.
func TestInOrder(t *testing.T) {
	assert.DeepEqual(t, inOrder([]int{7, 9, 3, 7, 0}, []int{1, 3, 5, 7}), []int{7, 3, 1, 5})
	assert.DeepEqual(t, inOrder(nil, []int{1, 3}), []int{1, 3})
}
