package snapshot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// retentionInterval is how often retention runs and old history expires on an idle
// daemon.
const retentionInterval = time.Minute

// Bounds of the records that are kept while a snapshot is open, its history and its window:
// maxOpenRings for each CPU, but beyond one ring each no more than maxOpenBytes of all CPUs.
const (
	maxOpenRings = 3
	maxOpenBytes = 128 << 20
)

// defaultRing is used if the capacity of a ring is unknown.
const defaultRing = 16384

// pollInterval is how often the fill level of the rings is checked while a snapshot is
// open.
const pollInterval = 5 * time.Millisecond

// boostedWait is the longest rest of a window for which the process stays raised.
const boostedWait = 20 * time.Millisecond

// maxIdle is the longest sleep of the loop.
const maxIdle = time.Hour

func (m *Manager) loop(ctx context.Context) {
	retention := pulse.After(retentionInterval)
	timer := time.NewTimer(maxIdle)
	defer timer.Stop()
	stallCheck := pulse.After(pulse.Calm)
	m.missed.note(linux.Monotonic())
	for {
		timer.Reset(m.step())
		m.turns.Add(1)
		select {
		case <-ctx.Done():
			m.mu.Lock()
			m.stopped = true
			now := linux.Monotonic()
			for _, w := range m.open {
				if w.request.to > now {
					w.notes = append(w.notes, fmt.Sprintf("tailcam stopped %s before the end of the window", time.Duration(w.request.to-now)))
					w.deadline = now
				}
			}
			m.mu.Unlock()
			m.step()
			return
		case <-m.wake:
		case <-timer.C:
		case <-stallCheck:
			stallCheck = pulse.After(pulse.Calm)
			m.checkDisk()
			m.missed.note(linux.Monotonic())
		case <-retention:
			retention = pulse.After(retentionInterval)
			m.mu.Lock()
			busy := len(m.open) > 0
			m.mu.Unlock()
			if !busy {
				m.history.ring = int(m.resized.Load())
				m.history.expire(m.opts.Recorder.Coverage())
			}
		}
	}
}

// checkDisk logs when the disk stops responding and when it responds again.
func (m *Manager) checkDisk() {
	what, since := m.opts.Store.Stalled()
	if stalled := what != ""; stalled == m.stalled {
		return
	}
	m.stalled = what != ""
	if !m.stalled {
		m.log.Warn("snapshot disk answers again", zap.String("dir", m.opts.Store.Dir()))
		return
	}
	m.mu.Lock()
	m.stats.Stalls++
	m.mu.Unlock()
	m.log.Error("snapshot disk does not answer: outliers are still reported, snapshots wait or are skipped",
		zap.String("dir", m.opts.Store.Dir()), zap.String("waits_for", what), zap.Duration("since", since))
}

// step drains the recorder if needed, queues the snapshots whose window has ended, and
// returns the time until the next step.
func (m *Manager) step() time.Duration {
	now := linux.Monotonic()
	m.mu.Lock()
	need, release := m.drainUntil, m.release
	m.release = false
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
		if !w.boosted {
			m.opts.Boost.Start()
		}
	}
	if len(open) > 0 && m.opts.Recorder.Unread() > m.ring()/3 {
		release = true // before the records are overwritten
	}
	// Do not wait for future records, whatever an outlier says.
	err := m.opts.Guard.Do(guard.Snapshot, func() error {
		if len(due) == 0 {
			return m.drainNow(min(need, now), release)
		}
		if slices.ContainsFunc(due, m.wantsEarly) {
			if err := m.drainNow(min(need, now), release); err != nil {
				return err
			}
			release = false
			m.lookUpEarly(due) // while the rest is waited for
		}
		return m.drainTo(min(need, now), release)
	})
	if err != nil {
		note := fmt.Sprintf("the recorder could not be read: %v", err)
		m.addNote(append(open, due...), note)
	}
	for _, w := range due {
		m.enqueue(w)
	}
	m.lookUpEarly(open)
	m.mu.Lock()
	for _, w := range open {
		if w.boosted && w.deadline > now+uint64(boostedWait) {
			w.boosted = false
			m.opts.Boost.End()
		}
	}
	m.mu.Unlock()
	return m.nextDeadline()
}

