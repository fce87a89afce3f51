package api

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

const (
	// DefaultRemember is how many outliers a daemon remembers, of all rules together.
	DefaultRemember = 1000
	// subscriberQueue is how far a reader may fall behind before it loses outliers.
	subscriberQueue = 256
	// tapQueue is the same for the daemon itself.
	tapQueue = 2048
)

// Feed remembers the latest outliers, fairly shared by rules, and passes new ones to its readers, without
// ever waiting for them. Its methods may be called from any goroutine; Recent and
// Subscribe implement those of Backend.
type Feed struct {
	run string // of the daemon, in cursors

	mu       sync.Mutex
	memory   *memory
	readers  map[*reader]struct{}
	verdicts uint64 // so far
	lost     uint64
	missed   uint64           // completions that readers were too slow for
	early    []events.Outlier // explained, but not published yet
}

type reader struct {
	rule string
	ch   chan *events.Outlier
	own  bool   // the daemon itself: Lost and Missed are about clients
	lost uint64 // guarded by Feed.mu
}

// NewFeed returns a feed that remembers up to remember outliers.
func NewFeed(remember int) *Feed {
	return &Feed{
		run:    strconv.FormatInt(time.Now().UnixNano(), 36),
		memory: newMemory(remember), readers: map[*reader]struct{}{},
	}
}

// hereLocked is the place after all that has come.
func (f *Feed) hereLocked() cursor { return cursor{f.run, f.memory.added, f.verdicts} }

// Publish remembers an outlier and offers it to every reader of its rule. The
// outlier must not be modified afterwards.
func (f *Feed) Publish(o *events.Outlier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := *o // the caller may still read it
	known.Cursor = cursor{f.run, f.memory.added + 1, f.verdicts}.String()
	f.memory.add(&known)
	f.offerLocked(&known)
	for i := range f.early {
		if f.explainLocked(&f.early[i]) {
			f.early = slices.Delete(f.early, i, i+1)
			break
		}
	}
}

// Complete replaces a remembered outlier with its complete version, which has the
// same ID, and offers that to readers, with Outlier.Completed set.
func (f *Feed) Complete(o *events.Outlier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory.replace(o.Rule, func(old *events.Outlier) bool { return old.ID == o.ID },
		func(old *remembered) *events.Outlier {
			known := *o
			known.Explained, known.Actions = old.Explained, old.Actions
			return &known
		})
	again := *o // without Explained: readers have it already
	again.Cursor = f.hereLocked().String()
	f.offerLocked(&again)
}

// Explain adds the verdicts of a complete snapshot to the remembered outliers, and
// offers them to readers again, with Outlier.Explained set.
func (f *Feed) Explain(outliers []events.Outlier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range outliers {
		if outliers[i].Explained == nil || outliers[i].Snapshot == nil || f.explainLocked(&outliers[i]) {
			continue
		}
		// Not published yet: others are enriched before it.
		if len(f.early) >= maxEarly {
			f.early = f.early[1:]
		}
		f.early = append(f.early, outliers[i])
	}
}

// maxActions bounds the results that an outlier has.
const maxActions = 16

