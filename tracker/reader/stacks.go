package reader

import (
	"slices"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

// stackGrace is how long an outlier waits for the user stack that the kernel
// side sends later: the task must run on to the end of its system call.
const stackGrace = 20 * time.Millisecond

// pendingStacks holds outliers that wait for their user stack.
type pendingStacks struct {
	waiting []waitingOutlier
}

type waitingOutlier struct {
	*events.Outlier
	until time.Time
}

func (p *pendingStacks) add(o *events.Outlier, until time.Time) {
	p.waiting = append(p.waiting, waitingOutlier{o, until})
}

// resolve gives a stack to every outlier it belongs to, and ends their wait.
func (p *pendingStacks) resolve(tid uint32, exit uint64, stack []uint64) {
	for i := range p.waiting {
		o := &p.waiting[i]
		if o.Task.TID == int(tid) && o.EndMono == exit {
			if len(stack) > 0 {
				o.Raw.User = stack
			}
			o.until = time.Time{}
		}
	}
}

// next hands out the first outlier whose wait has ended.
func (p *pendingStacks) next(now time.Time) *events.Outlier {
	for i, o := range p.waiting {
		if now.After(o.until) {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			return o.Outlier
		}
	}
	return nil
}

// deadline is when the next wait ends; zero: none.
func (p *pendingStacks) deadline() time.Time {
	var first time.Time
	for _, o := range p.waiting {
		if first.IsZero() || o.until.Before(first) {
			first = o.until
		}
	}
	return first
}