// enqueue hands a snapshot to the writer. A panic costs only this snapshot.
func (m *Manager) enqueue(w *window) {
	var j job
	err := m.opts.Guard.Do(guard.Snapshot, func() error {
		j = m.collect(w)
		return nil
	})
	if err == nil {
		m.queue <- j // never blocks: the queue has a slot for every window
		return
	}
	m.opts.Boost.End()
	m.mu.Lock()
	if m.slots--; m.slots == 0 {
		m.gcPause.end()
	}
	m.stats.Failed++
	m.stats.LastError = err.Error()
	m.mu.Unlock()
	if w.answer != nil {
		w.answer <- Done{ID: w.id, Reason: w.reason, Err: err}
	}
}

// addNote adds a note to windows that Submit may be changing.
func (m *Manager) addNote(windows []*window, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range windows {
		if !slices.Contains(w.notes, text) {
			w.notes = append(w.notes, text)
		}
	}
}

// nextDeadline trims the history and returns the time until the next deadline.
func (m *Manager) nextDeadline() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	ring := m.ring()
	if len(m.open) == 0 {
		m.history.trim(ring)
		return maxIdle
	}
	m.history.trim(openRecords(ring, len(m.history.cpus)))
	next := m.open[0].deadline
	for _, w := range m.open {
		next = min(next, w.deadline)
	}
	now := linux.Monotonic()
	if next <= now {
		return 0
	}
	// Drain before records of the window are overwritten.
	return min(time.Duration(next-now), pollInterval)
}

// openRecords is how many records of each of so many CPUs are kept while a snapshot is open.
func openRecords(ring, cpus int) int {
	return max(ring, min(maxOpenRings*ring, maxOpenBytes/trace.RecordSize/max(cpus, 1)))
}

// ring returns how many drained records are kept per CPU.
func (m *Manager) ring() int {
	if n := m.resized.Load(); n > 0 {
		return int(n)
	}
	return defaultRing
}

// drainNow makes room for the history of further outliers. It waits for nothing: what is just
// being written is read before a window ends.
func (m *Manager) drainNow(mono uint64, release bool) error {
	unread := mono > 0 && len(m.history.cpus) == 0
	if !release && !unread && m.history.frozen >= mono {
		return nil
	}
	return m.counted(m.drain(m.opts.Recorder.FreezeNow))
}

// drainTo drains until everything before mono has been read. If an outlier has already
// frozen one of the two banks, the other one is needed as well.
func (m *Manager) drainTo(mono uint64, release bool) error {
	for range 3 {
		// The history is empty: the outlier's records are still in the rings.
		unread := mono > 0 && len(m.history.cpus) == 0
		if !release && !unread && m.history.frozen >= mono {
			return nil
		}
		release = false
		if err := m.counted(m.drain(m.opts.Recorder.Freeze)); err != nil {
			return err
		}
	}
	return nil
}

// counted counts and logs a drain that failed.
func (m *Manager) counted(err error) error {
	if err != nil {
		m.mu.Lock()
		m.stats.DrainErrors++
		m.mu.Unlock()
		m.drainLimit.error(m.log, time.Now(), "cannot read the flight recorder; snapshots lack what it held", zap.Error(err))
	}
	return err
}

