package snapshot

import (
	"errors"
	"fmt"
	"time"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/iothread"
	"github.com/tailcam/tailcam/tracker/events"
)

// Trigger asks for a snapshot that no rule asks for.
type Trigger struct {
	Reason string // "": taken by hand
	// Target is whose time before the trigger is to be explained, Last long: its Task,
	// and what is known of it at the trigger. The rest is filled in. Nil: nothing is
	// explained.
	Target *events.Outlier
	Last   time.Duration
	After  time.Duration // recorded beyond the trigger
}

// MaxAfter limits Trigger.After.
const MaxAfter = time.Minute

// Triggered is a snapshot that is being taken.
type Triggered struct {
	ID   string
	done chan Done
	m    *Manager
}

// Trigger takes a snapshot of the recorder's whole content. It fails at once if too
// many snapshots are in progress, and does not wait until it is on disk: see
// Triggered.Wait. Run must be running.
func (m *Manager) Trigger(t *Trigger) (*Triggered, error) {
	switch {
	case len(t.Reason) > maxReason:
		return nil, fmt.Errorf("take snapshot: reason longer than %d bytes", maxReason)
	case t.After < 0 || t.After > MaxAfter:
		return nil, fmt.Errorf("take snapshot: after must be from 0s to %s", MaxAfter)
	case t.Target != nil && t.Last <= 0:
		return nil, errors.New("take snapshot: last must be more than 0s")
	}
	defer m.notify()
	m.mu.Lock()
	defer m.mu.Unlock()
	now := linux.Monotonic()
	w := m.openLocked(m.opts.Clock().Wall(now), manualRule, 0, now+uint64(t.After))
	if w == nil {
		m.stats.Skipped[manualRule]++
		if m.stopped {
			return nil, errors.New("take snapshot: the daemon is stopping")
		}
		return nil, fmt.Errorf("take snapshot: %d snapshots are already in progress: try again later", m.opts.Queue)
	}
	w.reason = t.Reason
	if w.reason == "" {
		w.reason = "taken by hand"
	}
	if t.Target != nil {
		w.request.outliers = append(w.request.outliers, t.outlier(w, now))
	}
	w.answer = make(chan Done, 1)
	return &Triggered{ID: w.id, done: w.answer, m: m}, nil
}

// outlier is the target's time before the trigger, in the form of an outlier.
func (t *Trigger) outlier(w *window, now uint64) events.Outlier {
	o := *t.Target
	last := min(uint64(t.Last), now)
	o.Rule, o.Track, o.Cause = manualRule, events.TrackTrigger, events.CauseTrigger
	o.Time, o.StartMono, o.EndMono, o.DelayNS = w.time, now-last, now, int64(last)
	o.Key = map[string]uint64{"tid": uint64(o.Task.TID)}
	id := w.id
	o.Snapshot = &id
	return o
}

// Trigger returns the target of a snapshot that no rule asked for, or if it has none, an
// outlier of nobody; nil: a rule asked for it.
func (d *Done) Trigger() *events.Outlier {
	switch {
	case len(d.Outliers) == 0:
		return &events.Outlier{
			Time: d.Time, Rule: manualRule, Track: events.TrackTrigger, Cause: events.CauseTrigger,
			Key: map[string]uint64{}, Snapshot: &d.ID,
		}
	case d.Outliers[0].Cause == events.CauseTrigger:
		return &d.Outliers[0]
	}
	return nil
}

// Wait waits until the snapshot is on disk. It fails if the disk does not respond for
// seconds; the snapshot follows then.
func (t *Triggered) Wait() (Done, error) {
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case d := <-t.done:
			return d, d.Err
		case <-poll.C:
			if what, since := t.m.opts.Store.Stalled(); what != "" {
				return Done{}, fmt.Errorf("take snapshot: %w: %q has been running for %s (%s); snapshot %s follows when it ends",
					iothread.ErrTimeout, what, since.Round(time.Second), t.m.opts.Store.Dir(), t.ID)
			}
		case <-t.m.ended:
			select {
			case d := <-t.done:
				return d, d.Err
			default:
				return Done{}, errors.New("take snapshot: the daemon stopped before the snapshot was written")
			}
		}
	}
}

// TakeNow takes a snapshot for a reason and waits until it is on disk.
func (m *Manager) TakeNow(reason string) (dir string, err error) {
	t, err := m.Trigger(&Trigger{Reason: reason})
	if err != nil {
		return "", err
	}
	d, err := t.Wait()
	return d.Dir, err
}