// Acted adds the result of an action to the remembered outlier that it was given. Readers
// that follow are not told: a second message of an outlier is its verdict.
func (f *Feed) Acted(rule, id string, r events.ActionResult) {
	if id == "" {
		return // of a trigger
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory.replace(rule, func(o *events.Outlier) bool { return o.ID == id }, func(o *remembered) *events.Outlier {
		if len(o.Actions) >= maxActions {
			return nil
		}
		again := *o.Outlier // readers may hold the old one
		again.Actions = append(slices.Clone(o.Actions), r)
		return &again
	})
}

// maxEarly bounds the explanations that wait for their outlier.
const maxEarly = 256

// explainLocked reports whether the outlier was remembered.
func (f *Feed) explainLocked(e *events.Outlier) bool {
	return f.memory.replace(e.Rule, func(o *events.Outlier) bool {
		return o.Snapshot != nil && *o.Snapshot == *e.Snapshot && o.Cause == e.Cause && o.Task.TID == e.Task.TID &&
			o.ID == e.ID && o.StartMono == e.StartMono && o.EndMono == e.EndMono
	}, func(o *remembered) *events.Outlier {
		if o.Explained != nil {
			return nil
		}
		f.verdicts++
		o.verdict = f.verdicts
		again := *o.Outlier // readers may hold the old one
		again.Explained, again.Cursor = e.Explained, f.hereLocked().String()
		f.offerLocked(&again)
		return &again
	})
}

func (f *Feed) offerLocked(o *events.Outlier) {
	for r := range f.readers {
		if r.rule != "" && r.rule != o.Rule {
			continue
		}
		select {
		case r.ch <- o:
		default:
			switch {
			case o.Completed && r.own: // it has the outlier, or knows that it lost it
			case o.Completed:
				f.missed++
			case r.own:
				r.lost++
			default:
				r.lost++
				f.lost++
			}
		}
	}
}

// Recent returns the remembered outliers of a rule, or of all for "", oldest first.
func (f *Feed) Recent(rule string) []*events.Outlier {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory.list(rule)
}

// Subscription is a reader's share of a feed.
type Subscription struct {
	// Backlog is what came after the cursor and is remembered: outliers, then verdicts, in
	// the order in which they came.
	Backlog []*events.Outlier
	// Forgotten counts outliers after the cursor that are not remembered. Restarted: the
	// cursor is of an earlier run of the daemon; what came after it then is not known.
	Forgotten uint64
	Restarted bool
	// Outliers has those from now on. If it is full, outliers are dropped, and counted in
	// Lost.
	Outliers <-chan *events.Outlier
	Cancel   func() // closes Outliers; may be called more than once
	Lost     func() uint64

	SnapshotsDir string // that snapshots of verdicts are in; the feed does not know it
}

// Subscribe returns the outliers of a rule, or of all for "", from now on; with after, a
// cursor, also those since then. It fails if after is none.
func (f *Feed) Subscribe(rule, after string) (*Subscription, error) {
	at, err := parseCursor(after)
	if err != nil {
		return nil, err
	}
	s := &Subscription{}
	r := &reader{rule: rule, ch: make(chan *events.Outlier, subscriberQueue)}
	f.mu.Lock()
	if after != "" {
		if s.Restarted = at.run != f.run; s.Restarted {
			at = cursor{}
		}
		s.Backlog = f.sinceLocked(rule, at)
		s.Forgotten = f.memory.forgottenAfter(rule, at.outliers)
	}
	f.readers[r] = struct{}{}
	f.mu.Unlock()
	s.Outliers, s.Cancel, s.Lost = f.reader(r)
	return s, nil
}

// sinceLocked lists what came after a cursor. The cursor of each is such that no other
// is skipped by who goes on from there.
func (f *Feed) sinceLocked(rule string, at cursor) []*events.Outlier {
	all := f.memory.of(rule)
	var list []*events.Outlier
	for i := range all {
		if all[i].number > at.outliers {
			o := *all[i].Outlier
			o.Explained, o.Cursor = nil, cursor{f.run, all[i].number, at.verdicts}.String()
			list = append(list, &o)
		}
	}
	slices.SortFunc(all, func(a, b remembered) int { return cmp.Compare(a.verdict, b.verdict) })
	for i := range all {
		if all[i].verdict > at.verdicts {
			o := *all[i].Outlier
			o.Cursor = cursor{f.run, f.memory.added, all[i].verdict}.String()
			list = append(list, &o)
		}
	}
	return list
}

// Tap is like Subscribe to all rules, for the daemon itself: what it is too slow for is
// not in Lost and Missed.
func (f *Feed) Tap() (outliers <-chan *events.Outlier, cancel func(), lost func() uint64) {
	r := &reader{own: true, ch: make(chan *events.Outlier, tapQueue)}
	f.mu.Lock()
	f.readers[r] = struct{}{}
	f.mu.Unlock()
	return f.reader(r)
}

func (f *Feed) reader(r *reader) (outliers <-chan *events.Outlier, cancel func(), lost func() uint64) {
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

// Missed counts the completions of outliers that all clients together were too
// slow for. They are not in Lost.
func (f *Feed) Missed() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.missed
}

// Lost counts the outliers that all clients together were too slow for.
func (f *Feed) Lost() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}
