package snapshot

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestMissed: a snapshot tells of the programs that were skipped in its window, or since the last
// look before that.
func TestMissed(t *testing.T) {
	const second = uint64(time.Second)
	var total uint64
	m := &missed{total: func() uint64 { return total }}
	look := func(at, n uint64) {
		total = n
		m.note(at * second)
	}
	check := func(from, want uint64) {
		t.Helper()
		assert.Check(t, m.since(from*second) == want, "since %d: %d, not %d", from, m.since(from*second), want)
	}
	look(100, 7)
	look(101, 8) // too soon
	look(121, 9)
	total = 12
	check(90, 12) // nobody knows what was before
	check(103, 5)
	check(122, 3)
	total = 4 // the programs were loaded anew
	check(122, 0)
	look(142, 4)
	total = 6
	check(143, 2)
	for i := range uint64(3 * missedKept) {
		look(200+20*i, 6)
	}
	assert.Check(t, len(m.at) == missedKept)
	none := &missed{}
	none.note(1)
	assert.Check(t, none.since(1) == 0)
}
