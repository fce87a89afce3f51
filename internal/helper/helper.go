package helper

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/internal/symbols"
)

// Options configures a Helper. Zero values mean defaults.
type Options struct {
	Executable string        // must call Main; default /proc/self/exe
	NoLines    bool          // do not read debug information: no source lines, no inlined functions
	Memory     int64         // limit of a parser in bytes; default 256 MiB
	Limit      time.Duration // of one call of User or Kernel; default 1s
	Log        *zap.Logger   // default: no log
	Guard      *guard.Guard  // recovers, logs and counts panics; nil: they are only recovered
}

const (
	readTime      = 200 * time.Millisecond // to read memory of a process
	answerTime    = parseTime + 450*time.Millisecond
	hedgeTime     = 150 * time.Millisecond // after which a second helper is asked for names only
	checkInterval = 250 * time.Millisecond
	calmInterval  = 10 * time.Second // while none works
	kernelRetry   = 5 * time.Minute  // the kernel's debug file may be installed later
	openerMemory  = 256 << 20        // more than needed, but threads count in full
	closeTime     = time.Second
	minMemory     = 160 << 20 // of a parser
)

// Helper symbolizes stacks and reads memory of processes, using child processes that
// may hang or die. It is safe for concurrent use.
type Helper struct {
	opts     Options
	log      *zap.Logger
	kernel   *symbols.Resolver // kernel symbols, from kallsyms
	starter  *starter
	accounts *accounts
	ids      atomic.Uint64

	full, names, remote, reader *lane

	mu           sync.Mutex
	children     []*child // not known to have ended
	busy         map[int]chan struct{}
	unresponsive unresponsive
	noKernel     time.Time // the kernel has no debug file: do not ask before

	late, refused, killed, unsafe, remotes atomic.Uint64
	cpu                                    atomic.Int64
	asked                                  chan struct{} // somebody has asked since watch looked
	closed                                 chan struct{}
	ended                                  sync.WaitGroup
}

// New starts the helpers. It fails only if it cannot determine its own capabilities. If
// a helper cannot be started, that is retried later and frames remain addresses.
func New(opts *Options) (*Helper, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.Executable = cmp.Or(o.Executable, "/proc/self/exe")
	o.Memory = cmp.Or(o.Memory, 256<<20)
	o.Limit = cmp.Or(o.Limit, time.Second)
	o.Log = cmp.Or(o.Log, zap.NewNop())
	s, err := newStarter(o.Executable)
	if err != nil {
		return nil, err
	}
	s.guard = o.Guard
	if s.missing != "" {
		o.Log.Warn("helpers run with reduced confinement", zap.String("because", s.missing))
	}
	h := &Helper{
		opts: o, log: o.Log, starter: s, accounts: newAccounts(), busy: map[int]chan struct{}{},
		asked: make(chan struct{}, 1), closed: make(chan struct{}),
		kernel: symbols.New(&symbols.Options{NoLines: true}),
	}
	memory := max(o.Memory, minMemory)
	h.full = newLane(h, "names and lines", role{name: roleParse, lines: !o.NoLines, memory: memory})
	h.names = newLane(h, "names", role{name: roleParse, memory: memory})
	h.remote = newLane(h, "files on network file systems", role{name: roleParse, lines: !o.NoLines, remote: true, memory: memory})
	h.remote.onDemand, h.remote.risky = true, true
	h.reader = newLane(h, "memory", role{name: roleRead, memory: openerMemory})
	h.reader.risky = true
	for _, l := range []*lane{h.full, h.names, h.reader} {
		h.ended.Go(func() { // before the first outlier needs it
			l.turn <- struct{}{}
			defer func() { <-l.turn }()
			_ = o.Guard.Do(guard.Helper, func() error { _, err := l.worker(); return err }) // logs its errors
		})
	}
	h.ended.Add(1)
	go h.watch()
	return h, nil
}

