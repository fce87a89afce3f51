package daemon

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker"
)

// TestUsually: snapshots of one second read the histograms once; what could not be read is
// tried again.
func TestUsually(t *testing.T) {
	var u usually
	reads, now := 0, time.Now()
	read := func() *tracker.Histograms {
		if reads++; reads == 1 {
			return nil
		}
		return &tracker.Histograms{}
	}
	assert.Assert(t, u.get(now, read) == nil)
	first := u.get(now, read)
	assert.Assert(t, first != nil)
	for range 100 {
		now = now.Add(9 * time.Millisecond)
		assert.Equal(t, u.get(now, read), first)
	}
	assert.Equal(t, reads, 2)
	u.get(now.Add(time.Second), read)
	assert.Equal(t, reads, 3)
}
