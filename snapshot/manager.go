// Package snapshot saves the flight recorder's history around outliers: it freezes and
// drains the recorder, selects the records of each snapshot, writes it to disk, and
// removes old snapshots.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/iothread"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// Limits of one snapshot.
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
	Logger   *zap.Logger  // nil: no log
	Host     HostInfo     // empty fields except Tailcam are filled in from the kernel
	// RingRecords is the capacity of one CPU's ring in records; the manager keeps as
	// many drained records. 0: unknown.
	RingRecords int
	// Cover is the history before outliers in snapshots of rules that do not say it
	// (rules.BeforeCover); 0: all.
	Cover time.Duration
	// RecordsSince is when the recorder began, in CLOCK_MONOTONIC nanoseconds; 0: now.
	RecordsSince uint64
	// RTPriority, 1 to 99, runs the threads that read the recorder and write snapshots
	// as SCHED_FIFO, so that they keep up on an overloaded machine; 0: normal priority.
	// Needs CAP_SYS_NICE.
	RTPriority int
	// Boost raises the priority of ordinary threads instead, for as long as a snapshot is
	// collected and written; nil: it does not. Not with RTPriority.
	Boost *Boost
	// Queue bounds the snapshots that are open, queued or being written; 0: 8.
	Queue int
	// MaxJoin is how long later outliers may extend a snapshot beyond the first
	// outlier's window; 0: 1s.
	MaxJoin time.Duration
	// StopTimeout bounds how long Run waits for pending writes when stopping; 0: 10s. A
	// disk that does not respond at all is given 3s.
	StopTimeout time.Duration
	// Guard recovers, logs and counts panics; nil: they are only recovered.
	Guard *guard.Guard
	// OnDone, if set, is called for every snapshot written or failed, one at a time but
	// not always in order. It must not block for long. Retention does not remove the
	// snapshot during the call; use Store.Hold to keep it longer.
	OnDone func(Done)
	// SyscallName returns the name of a system call, or ""; nil: the trace has numbers
	// only.
	SyscallName func(nr int) string
	// Names looks up the references of a trace and may take a second or two; nil: no
	// names.
	Names func(trace.References) Names
	// Activities returns which activities tasks worked for between two times, in nanoseconds
	// of CLOCK_MONOTONIC; nil: none.
	Activities func(from, to uint64) []CarriedActivity
	// Contexts returns what programs had published for threads between two such times; nil: nothing.
	Contexts func(from, to uint64) []PublishedContext
	// Explain explains the outliers of m from the events of the trace, while that is
	// written; names waits until they have been looked up. An error is noted in the snapshot.
	// Nil: no explanation.
	Explain func(events *trace.Reader, m *Meta, names func() *Names) (*Explanation, error)
	// Usual adds to outliers what such delays usually are; nil: it is not told.
	Usual func([]events.Outlier)
	// Shed tells what the recorder and the rules did without between two times of
	// CLOCK_MONOTONIC in nanoseconds, and a note on it; nil: nothing.
	Shed func(from, to uint64) (parts []ShedPart, note string)
	// Missed counts the runs of programs that the kernel has skipped, since they were attached;
	// nil: it is not told. Run calls it for each snapshot, and every few seconds.
	Missed func() uint64
	// Compress compresses traces.
	Compress bool
	// BeforeTrace is called in tests before a trace is written to dir, on the store's thread.
	// Its error is the snapshot's.
	BeforeTrace func(dir string) error
}

// Done is the result of one snapshot.
type Done struct {
	ID       string
	Dir      string // empty if it failed
	Reason   string
	Time     time.Time // of the first outlier or the trigger, UTC
	Outliers []events.Outlier
	Err      error
}

