package private

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestRingSizeIsBounded(t *testing.T) {
	for cpus, want := range map[int]int{1: 4 << 20, 2: 4 << 20, 16: 4 << 20, 17: 2 << 20, 32: 2 << 20, 512: 2 << 20} {
		assert.Check(t, is.Equal(ringSize(cpus), want), "%d CPUs", cpus)
	}
}

func TestTailKeepsTheLastLines(t *testing.T) {
	tail := &Tail{keep: 3}
	log := tail.Logger()
	for i := range 10 {
		log.Info(fmt.Sprintf("line %d", i))
	}
	log.Debug("not shown")
	got := tail.Lines()
	assert.Check(t, len(got) == 3 && strings.HasSuffix(got[0], "INFO  line 7") &&
		strings.HasSuffix(got[2], "INFO  line 9"), "%q", got)
}
