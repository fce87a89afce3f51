package daemon

import (
	"context"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"
)

// Work begins with the stage or when it is replaced, one at a time, and ends with both.
func TestReplaceable(t *testing.T) {
	var r replaceable
	var busy atomic.Int32
	work := func(begun chan<- string, name string) func(context.Context) {
		return func(ctx context.Context) {
			assert.Check(t, busy.Add(1) == 1, "%s begins beside another", name)
			begun <- name
			<-ctx.Done()
			busy.Add(-1)
		}
	}
	begun := make(chan string)
	r.replace(work(begun, "before the stage"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.run(ctx) }()
	assert.Equal(t, <-begun, "before the stage")
	r.replace(work(begun, "another"))
	assert.Equal(t, <-begun, "another")
	r.replace(nil)
	assert.Equal(t, busy.Load(), int32(0))
	r.replace(work(begun, "again"))
	assert.Equal(t, <-begun, "again")
	stop()
	assert.NilError(t, <-ended)
	assert.Equal(t, busy.Load(), int32(0))
	r.replace(work(begun, "after the end")) // does not begin
	assert.Equal(t, busy.Load(), int32(0))
}
