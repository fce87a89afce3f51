package snapshot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// tidyEvery is how often old snapshots and old records are looked at when
// nothing happens.
const tidyEvery = time.Minute

// openRings is how many rings' worth of records per CPU are kept while a
// snapshot is open: its history, and what its window adds.
const openRings = 3

// unknownRing stands in where the capacity of a ring is not known.
const unknownRing = 16384

// watch is how often it is looked how much was written, while a snapshot is open.
const watch = 5 * time.Millisecond

// idle is the longest sleep of the loop.
const idle = time.Hour

func (m *Manager) loop(ctx context.Context) {
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	timer := time.NewTimer(idle)
	defer timer.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		timer.Reset(m.step())
		select {
		case <-ctx.Done():
			m.mu.Lock()
			m.stopped = true
			now := monoNow()
			for _, w := range m.open {
				if w.asked.to > now {
					w.notes = append(w.notes, fmt.Sprintf("tailcam was stopped %s before the end of the window", time.Duration(w.asked.to-now)))
					w.deadline = now
				}
			}
			m.mu.Unlock()
			m.step()
			return
		case <-m.wake:
		case <-timer.C:
		case <-look.C:
			m.lookAtDisk()
		case <-tidy.C:
			m.mu.Lock()
			busy := len(m.open) > 0
			m.mu.Unlock()
			if !busy {
				m.tape.expire(m.opts.Recorder.Coverage())
			}
		}
	}
}

// lookAtDisk tells once when the disk stops answering, and when it answers again.
func (m *Manager) lookAtDisk() {
	what, since := m.opts.Store.Stalled()
	if stalled := what != ""; stalled == m.stalled {
		return
	}
	m.stalled = what != ""
	if !m.stalled {
		m.log.Warn("the disk of the snapshots answers again", zap.String("dir", m.opts.Store.Dir()))
		return
	}
	m.mu.Lock()
	m.stats.Stalls++
	m.mu.Unlock()
	m.log.Error("the disk of the snapshots does not answer: outliers are told, further snapshots wait or are left out",
		zap.String("dir", m.opts.Store.Dir()), zap.String("waits_for", what), zap.Duration("since", since))
}

// step reads what must be read, hands over the snapshots whose window has
// ended, and returns how long nothing will be due.
func (m *Manager) step() time.Duration {
	now := monoNow()
	m.mu.Lock()
	need, thaw := m.need, m.thaw
	m.thaw = false
	var due []*window
	m.open = slices.DeleteFunc(m.open, func(w *window) bool {
		if w.deadline > now {
			return false
		}
		due = append(due, w)
		return true
	})
	open := slices.Clone(m.open)
	m.mu.Unlock()

	for _, w := range due {
		need = max(need, w.deadline)
	}
	if len(open) > 0 && m.opts.Recorder.Unread() > m.ring()/3 {
		thaw = true // before it is overwritten
	}
	// The future cannot be drained, whatever an outlier says.
	err := m.opts.Guard.Do(guard.Snapshot, func() error { return m.drainTo(min(need, now), thaw) })
	if err != nil {
		note := fmt.Sprintf("the recorder could not be read: %v", err)
		m.note(append(open, due...), note)
	}
	for _, w := range due {
		m.hand(w)
	}
	return m.rest()
}

// hand passes a snapshot on to the writer. A panic costs only this one.
func (m *Manager) hand(w *window) {
	var j job
	err := m.opts.Guard.Do(guard.Snapshot, func() error {
		j = m.collect(w)
		return nil
	})
	if err == nil {
		m.queue <- j // every window has its slot in it: this does not block
		return
	}
	m.mu.Lock()
	if m.slots--; m.slots == 0 {
		m.garbage.release()
	}
	m.stats.Failed++
	m.stats.LastError = err.Error()
	m.mu.Unlock()
	if w.answer != nil {
		w.answer <- Done{ID: w.id, Reason: w.reason, Err: err}
	}
}

// note adds a remark to windows that Submit may be adding outliers to.
func (m *Manager) note(windows []*window, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range windows {
		if !slices.Contains(w.notes, text) {
			w.notes = append(w.notes, text)
		}
	}
}

