package daemon

import (
	"sync"
	"time"
)

const (
	// publishAfter is the deadline: how long after its end an outlier is published with
	// what is known by then.
	publishAfter = 200 * time.Millisecond
	// minNamingTime is what an outlier that was read late has at least to be named.
	minNamingTime = 50 * time.Millisecond
	// maxDeadlines bounds the outliers that wait for their deadline. Beyond it the
	// oldest is published before.
	maxDeadlines = 8192
)

// deadlines holds the outliers whose deadline has not passed, in the order in
// which they were read. Its methods may be called from any goroutine.
type deadlines struct {
	mu   sync.Mutex
	list []*event
	wake chan struct{} // the list is not empty any more
}

// deadline is when an outlier of that end, read then, is told of at the latest.
// The wall clock may have been set in between.
func deadline(end, read time.Time) time.Time {
	left := min(max(publishAfter-read.Sub(end), minNamingTime), publishAfter)
	return read.Add(left)
}

// add returns the outlier that must be told of now, or nil.
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

// next takes out the first outlier whose deadline has passed. nil: there is
// none, and none will be before wait.
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

// all takes out what is there.
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

// publishDeadlines keeps the deadlines until nothing more is named, and then tells of
// those that are left.
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

// publishDue tells of those whose deadline has passed. None will before what it returns.
func (p *pipeline) publishDue() time.Duration {
	for {
		e, wait := p.deadlines.next(p.now())
		if e == nil {
			return wait
		}
		p.publishEvent(e)
	}
}
