package reader

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// slowDecider waits for a container runtime, for the outliers of some tasks.
type slowDecider struct {
	answered, asked map[uint32]bool
	last            int
}

func (d *slowDecider) Decide(raw *abi.Outlier, last bool) (*events.Outlier, bool) {
	d.asked[raw.Tid] = true
	if last {
		d.last++
		return nil, false
	}
	if answer, slow := d.answered[raw.Tid]; slow && !answer {
		return nil, true
	}
	return (&kinds.Message{Outlier: raw, Rule: &rules.Rule{Track: rules.Wakeup}}).Decode(), false
}

func (*slowDecider) Answer(*abi.Question) {}

// TestHeld: an outlier that waits for a decision delays no other, comes when it is decided,
// and is given up after a while; how many wait is bounded.
func TestHeld(t *testing.T) {
	d := &slowDecider{answered: map[uint32]bool{1: false, 3: false}, asked: map[uint32]bool{}}
	r, released := ready(t), 0
	r.rules, r.release = d, func() { released++ }
	raw := func(tid uint32) []byte {
		return sample(t, &abi.Outlier{Type: abi.OutlierType, Tid: tid, Flags: abi.OutlierSnapshot})
	}
	now := time.Now()
	for tid, want := range map[uint32]bool{1: false, 2: true, 3: false} {
		o, err := r.receive(raw(tid))
		assert.Check(t, err == nil && (o != nil) == want, "task %d: %+v, %v", tid, o, err)
	}
	assert.Check(t, len(r.held.list) == 2 && released == 0 && !r.held.deadline().IsZero())
	assert.Check(t, r.decideHeld(now) == nil, "tried too early")
	assert.Check(t, r.decideHeld(now.Add(time.Second/4)) == nil && len(r.held.list) == 2)
	d.answered[3] = true
	o := r.decideHeld(now.Add(time.Second / 3))
	assert.Check(t, o != nil && o.Task.TID == 3, "%+v", o)
	assert.Check(t, r.decideHeld(now.Add(time.Minute)) == nil && d.last == 1 && released == 1 && len(r.held.list) == 0)
	assert.Check(t, r.held.deadline().IsZero())

	for range 3 * maxHeld {
		_, err := r.receive(raw(1))
		assert.NilError(t, err)
	}
	assert.Check(t, len(r.held.list) == maxHeld && d.last == 1+2*maxHeld, "%d wait", len(r.held.list))
}
