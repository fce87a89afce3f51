// Package snapshot saves what the flight recorder holds around an outlier:
// when to freeze and drain, what belongs into one snapshot, how it gets onto
// the disk, and how long it stays there.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/iothread"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// Bounds of one snapshot.
const (
	minAfter  = time.Millisecond // the exit itself must be in the trace
	maxJoined = 256              // outliers
	maxReason = 4096             // bytes
)

// Options configures a Manager. Recorder and Store are required.
type Options struct {
	Recorder Recorder
	Store    *Store
	Clock    func() Clock // nil: ReadClock
	Logger   *zap.Logger  // nil: silent
	Host     Host         // empty fields but Tailcam are asked of the kernel
	// RingRecords is how many records of history the ring of one CPU holds. The
	// manager keeps as many of the already drained ones. 0: not known.
	RingRecords int
	// RTPriority, 1 to 99, makes the threads that read the recorder and write
	// snapshots real-time ones (SCHED_FIFO), so that no other task keeps them from
	// reading before the recorder comes round, and from writing; 0: they are not.
	// Needs CAP_SYS_NICE.
	RTPriority int
	// Queue bounds the snapshots that are open, waiting or being written; 0: 8.
	Queue int
	// MaxJoin is how long after the first outlier's own window a snapshot may
	// be kept open by outliers that join it; 0: a second.
	MaxJoin time.Duration
	// StopTimeout bounds how long Run waits for the disk at its end; 0: 10s. A disk
	// that does not answer at all is waited for no longer than 3s.
	StopTimeout time.Duration
	// Guard keeps a panic over one snapshot from ending the daemon, and counts it;
	// nil: it is not counted.
	Guard *guard.Guard
	// OnDone, if set, is told of every snapshot that was written or failed, one at
	// a time; those whose outliers are named late come later. It must not block for long. The snapshot cannot be removed by
	// retention while it runs; it may call Store.Hold to keep it longer.
	OnDone func(Done)
	// SyscallName gives the name of a system call, or ""; for the trace. Nil: none.
	SyscallName func(nr int) string
	// Names finds out what the numbers in a trace stand for; it may take a
	// second or two. Nil: tasks.json names nothing.
	Names func(trace.Mentioned) Names
	// Explain tells where the time of the outliers went, by the trace in dir. A
	// failure is noted in the snapshot. Nil: nothing is explained.
	Explain func(dir string, m *Meta, n *Names) (*Explanation, error)
	// WriteTrace replaces the CTF writer, for tests. On the store's thread.
	WriteTrace func(dir string, t trace.Trace) error
}

// Done is what became of one snapshot.
type Done struct {
	ID       string
	Dir      string // empty if it failed
	Reason   string
	Outliers []events.Outlier
	Err      error
}

// Stats counts since start.
type Stats struct {
	Taken   uint64            // on the disk
	Failed  uint64            // promised by an id, but not written
	NoSpace uint64            // of those, for lack of space
	Joined  uint64            // outliers that share another one's snapshot
	Skipped map[string]uint64 // snapshot_skipped, by rule: too many at once, or stopping
	Drains  uint64            // times that the recorder was read
	// DrainErrors counts times that it could not be.
	DrainErrors uint64
	LastError   string // of the last failed snapshot
	Stalls      uint64 // times that the disk did not answer for seconds
}

// Manager turns outliers into snapshots. Submit, TakeNow, Thaw and Stats may
// be called by several goroutines; Run owns the recorder.
//
// The kernel side keeps the history at the outlier. The manager reads it at
// once and releases it, so that the history of the next outlier can be kept,
// and reads the rest at the end of the `after` window, or earlier if that would
// be overwritten. Every record is read once.
type Manager struct {
	opts  Options
	log   *zap.Logger
	wake  chan struct{}
	queue chan job
	ended chan struct{} // closed when Run has returned
	tape  *tape         // of Run's goroutine, which makes it

	drainLimit, writeLimit logLimit
	stalled                bool // the disk did not answer when last looked at; of Run's goroutine

	mu      sync.Mutex
	open    []*window
	slots   int // open, waiting, being written
	garbage garbage
	need    uint64 // drain at least up to here
	thaw    bool   // history may be kept: drain in any case
	stopped bool
	stats   Stats
	// Skipped since the rule's last snapshot; added to its next outlier.
	skipped map[string]uint64
}

