package helper

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/symbols"
)

// Options tune a Helper. The zero value of a field is its default.
type Options struct {
	Executable string        // that calls Main; default /proc/self/exe
	NoLines    bool          // no debug information, source lines and inlined functions
	Memory     int64         // bytes that a parser may have; default 256 MiB
	Limit      time.Duration // of one call of User or Kernel; default 1s
	Log        *zap.Logger   // default: none
	Guard      *guard.Guard  // counts and logs panics that what helpers say has caused; nil: they are only recovered
}

const (
	readTime      = 200 * time.Millisecond // of reading memory of a process
	answerTime    = parseTime + 450*time.Millisecond
	hedgeTime     = 150 * time.Millisecond // after it names alone are asked for, elsewhere
	checkInterval = 250 * time.Millisecond
	kernelRetry   = 5 * time.Minute // the kernel's debug file may be installed meanwhile
	openerMemory  = 256 << 20       // they need little; threads of C count in full
	closeTime     = time.Second
	minMemory     = 160 << 20 // of a parser
)

// Helper names the frames of stacks and reads the memory of processes, by way
// of processes of its own that may hang or die. It is safe for concurrent use.
type Helper struct {
	opts     Options
	log      *zap.Logger
	kernel   *symbols.Resolver // of addresses of the kernel, from kallsyms
	starter  *starter
	accounts *accounts
	ids      atomic.Uint64

	full, names, remote, reader *lane

	mu           sync.Mutex
	children     []*child // those that may be there still
	busy         map[int]chan struct{}
	unresponsive unresponsive
	noKernel     time.Time // the kernel has no debug file: do not ask before

	late, refused, killed, unsafe, remotes atomic.Uint64
	cpu                                    atomic.Int64
	closed                                 chan struct{}
	ended                                  sync.WaitGroup
}

// New starts the helpers. It fails only if this process cannot look at itself;
// helpers that cannot be started are tried again, and frames stay addresses.
func New(opts *Options) (*Helper, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.Executable = cmp.Or(o.Executable, "/proc/self/exe")
	o.Memory = cmp.Or(o.Memory, 256<<20)
	o.Limit = cmp.Or(o.Limit, time.Second)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	s, err := newStarter(o.Executable)
	if err != nil {
		return nil, err
	}
	s.guard = o.Guard
	if s.missing != "" {
		o.Log.Warn("helpers are less confined than they could be", zap.String("because", s.missing))
	}
	h := &Helper{
		opts: o, log: o.Log, starter: s, accounts: newAccounts(), busy: map[int]chan struct{}{}, closed: make(chan struct{}),
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
		h.ended.Add(1)
		go func() { // before the first outlier wants it
			defer h.ended.Done()
			l.turn <- struct{}{}
			defer func() { <-l.turn }()
			_ = o.Guard.Do(guard.Helper, func() error { _, err := l.launch(); return err }) // it is logged
		}()
	}
	h.ended.Add(1)
	go h.watch()
	return h, nil
}

func (h *Helper) lanes() []*lane { return []*lane{h.full, h.names, h.remote, h.reader} }

func (h *Helper) watch() {
	defer h.ended.Done()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-h.closed:
			return
		case now := <-tick.C:
			for _, l := range h.lanes() {
				_ = h.opts.Guard.Do(guard.Helper, func() error { l.check(now); return nil }) // it is logged
			}
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

// leftover counts processes that were killed and hang in the kernel.
func (h *Helper) leftover() int {
	alive := 0
	for _, l := range h.lanes() {
		if w := l.current(); w != nil {
			alive += len(w.children)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n, left := running(h.children)
	h.children = left
	return n - alive
}

// Close ends the helpers. Those that hang in the kernel are left behind.
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
		return fmt.Errorf("%d helpers hang in the kernel and are left behind", h.leftover())
	}
	return nil
}

// Stats counts what the helpers hold and what had to be given up.
type Stats struct {
	symbols.Stats        // Timeouts: stacks told before all was known
	Refused       uint64 // stacks and command lines left out for a while, because of what they have cost
	Killed        uint64 // helpers that hung, ran out of memory or time, or died
	Unread        uint64 // stacks and command lines whose memory could not be read in time
	Left          int    // helpers that hang in the kernel
	CPU           time.Duration
	PIDs          []int // of the running helpers
}

// Stats tells what the helpers hold and have given up.
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
