package helper

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/process"
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
	readTime     = 200 * time.Millisecond // of reading memory of a process
	answerTime   = parseTime + 450*time.Millisecond
	hedgeTime    = 150 * time.Millisecond // after it names alone are asked for, elsewhere
	lookTime     = 250 * time.Millisecond
	kernelRetry  = 5 * time.Minute // the kernel's debug file may be installed meanwhile
	openerMemory = 256 << 20       // they need little; threads of C count in full
	closeTime    = time.Second
	minMemory    = 160 << 20 // of a parser
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

	mu       sync.Mutex
	children []*child // those that may be there still
	busy     map[int]chan struct{}
	silent   silent
	noKernel time.Time // the kernel has no debug file: do not ask before

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
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for {
		select {
		case <-h.closed:
			return
		case now := <-tick.C:
			for _, l := range h.lanes() {
				_ = h.opts.Guard.Do(guard.Helper, func() error { l.look(now); return nil }) // it is logged
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

// corpses counts processes that were killed and hang in the kernel.
func (h *Helper) corpses() int {
	running := 0
	for _, l := range h.lanes() {
		if w := l.current(); w != nil {
			running += len(w.children)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n, left := corpses(h.children)
	h.children = left
	return n - running
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
		h.starter.left.Wait()
		close(gone)
	}()
	defer h.starter.close()
	select {
	case <-gone:
	case <-time.After(closeTime):
		return fmt.Errorf("%d helpers hang in the kernel and are left behind", h.corpses())
	}
	return nil
}

// KernelNames is as that of symbols.Resolver.
func (h *Helper) KernelNames(addrs []uint64) ([]string, error) { return h.kernel.KernelNames(addrs) }

// ReloadKernel is as that of symbols.Resolver.
func (h *Helper) ReloadKernel() error { return h.kernel.ReloadKernel() }

// Kernel is as that of symbols.Resolver. Sources come from the helper.
func (h *Helper) Kernel(addrs []uint64) (symbols.Stack, error) {
	addrs = addrs[:min(len(addrs), maxAddrs)]
	frames, offsets, err := h.kernel.KernelOffsets(addrs)
	out := symbols.Stack{Frames: frames}
	if err != nil || len(addrs) == 0 || h.opts.NoLines || !h.wantsKernel() {
		return out, err
	}
	m, ok := h.within(h.opts.Limit, func(deadline time.Time) (message, error) {
		return h.full.ask(&request{kind: askKernel, addrs: offsets}, nil, deadline, answerTime)
	})
	switch {
	case !ok:
		h.late.Add(1)
	case m.flags&(flagKnown|flagFailed) == 0:
		h.mu.Lock()
		h.noKernel = time.Now().Add(kernelRetry)
		h.mu.Unlock()
	case len(m.sources) == len(frames):
		out.Sources = m.sources
	}
	return out, nil
}

func (h *Helper) wantsKernel() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().After(h.noKernel)
}

// within runs a call that may take longer than is waited for.
func (h *Helper) within(limit time.Duration, f func(deadline time.Time) (message, error)) (message, bool) {
	deadline := time.Now().Add(limit)
	c := make(chan message, 1)
	go func() {
		defer close(c)
		if m, err := f(deadline); err == nil {
			c <- m
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case m, ok := <-c:
		return m, ok
	case <-timer.C:
		return message{}, false
	}
}

// parties are those who pay for a process: itself and its user.
func parties(pid int) []party {
	who := []party{{ofProcess, uint64(pid), 0}}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st); err == nil {
		who = append(who, party{ofUser, uint64(st.Uid), 0})
	}
	return who
}

// User is as that of symbols.Resolver, within Options.Limit. Who has taken
// more than a fair share, or has made helpers hang, gets addresses for a while.
func (h *Helper) User(pid int, addrs []uint64) symbols.Stack {
	if len(addrs) == 0 {
		return symbols.Stack{}
	}
	n := min(len(addrs), maxAddrs)
	who := parties(pid)
	if pid <= 0 || !h.accounts.allows(time.Now(), who...) {
		h.refused.Add(1)
		return addresses(addrs)
	}
	deadline := time.Now().Add(h.opts.Limit)
	release := h.hold(pid, deadline)
	if release == nil {
		h.late.Add(1)
		return addresses(addrs)
	}
	s, complete := h.user(pid, addrs[:n], who, deadline, release)
	if !complete {
		h.late.Add(1)
	}
	rest := addresses(addrs[n:])
	s.Frames = append(s.Frames, rest.Frames...)
	if s.Sources != nil {
		s.Sources = append(s.Sources, make([]symbols.Source, len(rest.Frames))...)
	}
	return s
}

// hold lets one request of a process go on at a time; nil if none could in time.
func (h *Helper) hold(pid int, deadline time.Time) (release func()) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		h.mu.Lock()
		other := h.busy[pid]
		if other == nil {
			mine := make(chan struct{})
			h.busy[pid] = mine
			h.mu.Unlock()
			return func() {
				h.mu.Lock()
				delete(h.busy, pid)
				h.mu.Unlock()
				close(mine)
			}
		}
		h.mu.Unlock()
		select {
		case <-other:
		case <-timer.C:
			return nil
		}
	}
}

// answer is what one lane says of a stack.
type answer struct {
	from *lane
	message
	err error
}

// user asks for names and lines, and for names alone from another helper if
// that takes long or fails; for files on file systems that may hang from a third.
func (h *Helper) user(pid int, addrs []uint64, who []party, deadline time.Time, release func()) (symbols.Stack, bool) {
	answers := make(chan answer, len(h.lanes()))
	var asked sync.WaitGroup
	ask := func(l *lane) {
		asked.Add(1)
		go func() {
			defer asked.Done()
			m, err := l.ask(&request{kind: askStack, pid: pid, addrs: addrs}, who, deadline, answerTime)
			answers <- answer{l, m, err}
		}()
	}
	ask(h.full)
	defer func() {
		go func() { // what goes on for longer than it is waited for is of this process, too
			asked.Wait()
			release()
		}()
	}()
	end, hedge := time.NewTimer(time.Until(deadline)), time.NewTimer(hedgeTime)
	defer end.Stop()
	defer hedge.Stop()
	out := addresses(addrs)
	complete := false
	for pending, named, far := 1, false, false; pending > 0; {
		select {
		case <-end.C:
			return out, false
		case <-hedge.C:
			if !named {
				named = true
				pending++
				ask(h.names)
			}
		case a := <-answers:
			pending--
			ok := a.err == nil && a.flags&flagFailed == 0 && merge(&out, &a.message, addrs)
			if ok && (a.from != h.names || h.opts.NoLines) && a.flags&(flagLate|flagStuck) == 0 {
				complete = true
			}
			if a.err == nil && a.flags&flagRemote != 0 && !far {
				far, complete = true, false
				h.remotes.Add(1)
				pending++
				ask(h.remote)
			}
			if !ok && a.from == h.full && !named && !errors.Is(a.err, errBusy) {
				named = true
				pending++
				ask(h.names)
			}
			if complete {
				return out, true
			}
		}
	}
	return out, complete
}

// merge takes over what a message says and was not known.
func merge(out *symbols.Stack, m *message, addrs []uint64) bool {
	if len(m.frames) != len(addrs) || m.sources != nil && len(m.sources) != len(addrs) {
		return false
	}
	for i, f := range m.frames {
		if f == noRoom {
			f = unknown(addrs[i])
		}
		if !strings.HasPrefix(f, unknownPrefix) || strings.HasPrefix(out.Frames[i], unknownPrefix) && len(f) >= len(unknownPrefix) {
			out.Frames[i] = f
		}
	}
	if m.sources != nil {
		out.Sources = m.sources
	}
	return true
}

const (
	noRoom        = "[unknown]"
	unknownPrefix = "[unknown]"
)

func unknown(addr uint64) string { return fmt.Sprintf("[unknown] 0x%x", addr) }

func addresses(addrs []uint64) symbols.Stack {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = unknown(a)
	}
	return symbols.Stack{Frames: out}
}

