package watch

import (
	"cmp"
	"slices"
	"time"
)

// maxLive bounds the live tokens of a Report: those that began first.
const maxLive = 4096

// Report is what is known at one time.
type Report struct {
	Processes int
	LiveCount int       // of all
	Live      []*Record // the oldest first; not all if there are too many
	Ended     []*Record // that are remembered, the latest first
	Totals    []Totals
	Shared    []Shared      // of processes, by their ids
	Every     time.Duration // between scans
	Counts
}

// Report returns what is known now, without Ended unless that is asked for. Live tokens are
// looked at now. What it returns does not change any more.
func (w *Watcher) Report(ended bool) *Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.opts.Now()
	r := &Report{Processes: len(w.processes)}
	for _, f := range w.processes {
		w.read(f, func() {
			w.scanProcess(f, now)
			w.addLive(r, f, now)
			w.addShared(r, f)
		})
	}
	r.Counts, r.Every, r.Totals = w.counts, w.every, w.store.totals()
	if ended {
		r.Ended = w.store.records()
	}
	for _, list := range [][]*Record{r.Live, r.Ended} {
		for i := range list {
			list[i] = w.withLearned(list[i])
		}
	}
	slices.SortFunc(r.Live, func(a, b *Record) int { return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(r.Shared, func(a, b Shared) int { return cmp.Compare(a.PID, b.PID) })
	r.Live = r.Live[:min(len(r.Live), maxLive)]
	return r
}

// addLive adds the live tokens of a process. Requires w.mu.
func (w *Watcher) addLive(r *Report, f *followed, now uint64) {
	for i := range f.elements {
		e := &f.elements[i]
		if e.live == nil {
			continue
		}
		r.LiveCount++
		if len(r.Live) >= 4*maxLive {
			continue
		}
		token := f.first() + uint32(i)
		if t, account, ok := f.both(token); ok && t.Generation == e.generation {
			r.Live = append(r.Live, w.liveRecord(f, e, token, &t, account, now))
		}
	}
}

// Totals returns those of all names.
func (w *Watcher) Totals() []Totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store.totals()
}

// liveRecord is a token that has not ended, with what is in progress. Requires w.mu.
func (w *Watcher) liveRecord(f *followed, e *element, token uint32, t *Token, account *Values, now uint64) *Record {
	r := w.newRecord(f, token, t, now)
	r.Live = true
	r.account(t, account)
	for _, c := range f.carried[token] {
		if c.half == 0 && c.Half[0].Generation == t.Generation {
			r.progress(c.Thread, now)
		}
	}
	r.Values.settle()
	r.Threads = slices.Clone(e.live.threads)
	return r
}