// window is one snapshot that is being collected.
type window struct {
	id       string
	time     time.Time
	rule     string
	reason   string
	limit    uint64 // to may not grow past it
	asked    asked
	rules    []RuleJSON
	notes    []string
	answer   chan Done // manual only
	deadline uint64    // when to collect; asked.to, or now when stopping
}

// New checks the options. Nothing happens before Run.
func New(o Options) (*Manager, error) {
	if o.Recorder == nil || o.Store == nil {
		return nil, errors.New("new snapshot manager: recorder and store are required")
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Clock == nil {
		o.Clock = ReadClock
	}
	if o.Queue <= 0 {
		o.Queue = 8
	}
	if o.MaxJoin <= 0 {
		o.MaxJoin = time.Second
	}
	if o.StopTimeout <= 0 {
		o.StopTimeout = 10 * time.Second
	}
	if o.WriteTrace == nil {
		o.WriteTrace = trace.Write
	}
	o.Host.fill()
	return &Manager{
		opts:    o,
		log:     o.Logger,
		wake:    make(chan struct{}, 1),
		queue:   make(chan job, o.Queue),
		ended:   make(chan struct{}),
		stats:   Stats{Skipped: map[string]uint64{}},
		skipped: map[string]uint64{},
	}, nil
}

// Submit arranges a snapshot for an outlier whose WantsSnapshot is set and
// whose rule has snapshots. It returns the snapshot's id and sets o.Snapshot,
// so the outlier can be published at once; "" and nil if it gets none. What
// the queue refused is counted (Stats.Skipped) and added to o.Suppressed of
// the rule's next outlier that gets one. A copy of o goes into snapshot.json,
// with what its Later finds out: the recorder is read at once, whoever has yet
// to be named. It does not block.
func (m *Manager) Submit(o *events.Outlier, r *rules.Rule) string {
	o.Snapshot = nil
	if !o.WantsSnapshot {
		return ""
	}
	defer m.kick()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.need = max(m.need, o.EndMono)
	if !r.Snapshot.Enabled {
		m.thaw = true
		return ""
	}
	after := max(r.Snapshot.After, minAfter)
	from, to := uint64(0), o.EndMono+uint64(after)
	if b := uint64(max(r.Snapshot.Before, 0)); b > 0 && o.StartMono > b {
		from = o.StartMono - b
	}
	w := m.joinLocked(o.EndMono, to)
	if w == nil {
		if w = m.openLocked(o.Time, o.Rule, from, to); w == nil {
			m.thaw = true
			m.stats.Skipped[o.Rule]++
			m.skipped[o.Rule]++
			return ""
		}
		w.reason = fmt.Sprintf("outlier of rule %s (%s)", o.Rule, o.Cause)
		w.limit = to + uint64(m.opts.MaxJoin)
	} else {
		m.stats.Joined++
	}
	id := w.id
	o.Snapshot = &id
	o.Suppressed += m.skipped[o.Rule]
	delete(m.skipped, o.Rule)
	w.add(*o, r, from, to)
	return id
}

// Thaw must be called for an outlier with WantsSnapshot that is not submitted
// after all: the kernel side keeps history for it.
func (m *Manager) Thaw() {
	m.mu.Lock()
	m.thaw = true
	m.mu.Unlock()
	m.kick()
}

// TakeNow takes a snapshot of all that the recorder holds, and waits until it
// is on the disk, or the disk has not answered for seconds. It fails at once when
// too many are under way. Run must have been started.
func (m *Manager) TakeNow(reason string) (dir string, err error) {
	if len(reason) > maxReason {
		return "", fmt.Errorf("take snapshot: the reason is longer than %d bytes", maxReason)
	}
	if reason == "" {
		reason = "taken by hand"
	}
	m.mu.Lock()
	now := monoNow()
	w := m.openLocked(m.opts.Clock().Wall(now), manualRule, 0, now)
	if w == nil {
		m.stats.Skipped[manualRule]++
		stopped := m.stopped
		m.mu.Unlock()
		if stopped {
			return "", errors.New("take snapshot: the daemon is stopping")
		}
		return "", fmt.Errorf("take snapshot: %d others are under way: try again in a moment", m.opts.Queue)
	}
	w.reason = reason
	w.answer = make(chan Done, 1)
	m.mu.Unlock()
	m.kick()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case d := <-w.answer:
			return d.Dir, d.Err
		case <-look.C:
			if what, since := m.opts.Store.Stalled(); what != "" {
				return "", fmt.Errorf("take snapshot: %w: %q has not ended for %s (%s); the snapshot %s comes when it does",
					iothread.ErrTimeout, what, since.Round(time.Second), m.opts.Store.Dir(), w.id)
			}
		case <-m.ended:
			select {
			case d := <-w.answer:
				return d.Dir, d.Err
			default:
				return "", errors.New("take snapshot: the daemon stopped before it was written")
			}
		}
	}
}