// rest trims the tape and returns the time until the next deadline.
func (m *Manager) rest() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	ring := m.ring()
	if len(m.open) == 0 {
		m.tape.trim(ring)
		return idle
	}
	m.tape.trim(openRings * ring)
	next := m.open[0].deadline
	for _, w := range m.open {
		next = min(next, w.deadline)
	}
	now := monoNow()
	if next <= now {
		return 0
	}
	// What comes after the outlier must not be overwritten before the window ends.
	return min(time.Duration(next-now), watch)
}

// ring is how many records of one CPU are kept of what was read.
func (m *Manager) ring() int {
	if m.opts.RingRecords > 0 {
		return m.opts.RingRecords
	}
	return unknownRing
}

// drainTo reads until all of before the given time has been read. Of two banks
// one may be frozen already, by an outlier; then the second one is needed, too.
func (m *Manager) drainTo(mono uint64, thaw bool) error {
	for range 3 {
		// An outlier may be older than the tape: its history is in the rings.
		unread := mono > 0 && len(m.tape.cpus) == 0
		if !thaw && !unread && m.tape.frozen >= mono {
			return nil
		}
		thaw = false
		if err := m.drain(); err != nil {
			m.mu.Lock()
			m.stats.DrainErrors++
			m.mu.Unlock()
			m.drainLimit.error(m.log, time.Now(), "cannot read the flight recorder; snapshots lack what it held", zap.Error(err))
			return err
		}
	}
	return nil
}

// drain reads onto the tape, and gives up what was kept for outliers until then.
func (m *Manager) drain() error {
	frozen, err := m.opts.Recorder.Freeze()
	if err != nil {
		return fmt.Errorf("freeze recorder: %w", err)
	}
	d, err := m.opts.Recorder.Drain()
	if err != nil {
		m.tape.missed(frozen)
		err = fmt.Errorf("drain recorder: %w", err)
	} else {
		m.tape.add(frozen, d, m.opts.Recorder.Coverage())
		m.mu.Lock()
		m.stats.Drains++
		m.mu.Unlock()
	}
	if e := m.opts.Recorder.Release(); e != nil && err == nil {
		err = fmt.Errorf("release recorder: %w", e)
	}
	return err
}

// collect cuts a snapshot's part out of the tape.
func (m *Manager) collect(w *window) job {
	clock := m.opts.Clock()
	j := job{
		answer: w.answer, clock: clock,
		meta: Meta{
			Version: Version, Notes: []string{}, ID: w.id, Time: w.time, Rule: w.rule,
			Reason: w.reason, Host: m.opts.Host, Outliers: w.asked.outliers,
			Rules: w.rules, Coverage: []CPUCoverage{},
		},
	}
	first := w.asked.to
	for _, cpu := range m.tape.list() {
		from := max(w.asked.from, w.asked.unbroken(m.tape.judge(cpu, w.asked.from, w.asked.to).covered))
		part := m.tape.cut(cpu, from, w.asked.to)
		c := w.asked.cover(cpu, part.covered, clock)
		c.Records, c.Lost = uint64(len(part.records)), part.lost
		j.meta.Coverage = append(j.meta.Coverage, c)
		j.meta.Records += c.Records
		j.meta.Lost += c.Lost
		first = min(first, c.FromMonoNS)
		if len(part.records) > 0 {
			first = min(first, part.records[0].Time())
		}
		t := trace.CPU{CPU: cpu, Records: part.records, Discarded: c.Lost + c.Missing}
		if n := len(part.covered); n > 0 {
			t.From, t.To = part.covered[0].FromMonoNS, part.covered[n-1].ToMonoNS
		}
		j.cpus = append(j.cpus, t)
	}
	if w.asked.from > 0 {
		first = w.asked.from
	}
	j.meta.Window = Window{
		From: clock.Wall(first), To: clock.Wall(w.asked.to),
		FromMonoNS: w.asked.from, ToMonoNS: w.asked.to, WallMinusMono: int64(clock.WallMinusMono),
	}
	j.meta.Notes = append(j.meta.Notes, w.asked.notes(j.meta.Coverage)...)
	j.meta.ShortHistory = len(w.asked.short(j.meta.Coverage)) > 0
	j.meta.Notes = append(j.meta.Notes, w.notes...)
	if j.meta.Outliers == nil {
		j.meta.Outliers = []events.Outlier{}
	}
	if j.meta.Rules == nil {
		j.meta.Rules = []RuleJSON{}
	}
	return j
}
