package snapshot

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestMissed: a snapshot tells of the programs that were skipped in its window, or since the last
// snapshot before that.
func TestMissed(t *testing.T) {
	var total uint64
	m := &missed{total: func() uint64 { return total }}
	for _, c := range []struct{ total, from, now, want uint64 }{
		{7, 50, 100, 7},   // nobody knows when
		{9, 120, 200, 2},  // since the snapshot at 100
		{9, 80, 210, 9},   // its window begins before that
		{12, 205, 300, 3}, // since the one at 200
		{4, 310, 400, 0},  // the programs were loaded anew
		{6, 410, 500, 2},  // and have been skipped since
	} {
		total = c.total
		assert.Check(t, m.since(c.from, c.now) == c.want, "%+v", c)
	}
	for i := range uint64(3 * missedKept) {
		m.since(1000+i, 1000+i)
	}
	assert.Check(t, len(m.at) == missedKept)
	assert.Check(t, (&missed{}).since(1, 2) == 0)
}
