package api

import (
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
	run      string        // of the daemon, in cursors
	earlyFor time.Duration // for so long a complete snapshot waits for its outlier

	mu       sync.Mutex
	memory   *memory // of outliers
	finished *memory // of those whose snapshot is complete, and of snapshots taken by hand
	readers  map[*reader]struct{}
	lost     uint64
	missed   uint64 // completions that readers were too slow for
	early    []early
}

// early is an outlier whose snapshot is complete, but which is not published yet.
type early struct {
	events.Outlier
	since time.Time
}

type reader struct {
	rule string
	ch   chan *events.Outlier
	own  bool   // the daemon itself: Lost and Missed are about clients
	lost uint64 // guarded by Feed.mu, as is lostFinished

	lostFinished uint64
}

// NewFeed returns a feed that remembers up to remember outliers.
func NewFeed(remember int) *Feed {
	return &Feed{
		run: strconv.FormatInt(time.Now().UnixNano(), 36), earlyFor: 5 * time.Second,
		memory: newMemory(remember), finished: newMemory(remember), readers: map[*reader]struct{}{},
	}
}

// Cursor is the place after all that has come.
func (f *Feed) Cursor() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hereLocked().String()
}

// hereLocked is the place after all that has come.
func (f *Feed) hereLocked() cursor { return cursor{f.run, f.memory.added, f.finished.added} }

// Publish remembers an outlier and offers it to every reader of its rule. The
// outlier must not be modified afterwards.
func (f *Feed) Publish(o *events.Outlier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := *o // the caller may still read it
	known.Cursor = cursor{f.run, f.memory.added + 1, f.finished.added}.String()
	f.memory.add(&known)
	f.offerLocked(&known)
	for i := range f.early {
		if f.finishLocked(&f.early[i].Outlier) {
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
			known.Explained, known.Dir, known.Actions = old.Explained, old.Dir, old.Actions
			return &known
		})
	again := *o // without Explained: readers have it already
	again.Cursor = f.hereLocked().String()
	f.offerLocked(&again)
}

// Finish tells that the snapshot of these outliers is complete, in a directory: it adds
// that and their verdicts, if there are any, to the remembered outliers, and offers them to
// readers again, with Outlier.Finished set.
func (f *Feed) Finish(dir string, outliers []events.Outlier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range outliers {
		o := outliers[i]
		if o.Dir = dir; o.Snapshot == nil || f.finishLocked(&o) {
			continue
		}
		// Not published yet, as others are enriched before it; or forgotten since.
		if len(f.early) >= maxEarly {
			f.offerFinishedLocked(&f.early[0].Outlier)
			f.early = f.early[1:]
		}
		f.early = append(f.early, early{o, time.Now()})
		time.AfterFunc(f.earlyFor, f.flushEarly)
	}
}

// FinishManual tells of a complete snapshot that no rule asked for: o is its target, or an
// outlier of nobody. It is among what Subscribe returns, and not in Recent.
func (f *Feed) FinishManual(dir string, o *events.Outlier) {
	f.mu.Lock()
	defer f.mu.Unlock()
	again := *o
	again.Dir = dir
	f.offerFinishedLocked(&again)
}

// flushEarly offers what has waited too long for its outlier, which was forgotten.
func (f *Feed) flushEarly() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.early) > 0 && time.Since(f.early[0].since) >= f.earlyFor {
		f.offerFinishedLocked(&f.early[0].Outlier)
		f.early = f.early[1:]
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

// maxEarly bounds Feed.early.
const maxEarly = 256

// finishLocked reports whether the outlier was remembered.
func (f *Feed) finishLocked(e *events.Outlier) bool {
	return f.memory.replace(e.Rule, func(o *events.Outlier) bool {
		return o.Snapshot != nil && *o.Snapshot == *e.Snapshot && o.Cause == e.Cause && o.Task.TID == e.Task.TID &&
			o.ID == e.ID && o.StartMono == e.StartMono && o.EndMono == e.EndMono
	}, func(o *remembered) *events.Outlier {
		if o.finished {
			return nil
		}
		o.finished = true
		again := *o.Outlier // readers may hold the old one
		again.Explained, again.Dir = e.Explained, e.Dir
		f.offerFinishedLocked(&again)
		return &again
	})
}

// offerFinishedLocked remembers that an outlier's snapshot is complete, and offers that.
func (f *Feed) offerFinishedLocked(o *events.Outlier) {
	again := *o
	again.Finished, again.Completed = true, false
	again.Cursor = cursor{f.run, f.memory.added, f.finished.added + 1}.String()
	f.finished.add(&again)
	f.offerLocked(&again)
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
			case o.Finished && !r.own:
				r.lostFinished++
				f.lost++
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
	Cursor string // the place before Backlog, or if there is none, before Outliers
	// Backlog is what came after the cursor and is remembered: outliers, then those that are
	// Finished, in the order in which they came.
	Backlog []*events.Outlier
	// Forgotten counts outliers after the cursor that are not remembered, ForgottenFinished
	// those that are Finished. Restarted: the cursor is of an earlier run of the daemon; what
	// came after it then is not known.
	Forgotten, ForgottenFinished uint64

	Restarted bool
	// Outliers has those from now on. If it is full, outliers are dropped, and counted in
	// Lost, or in LostFinished.
	Outliers           <-chan *events.Outlier
	Cancel             func() // closes Outliers; may be called more than once
	Lost, LostFinished func() uint64
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
	s.Cursor = f.hereLocked().String()
	if after != "" {
		if s.Restarted = at.run != f.run; s.Restarted {
			at = cursor{run: f.run}
		}
		s.Cursor, s.Backlog = at.String(), f.sinceLocked(rule, at)
		s.Forgotten = f.memory.forgottenAfter(rule, at.outliers)
		s.ForgottenFinished = f.finished.forgottenAfter(rule, at.verdicts)
	}
	f.readers[r] = struct{}{}
	f.mu.Unlock()
	s.Outliers, s.Cancel, s.Lost = f.reader(r)
	s.LostFinished = func() uint64 {
		f.mu.Lock()
		defer f.mu.Unlock()
		return r.lostFinished
	}
	return s, nil
}

// sinceLocked lists what came after a cursor. The cursor of each is such that no other
// is skipped by who goes on from there.
func (f *Feed) sinceLocked(rule string, at cursor) []*events.Outlier {
	var list []*events.Outlier
	for _, known := range f.memory.of(rule) {
		if known.number > at.outliers {
			o := *known.Outlier
			o.Cursor = cursor{f.run, known.number, at.verdicts}.String()
			list = append(list, &o)
		}
	}
	for _, known := range f.finished.of(rule) {
		if known.number > at.verdicts {
			o := *known.Outlier
			o.Cursor = cursor{f.run, f.memory.added, known.number}.String()
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