// OnChange has f told which processes the helpers are, at once and whenever that changes.
// f must not keep the slice.
func (h *Helper) OnChange(f func(pids []int)) {
	s := h.starter
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = f
	f(s.pids)
}

func (h *Helper) lanes() []*lane { return []*lane{h.full, h.names, h.remote, h.reader} }

// watch checks the helpers, less often while nobody asks and none works: each look wakes a
// CPU, whatever it finds.
func (h *Helper) watch() {
	defer h.ended.Done()
	next, calm := pulse.After(checkInterval), false
	for {
		select {
		case <-h.closed:
			return
		case <-h.asked:
			if calm {
				calm = false
				next = pulse.After(checkInterval)
			}
		case now := <-next:
			for _, l := range h.lanes() {
				_ = h.opts.Guard.Do(guard.Helper, func() error { l.check(now); return nil }) // logs its errors
			}
			wait := checkInterval
			if calm = !slices.ContainsFunc(h.lanes(), (*lane).works); calm {
				wait = calmInterval
			}
			next = pulse.After(wait)
		}
	}
}

func (h *Helper) isClosed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}

func (h *Helper) add(w *worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.children = append(h.children, w.children...)
}

// leftover counts killed processes stuck in the kernel.
func (h *Helper) leftover() int {
	alive := 0
	for _, l := range h.lanes() {
		if w := l.current(); w != nil {
			alive += len(w.children)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.children = slices.DeleteFunc(h.children, (*child).hasEnded)
	return len(h.children) - alive
}

// Close ends the helpers and leaves behind those stuck in the kernel.
func (h *Helper) Close() error {
	close(h.closed)
	h.ended.Wait()
	for _, l := range h.lanes() {
		if w := l.current(); w != nil {
			w.kill()
		}
	}
	gone := make(chan struct{})
	go func() {
		h.starter.children.Wait()
		close(gone)
	}()
	defer h.starter.close()
	select {
	case <-gone:
	case <-time.After(closeTime):
		return fmt.Errorf("%d helpers are stuck in the kernel", h.leftover())
	}
	return nil
}

// Stats are counters and the state of the helpers.
type Stats struct {
	symbols.Stats        // Timeouts: incomplete stacks
	Refused       uint64 // stacks and command lines refused because of earlier cost
	Killed        uint64 // helpers that hung, died or exceeded memory or time
	Unread        uint64 // stacks and command lines not read in time
	Left          int    // helpers stuck in the kernel
	CPU           time.Duration
	PIDs          []int // of the running helpers
}

// DropCaches ends the helpers that have read symbols and are idle. They start
// again, with nothing in memory, when they are needed.
func (h *Helper) DropCaches() {
	for _, l := range []*lane{h.full, h.names, h.remote} {
		select {
		case l.turn <- struct{}{}:
		default:
			continue
		}
		if w := l.current(); w != nil {
			l.charge(w)
			w.kill()
			l.set(nil)
		}
		<-l.turn
	}
}

// Stats returns the counters and the state of the helpers.
func (h *Helper) Stats() Stats {
	s := Stats{Refused: h.refused.Load(), Killed: h.killed.Load(), Unread: h.unsafe.Load(), Left: h.leftover(), CPU: time.Duration(h.cpu.Load())}
	for _, l := range h.lanes() {
		w := l.current()
		if w == nil {
			continue
		}
		for _, c := range w.children {
			s.PIDs = append(s.PIDs, c.proc.Pid)
		}
		w.mu.Lock()
		one := w.stats.stats
		w.mu.Unlock()
		s.Files += one.Files
		s.Bytes += one.Bytes
		s.Evicted += one.Evicted
		s.Lines += one.Lines
		s.LineBytes += one.LineBytes
		s.LineFailed += one.LineFailed
		s.LinesRefused += one.LinesRefused
		s.LinesQueued += one.LinesQueued
	}
	s.Timeouts, s.Remote = h.late.Load(), h.remotes.Load()
	return s
}