// Stats are counters since the start.
type Stats struct {
	Taken   uint64            // written to disk
	Failed  uint64            // announced by id, but not written
	NoSpace uint64            // failed for lack of space
	Joined  uint64            // outliers added to another outlier's snapshot
	Skipped map[string]uint64 // by rule: queue full, or stopping
	Drains  uint64            // reads of the recorder
	// failed reads of the recorder
	DrainErrors uint64
	LastError   string // of the last failed snapshot
	Stalls      uint64 // times the disk did not respond for seconds
}

// Manager turns outliers into snapshots. All methods but Run may be called
// concurrently; Run owns the recorder.
//
// The kernel side keeps the history of an outlier until it is drained. The manager
// drains it at once, so that the next outlier's history can be kept, and drains the
// rest when the `after` window ends, or earlier if it would be overwritten. Every
// record is read once.
type Manager struct {
	opts    Options
	log     *zap.Logger
	wake    chan struct{}
	queue   chan job
	ended   chan struct{} // closed when Run returns
	history *history      // used by Run only
	missed  missed

	drainLimit, writeLimit logLimiter
	stalled                bool // the disk is not responding; used by Run only

	turns   atomic.Uint64 // of loop
	resized atomic.Int64  // RingRecords as of now
	cover   atomic.Int64  // Cover as of now
	writing operation

	mu         sync.Mutex
	open       []*window
	slots      int // snapshots open, queued or being written
	gcPause    gcPause
	drainUntil uint64 // drain at least up to this time
	release    bool   // drain in any case: outliers may have kept history
	stopped    bool
	stats      Stats
	// Snapshots skipped since the rule's last one; added to its next outlier.
	skipped map[string]uint64
}

// window is a snapshot being collected.
type window struct {
	id       string
	time     time.Time
	rule     string
	reason   string
	limit    uint64 // maximum of request.to
	request  request
	rules    []RuleJSON
	notes    []string
	answer   chan Done // TakeNow only
	deadline uint64    // collect at this time: request.to, or now when stopping
	boosted  bool      // Boost.End is still to be called
	early    *early    // nil: not begun; used by Run only
}

// New validates the options. Run does the work.
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
	o.Host.fillFromKernel()
	m := &Manager{
		opts:    o,
		log:     o.Logger,
		wake:    make(chan struct{}, 1),
		queue:   make(chan job, o.Queue),
		ended:   make(chan struct{}),
		stats:   Stats{Skipped: map[string]uint64{}},
		skipped: map[string]uint64{},
		missed:  missed{total: o.Missed},
	}
	m.resized.Store(int64(o.RingRecords))
	m.SetCover(o.Cover)
	return m, nil
}

// Resize says that the recorder has rings of another size: Options.RingRecords. What those
// of before hold is read at once.
func (m *Manager) Resize(records int) {
	m.resized.Store(int64(records))
	m.Release()
}

// SetCover changes Options.Cover for snapshots of further outliers.
func (m *Manager) SetCover(cover time.Duration) { m.cover.Store(int64(cover)) }

