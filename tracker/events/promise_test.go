package events

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestPromise: what is kept is the first value, until it is forgotten; what comes later is not kept.
func TestPromise(t *testing.T) {
	p := NewPromise[StackCopy]()
	assert.Check(t, !p.IsKnown() && p.Wait(time.Millisecond).Data == nil)
	p.Fill(StackCopy{Base: 1, Data: []byte{2}})
	p.Fill(StackCopy{Base: 3})
	assert.Check(t, p.IsKnown() && len(p.Wait(time.Second).Data) == 1)
	p.Forget()
	assert.Check(t, p.IsKnown() && p.Wait(time.Second).Data == nil)

	late := NewPromise[StackCopy]()
	late.Forget()
	late.Fill(StackCopy{Data: []byte{2}})
	assert.Check(t, late.IsKnown() && late.Wait(time.Second).Data == nil)
	var none *Promise[StackCopy]
	none.Forget()
}
