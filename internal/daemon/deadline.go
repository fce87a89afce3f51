package daemon

import (
	"sync"
	"time"
)

const (
	// publishAfter is the deadline of an outlier, counted from its end: it is then
	// published with what is known.
	publishAfter = 200 * time.Millisecond
	// minNamingTime is the time for naming that an outlier gets even if it was read
	// late.
	minNamingTime = 50 * time.Millisecond
	// maxDeadlines bounds the outliers waiting for their deadline. Beyond that the
	// oldest is published early.
	maxDeadlines = 8192
)

// deadlines is a queue of outliers by deadline. Its methods may be called concurrently.
type deadlines struct {
	mu   sync.Mutex
	list []*event
	wake chan struct{} // signaled when the list becomes non-empty
}

// deadline returns the deadline of an outlier. The wall clock may have been set between
// end and read.
func deadline(end, read time.Time) time.Time {
	left := min(max(publishAfter-read.Sub(end), minNamingTime), publishAfter)
	return read.Add(left)
}

// add returns an outlier that must be published now, or nil.
func (d *deadlines) add(e *event) (early *event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, e)
	if len(d.list) > maxDeadlines {
		early = d.popLocked()
	}
	if len(d.list) == 1 {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return early
}

func (d *deadlines) popLocked() *event {
	e := d.list[0]
	d.list[0] = nil
	d.list = d.list[1:]
	return e
}

// next removes and returns the first outlier whose deadline has passed; nil: none
// before wait.
func (d *deadlines) next(now time.Time) (e *event, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.list) > 0 {
		if left := d.list[0].due.Sub(now); left > 0 {
			return nil, left
		}
		if e := d.popLocked(); !e.isPublished() {
			return e, 0
		}
	}
	d.list = nil
	return nil, time.Hour
}

// all empties the queue.
func (d *deadlines) all() []*event {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list
	d.list = nil
	return list
}

func (e *event) isPublished() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.published
}

// publishDeadlines publishes outliers at their deadlines, and the rest when naming has
// ended.
func (p *pipeline) publishDeadlines(named <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(p.publishDue())
		select {
		case <-p.deadlines.wake:
		case <-timer.C:
		case <-named:
			for _, e := range p.deadlines.all() {
				if !e.isPublished() {
					p.publishEvent(e)
				}
			}
			return
		}
	}
}

// publishDue publishes overdue outliers and returns the time until the next deadline.
func (p *pipeline) publishDue() time.Duration {
	for {
		e, wait := p.deadlines.next(p.now())
		if e == nil {
			return wait
		}
		p.publishEvent(e)
	}
}
