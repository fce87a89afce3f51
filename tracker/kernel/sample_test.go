package kernel

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestOnlineCPUs(t *testing.T) {
	list, err := onlineCPUs()
	assert.NilError(t, err)
	highest, err := highestCPU("online")
	assert.NilError(t, err)
	assert.Check(t, list[highest] && !list[highest+1] && len(list) <= highest+1, "%v, up to %d", list, highest)
}
