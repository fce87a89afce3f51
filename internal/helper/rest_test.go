package helper

import (
	"runtime/debug"
	"testing"

	"gotest.tools/v3/assert"
)

// TestRest: Go's collector is off while there is nothing to do, and as it was otherwise.
func TestRest(t *testing.T) {
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	before := percent()
	var r rest
	first, second := r.work(), r.work()
	first()
	r.begin()
	assert.Equal(t, percent(), before, "it rests although it works")
	second()
	r.begin()
	r.begin()
	assert.Equal(t, percent(), -1)
	done := r.work()
	assert.Equal(t, percent(), before)
	done()
	r.begin()
	assert.Equal(t, percent(), before, "it collects again so soon")
	r.last = r.last.Add(-restEvery)
	r.begin()
	assert.Equal(t, percent(), -1)
	r.work()
	assert.Equal(t, percent(), before)
}
