package symbols

import (
	"runtime"
	"testing"

	"gotest.tools/v3/assert"
)

// allocates fails if f allocates more than so many bytes of Go's heap in all,
// also what was given back meanwhile: what is asked of is what the file may
// make its reader do. The tests of this package do not run in parallel.
func allocates(t testing.TB, most int64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	n := int64(after.TotalAlloc - before.TotalAlloc)
	assert.Check(t, n <= most, "allocated %d bytes, more than %d", n, most)
}

// memoryLimit is what all that reads other people's files may take together.
const memoryLimit = 192 << 20

// inMemory fails if Go's heap has grown beyond that. What the collector has not
// come to yet does not count: before is much garbage of other inputs.
func inMemory(t testing.TB) {
	t.Helper()
	var m runtime.MemStats
	inUse := func() uint64 {
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	if inUse() <= memoryLimit {
		return
	}
	runtime.GC()
	n := inUse()
	assert.Check(t, n <= memoryLimit, "%d bytes of heap and stacks are in use, more than %d", n, memoryLimit)
}