// Stats returns a copy of the counters.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Skipped = maps.Clone(s.Skipped)
	return s
}

// joinLocked finds an open snapshot that an outlier fits into.
func (m *Manager) joinLocked(end, to uint64) *window {
	if m.stopped {
		return nil
	}
	for _, w := range m.open {
		if w.answer == nil && end <= w.asked.to && to <= w.limit && len(w.asked.outliers) < maxJoined {
			return w
		}
	}
	return nil
}

// openLocked begins a snapshot; nil if too many are under way.
func (m *Manager) openLocked(t time.Time, rule string, from, to uint64) *window {
	if m.stopped || m.slots >= m.opts.Queue {
		return nil
	}
	m.slots++
	if m.opts.RTPriority > 0 {
		m.garbage.hold(m.ring() * runtime.NumCPU())
	}
	w := &window{
		id: m.opts.Store.NewID(t, rule), time: t.UTC(), rule: rule,
		asked: asked{from: from, to: to}, deadline: to,
	}
	m.open = append(m.open, w)
	return w
}

func (w *window) add(o events.Outlier, r *rules.Rule, from, to uint64) {
	w.asked.outliers = append(w.asked.outliers, o)
	w.asked.from = min(w.asked.from, from)
	w.asked.to = max(w.asked.to, to)
	w.deadline = w.asked.to
	for i := range w.rules {
		if w.rules[i].Name == r.Name {
			return
		}
	}
	w.rules = append(w.rules, ruleJSON(r))
}

func (m *Manager) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run carries out what was submitted until the context ends; then it collects
// what is open, without waiting for the rest of its window, and waits for the
// disk up to StopTimeout. It may be called once, when the recorder records:
// history counts as complete from here on.
func (m *Manager) Run(ctx context.Context) error {
	defer close(m.ended)
	if m.opts.RTPriority > 0 {
		if err := RealTime(m.opts.RTPriority); err != nil {
			return err
		}
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		if m.opts.RTPriority > 0 {
			if err := RealTime(m.opts.RTPriority); err != nil {
				m.log.Warn("snapshots are written with an ordinary priority", zap.Error(err))
			}
		}
		m.writeAll()
	}()
	m.tape = newTape(m.opts.RingRecords, monoNow())
	m.loop(ctx)
	close(m.queue)

	return m.finish(written)
}

// finish waits until all is written, as long as the disk answers.
func (m *Manager) finish(written <-chan struct{}) error {
	end := time.NewTimer(m.opts.StopTimeout)
	defer end.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-written:
			return nil
		case <-look.C:
			if what, since := m.opts.Store.Stalled(); what != "" {
				return fmt.Errorf("stop snapshots: %w: %q has not ended for %s: the next start removes what is half done",
					iothread.ErrTimeout, what, since.Round(time.Second))
			}
		case <-end.C:
			return fmt.Errorf("stop snapshots: writing did not end within %s: the next start removes what is half done", m.opts.StopTimeout)
		}
	}
}
