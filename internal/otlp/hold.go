package otlp

import (
	"sync"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

const (
	// maxHeld is how many outliers may wait for their explanation; beyond that the
	// oldest is sent without.
	maxHeld = 1024
	// verdictTime is how long an outlier waits to be complete and explained.
	verdictTime = 15 * time.Second
)

// hold keeps outliers until all is known of them, so that most are sent once. What
// becomes known later is sent again, with the same id. Its methods may be called
// concurrently.
type hold struct {
	send    func(*events.Outlier) // must not block
	changed func()                // something is held, or is held otherwise; must not block
	now     func() time.Time

	mu    sync.Mutex
	by    map[string]*held // by the id of the outlier
	order []*held          // by due; those that are no longer in by were sent
}

type held struct {
	outlier   *events.Outlier
	due       time.Time
	published bool // Publish was called
}

func newHold(send func(*events.Outlier), changed func(), now func() time.Time) *hold {
	return &hold{send: send, changed: changed, now: now, by: map[string]*held{}}
}

// list returns what is held, oldest first.
func (h *hold) list() (all []*events.Outlier) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.order {
		if h.by[e.outlier.ID] == e {
			all = append(all, e.outlier)
		}
	}
	return all
}

// publish takes an outlier that is published for the first time.
func (h *hold) publish(o *events.Outlier) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.by[o.ID]; e != nil { // it is explained already, and that is complete
		e.outlier.Completed = false
		h.releaseLocked(e)
		return
	}
	if !o.Partial && o.Snapshot == nil {
		h.send(o)
		return
	}
	h.addLocked(&held{outlier: o, published: true})
}

// complete takes the complete version of an outlier that was published as partial.
func (h *hold) complete(o *events.Outlier) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.by[o.ID]
	if e == nil {
		h.send(o)
		return
	}
	whole := *o
	whole.Completed = false // the partial one was not sent
	e.outlier = &whole
	if o.Snapshot == nil {
		h.releaseLocked(e)
	}
	h.changed()
}

// explain takes the outliers of a snapshot that is complete, or has failed: then they
// have neither snapshot nor verdict.
func (h *hold) explain(outliers []events.Outlier, failed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range outliers {
		o := outliers[i]
		e := h.by[o.ID]
		switch {
		case e != nil && e.published:
			whole := *e.outlier
			if whole.Partial && !o.Partial {
				whole = o
			}
			whole.Explained = o.Explained
			if failed {
				whole.Snapshot = nil
			}
			e.outlier = &whole
			h.releaseLocked(e)
		case o.Explained != nil && e == nil: // not published yet, or sent without
			o.Completed = true
			h.addLocked(&held{outlier: &o})
		}
	}
}

func (h *hold) addLocked(e *held) {
	e.due = h.now().Add(verdictTime)
	if !e.published {
		e.due = h.now().Add(time.Second) // publication has a deadline as well
	}
	h.by[e.outlier.ID] = e
	h.order = append(h.order, e)
	h.changed()
	if len(h.by) > maxHeld {
		h.expireLocked(func(*held) bool { return len(h.by) > maxHeld })
	}
}

func (h *hold) releaseLocked(e *held) {
	delete(h.by, e.outlier.ID)
	h.send(e.outlier)
}

func (h *hold) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.by)
}

// expire sends what has waited long enough, or all.
func (h *hold) expire(all bool) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expireLocked(func(e *held) bool { return all || !e.due.After(now) })
}

// expireLocked goes on as long as the oldest one is due, and forgets those that were sent.
func (h *hold) expireLocked(due func(*held) bool) {
	kept := h.order[:0]
	for _, e := range h.order {
		if h.by[e.outlier.ID] != e {
			continue
		}
		if due(e) {
			h.releaseLocked(e)
			continue
		}
		kept = append(kept, e)
	}
	clear(h.order[len(kept):])
	h.order = kept
}
