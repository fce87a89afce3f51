package daemon

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestParseSoftirqs(t *testing.T) {
	const text = "                    CPU0       CPU1\n          HI:          1          0\n       TIMER:      38031      41002\n" +
		"      NET_RX:        500         20\n         RCU:\n"
	assert.Check(t, is.DeepEqual([]uint64{38532, 41022}, parseSoftirqs([]byte(text))))
	assert.Check(t, is.Len(parseSoftirqs(nil), 0))
	assert.Check(t, is.DeepEqual([]uint64{0, 7}, parseSoftirqs([]byte("HI: x 7\n"))))

	kernel, err := os.ReadFile("/proc/softirqs")
	assert.NilError(t, err)
	counts := parseSoftirqs(kernel)
	assert.Check(t, len(counts) > 0 && counts[0] > 0, "%v of\n%s", counts, kernel)
}
