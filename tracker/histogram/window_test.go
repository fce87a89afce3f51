package histogram

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestWindow: what is older than the window has left it, and its parts are few.
func TestWindow(t *testing.T) {
	w := Window{Length: 30 * time.Second, Part: 3 * time.Second}
	now := time.Now()
	for i := range 1000 {
		var one Histogram
		one.Add(uint64(i), 1)
		now = now.Add(time.Second)
		w.Add(now, &one)
		n := w.Sum().Count
		assert.Assert(t, n >= uint64(min(i+1, 28)) && n <= uint64(min(i+1, 33)), "after %d: %d", i, n)
	}
	assert.Check(t, len(w.parts) <= 12, "%d parts", len(w.parts))
	w.Add(now.Add(time.Hour), &Histogram{})
	assert.Check(t, w.Sum().Count == 0 && len(w.parts) == 1)
}