// drain appends the recorder's records to the history and releases what outliers had
// kept.
func (m *Manager) drain(freeze func() (mono uint64, err error)) error {
	frozen, err := freeze()
	if err != nil {
		return fmt.Errorf("freeze recorder: %w", err)
	}
	d, err := m.opts.Recorder.Drain()
	if err != nil {
		m.history.drainFailed(frozen)
		err = fmt.Errorf("drain recorder: %w", err)
	} else {
		m.history.add(frozen, d, m.opts.Recorder.Coverage())
		m.mu.Lock()
		m.stats.Drains++
		m.mu.Unlock()
	}
	if e := m.opts.Recorder.Release(); e != nil && err == nil {
		err = fmt.Errorf("release recorder: %w", e)
	}
	return err
}

// copyRecords copies the records of a snapshot out of the history, when its turn has come:
// those of one snapshot at a time.
func (j *job) copyRecords() {
	switches := !slices.ContainsFunc(j.meta.Shed, func(p ShedPart) bool { return p.Part == "group sched" })
	for i := range j.slices {
		part, c := &j.slices[i], &j.meta.Coverage[i]
		t := trace.CPU{CPU: part.cpu, Records: part.records(), Discarded: c.Lost + c.Missing}
		if n := len(part.covered); n > 0 {
			t.From, t.To = part.covered[0].FromMonoNS, part.covered[n-1].ToMonoNS
		}
		c.Records = uint64(len(t.Records))
		if switches { // else they were not recorded, and nobody kept them from tracers
			c.SwitchUnseen = trace.Unseen(t.Records, intervals(part.covered))
		}
		j.meta.Records += c.Records
		j.meta.SwitchUnseen += c.SwitchUnseen
		j.cpus = append(j.cpus, t)
	}
	j.slices = nil
}

func intervals(list []Gap) []trace.Interval {
	out := make([]trace.Interval, len(list))
	for i, g := range list {
		out[i] = trace.Interval{From: g.FromMonoNS, To: g.ToMonoNS}
	}
	return out
}

// collect cuts a snapshot out of the history.
func (m *Manager) collect(w *window) job {
	clock := m.opts.Clock()
	j := job{
		answer: w.answer, clock: clock, early: w.early,
		meta: Meta{
			Version: Version, Notes: []string{}, ID: w.id, Time: w.time, Rule: w.rule,
			Reason: w.reason, Host: m.opts.Host, Outliers: w.request.outliers,
			Rules: w.rules, Coverage: []CPUCoverage{},
		},
	}
	first := w.request.to
	for _, cpu := range m.history.cpuNumbers() {
		from := max(w.request.from, w.request.contiguousFrom(m.history.coverage(cpu, w.request.from, w.request.to).covered))
		part := m.history.slice(cpu, from, w.request.to)
		c := w.request.coverage(cpu, part.covered, clock)
		c.Lost = part.lost
		j.meta.Coverage = append(j.meta.Coverage, c)
		j.meta.Lost += c.Lost
		j.slices = append(j.slices, part)
		first = min(first, c.FromMonoNS)
		for _, records := range part.parts {
			first = min(first, max(from, records[0].Begin()))
		}
	}
	if w.request.asked {
		first = w.request.from
	}
	j.meta.Window = Window{
		From: clock.Wall(first), To: clock.Wall(w.request.to),
		FromMonoNS: w.request.from, ToMonoNS: w.request.to, WallMinusMono: int64(clock.WallMinusMono),
	}
	j.meta.ProgramMissed = m.missed.since(first)
	j.meta.Notes = append(j.meta.Notes, w.request.notes(j.meta.Coverage)...)
	if m.opts.Shed != nil {
		var note string
		if j.meta.Shed, note = m.opts.Shed(first, w.request.to); note != "" {
			j.meta.Notes = append(j.meta.Notes, note)
		}
	}
	j.meta.ShortHistory = len(w.request.shortHistories(j.meta.Coverage)) > 0
	j.meta.Notes = append(j.meta.Notes, w.notes...)
	if j.meta.Outliers == nil {
		j.meta.Outliers = []events.Outlier{}
	}
	if j.meta.Rules == nil {
		j.meta.Rules = []RuleJSON{}
	}
	return j
}
