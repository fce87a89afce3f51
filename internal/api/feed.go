package api

import (
	"slices"
	"sync"

	"github.com/tailcam/tailcam/tracker/events"
)

const (
	// DefaultRemember is how many outliers a daemon remembers.
	DefaultRemember = 1000
	// subscriberQueue is how far a reader may fall behind before it loses outliers.
	subscriberQueue = 256
)

// Feed remembers the latest outliers and passes new ones on to its readers. It
// never waits for a reader. Its methods may be called from any goroutine, and
// Recent and Subscribe are Backend's.
type Feed struct {
	mu      sync.Mutex
	ring    []*events.Outlier // the oldest is at next once the ring is full
	next    int
	keep    int
	readers map[*reader]struct{}
	lost    uint64
	missed  uint64           // completions that readers were too slow for
	early   []events.Outlier // explained, but not published yet
}

type reader struct {
	rule string
	ch   chan *events.Outlier
	lost uint64 // guarded by Feed.mu
}

// NewFeed returns a feed that remembers so many outliers.
func NewFeed(remember int) *Feed {
	return &Feed{keep: max(remember, 1), readers: map[*reader]struct{}{}}
}

// Publish remembers an outlier and offers it to every reader that wants its
// rule. Nobody may change it afterwards.
func (f *Feed) Publish(o *events.Outlier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rememberLocked(o)
	f.offerLocked(o)
	for i := range f.early {
		if f.explainLocked(&f.early[i]) {
			f.early = slices.Delete(f.early, i, i+1)
			break
		}
	}
}

// Complete replaces a remembered outlier by one with the same ID that is whole,
// and offers it once more: readers know it by Outlier.Completed.
func (f *Feed) Complete(o *events.Outlier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, old := range f.ring {
		if old.ID != o.ID {
			continue
		}
		known := *o
		known.Explained = old.Explained
		f.ring[i] = &known
		break
	}
	f.offerLocked(o) // without Explained: readers have had that
}

// Explain lets remembered outliers carry what their snapshot, now complete,
// says of them, and offers them once more: readers know it by Outlier.Explained.
func (f *Feed) Explain(outliers []events.Outlier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range outliers {
		if outliers[i].Explained == nil || outliers[i].Snapshot == nil || f.explainLocked(&outliers[i]) {
			continue
		}
		// It is not published yet: others are named before it.
		if len(f.early) >= maxEarly {
			f.early = f.early[1:]
		}
		f.early = append(f.early, outliers[i])
	}
}

// maxEarly bounds the explanations that wait for their outlier.
const maxEarly = 256

// explainLocked tells whether the outlier was remembered.
func (f *Feed) explainLocked(e *events.Outlier) bool {
	for i, o := range f.ring {
		if o.Snapshot == nil || *o.Snapshot != *e.Snapshot || o.Rule != e.Rule || o.Cause != e.Cause ||
			o.Task.TID != e.Task.TID || o.ID != e.ID || o.StartMono != e.StartMono || o.EndMono != e.EndMono {
			continue
		}
		if o.Explained == nil {
			again := *o // readers may hold the old one
			again.Explained = e.Explained
			f.ring[i] = &again
			f.offerLocked(&again)
		}
		return true
	}
	return false
}

func (f *Feed) rememberLocked(o *events.Outlier) {
	if len(f.ring) < f.keep {
		f.ring = append(f.ring, o)
	} else {
		f.ring[f.next] = o
		f.next = (f.next + 1) % f.keep
	}
}

func (f *Feed) offerLocked(o *events.Outlier) {
	for r := range f.readers {
		if r.rule != "" && r.rule != o.Rule {
			continue
		}
		select {
		case r.ch <- o:
		default:
			if o.Completed { // it has had the outlier itself, or knows that it lost it
				f.missed++
				continue
			}
			r.lost++
			f.lost++
		}
	}
}

// Recent returns the remembered outliers of a rule, or of all for "", oldest first.
func (f *Feed) Recent(rule string) []*events.Outlier {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []*events.Outlier
	for i := range f.ring {
		o := f.ring[(f.next+i)%len(f.ring)]
		if rule == "" || rule == o.Rule {
			found = append(found, o)
		}
	}
	return found
}

// Subscribe hands out the outliers of a rule, or of all for "", from now on.
// What finds the channel full is dropped and counted in lost. cancel closes
// the channel and may be called more than once.
func (f *Feed) Subscribe(rule string) (outliers <-chan *events.Outlier, cancel func(), lost func() uint64) {
	r := &reader{rule: rule, ch: make(chan *events.Outlier, subscriberQueue)}
	f.mu.Lock()
	f.readers[r] = struct{}{}
	f.mu.Unlock()
	cancel = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, ok := f.readers[r]; ok {
			delete(f.readers, r)
			close(r.ch)
		}
	}
	lost = func() uint64 {
		f.mu.Lock()
		defer f.mu.Unlock()
		return r.lost
	}
	return r.ch, cancel, lost
}

// Missed is how many completions of outliers all readers together were too slow
// for. They are not in Lost.
func (f *Feed) Missed() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.missed
}

// Lost is how many outliers all readers together were too slow for.
func (f *Feed) Lost() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}