// Memory walks the stack of a thread that does not run; see process.UserStack.
func (h *Helper) Memory(pid int, ip, sp, fp uint64) ([]uint64, error) {
	m, err := h.read(&request{kind: askMemory, pid: pid, addrs: []uint64{ip, sp, fp}})
	if err != nil || len(m.addrs) == 0 {
		return []uint64{ip}, err
	}
	return m.addrs, nil
}

// Cmdline reads the command line of the process that began at start, in clock
// ticks after boot. The arguments are separated by spaces; all is printable.
func (h *Helper) Cmdline(pid int, start uint64) (string, error) {
	m, err := h.read(&request{kind: askCmdline, pid: pid, start: start})
	return m.text, err
}

// Cmdlines is Cmdline of several processes at once. It leaves out those that
// must be asked for alone: a line that is long, or, if reading fails, all.
func (h *Helper) Cmdlines(of []process.Started) map[process.Started]string {
	out := make(map[process.Started]string, len(of))
	now := time.Now()
	of = slices.DeleteFunc(slices.Clone(of), func(p process.Started) bool { return !h.accounts.allows(now, parties(p.PID)...) })
	for part := range slices.Chunk(of, maxCmdlines) {
		q := &request{kind: askCmdlines}
		for _, p := range part {
			q.addrs = append(q.addrs, uint64(p.PID), p.Start)
		}
		// Whose fault it is if it hangs is found out when they are asked for alone.
		m, err := h.reader.ask(q, nil, time.Now().Add(2*readTime), readTime)
		if err != nil || len(m.addrs) != len(part) || len(m.frames) != len(part) {
			return out
		}
		for i, p := range part {
			if m.addrs[i] == 1 {
				out[p] = m.frames[i]
			}
		}
	}
	return out
}

// ErrRefused says that nothing is read about a process for a while.
var ErrRefused = errors.New("not read for a while: it has made helpers hang")

func (h *Helper) read(q *request) (message, error) {
	who := parties(q.pid)
	if !h.accounts.allows(time.Now(), who...) {
		h.refused.Add(1)
		return message{}, ErrRefused
	}
	m, err := h.reader.ask(q, who, time.Now().Add(2*readTime), readTime)
	if err != nil {
		h.unsafe.Add(1)
		return message{}, fmt.Errorf("read memory of process %d: %w", q.pid, err)
	}
	if m.flags&flagFailed != 0 && len(m.addrs) == 0 {
		return message{}, fmt.Errorf("read memory of process %d: %s", q.pid, m.text)
	}
	return m, nil
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
	s := Stats{Refused: h.refused.Load(), Killed: h.killed.Load(), Unread: h.unsafe.Load(), Left: h.corpses(), CPU: time.Duration(h.cpu.Load())}
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