// Submit schedules a snapshot for an outlier with WantsSnapshot whose rule has
// snapshots enabled. It returns the snapshot's id and sets o.Snapshot, or returns "" if
// there is none. Snapshots skipped because the queue was full are counted in
// Stats.Skipped and added to o.Suppressed of the rule's next outlier. snapshot.json
// gets a copy of o, completed with what enrichment finds out later. Submit does not
// block.
func (m *Manager) Submit(o *events.Outlier, r *rules.Rule) string {
	o.Snapshot = nil
	if !o.WantsSnapshot {
		return ""
	}
	defer m.notify()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drainUntil = max(m.drainUntil, o.EndMono)
	if !r.Snapshot.Enabled {
		m.release = true
		return ""
	}
	to := max(o.EndMono+uint64(max(r.Snapshot.After, minAfter)), o.KeepUntil)
	before := r.Snapshot.Before
	if before == rules.BeforeCover {
		before = time.Duration(m.cover.Load())
	}
	from := uint64(0)
	if b := uint64(max(before, 0)); b > 0 && o.StartMono > b {
		from = o.StartMono - b
	}
	w := m.joinLocked(o.EndMono, to)
	if w == nil {
		if w = m.openLocked(o.Time, o.Rule, from, to); w == nil {
			m.release = true
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
	w.add(*o, r, before, from, to)
	return id
}

// Release must be called instead of Submit for an outlier with WantsSnapshot that is
// dropped: the kernel side keeps history for it.
func (m *Manager) Release() {
	m.mu.Lock()
	m.release = true
	m.mu.Unlock()
	m.notify()
}

// Stats returns a copy of the counters.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Skipped = maps.Clone(s.Skipped)
	return s
}

// joinLocked returns an open snapshot that can include an outlier, or nil.
func (m *Manager) joinLocked(end, to uint64) *window {
	if m.stopped {
		return nil
	}
	for _, w := range m.open {
		if w.answer == nil && end <= w.request.to && to <= w.limit && len(w.request.outliers) < maxJoined {
			return w
		}
	}
	return nil
}

// openLocked opens a snapshot, or returns nil if too many are in progress.
func (m *Manager) openLocked(t time.Time, rule string, from, to uint64) *window {
	if m.stopped || m.slots >= m.opts.Queue {
		return nil
	}
	m.slots++
	m.opts.Boost.Start()       // what follows waits for other threads
	if m.opts.RTPriority > 0 { // a boost raises the collector's workers, too
		m.gcPause.start(m.ring() * runtime.NumCPU())
	}
	w := &window{
		id: m.opts.Store.NewID(t, rule), time: t.UTC(), rule: rule,
		request: request{from: from, to: to}, deadline: to, boosted: true,
	}
	m.open = append(m.open, w)
	return w
}

func (w *window) add(o events.Outlier, r *rules.Rule, before time.Duration, from, to uint64) {
	w.request.outliers = append(w.request.outliers, o)
	w.request.asked = w.request.asked || r.Snapshot.Before > 0
	w.request.from = min(w.request.from, from)
	w.request.to = max(w.request.to, to)
	w.deadline = w.request.to
	for i := range w.rules {
		if w.rules[i].Name == r.Name {
			return
		}
	}
	of := NewRuleJSON(r)
	of.Snapshot.BeforeNS = before.Nanoseconds()
	w.rules = append(w.rules, of)
}

func (m *Manager) notify() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run processes submitted snapshots until ctx is done. Then it collects the open ones
// without waiting for their windows, and waits up to StopTimeout for the disk. Call it
// once, after the recorder has started: history counts as complete from that moment.
func (m *Manager) Run(ctx context.Context) error {
	defer close(m.ended)
	if m.opts.RTPriority > 0 {
		if err := RealTime(m.opts.RTPriority); err != nil {
			return err
		}
	}
	m.opts.Boost.Prompt()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if m.opts.RTPriority > 0 {
			if err := RealTime(m.opts.RTPriority); err != nil {
				m.log.Warn("snapshots are written at normal priority", zap.Error(err))
			}
		}
		m.writeAll()
	}()
	m.history = newHistory(int(m.resized.Load()), cmp.Or(m.opts.RecordsSince, linux.Monotonic()))
	m.loop(ctx)
	close(m.queue)

	return m.finish(written)
}

// finish waits until everything is written, as long as the disk responds.
func (m *Manager) finish(written <-chan struct{}) error {
	end := time.NewTimer(m.opts.StopTimeout)
	defer end.Stop()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-written:
			return nil
		case <-poll.C:
			if what, since := m.opts.Store.Stalled(); what != "" {
				return fmt.Errorf("stop snapshots: %w: %q has been running for %s: the next start removes the incomplete snapshot",
					iothread.ErrTimeout, what, since.Round(time.Second))
			}
		case <-end.C:
			return fmt.Errorf("stop snapshots: still writing after %s: the next start removes the incomplete snapshot", m.opts.StopTimeout)
		}
	}
}
