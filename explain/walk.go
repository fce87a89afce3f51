package explain

import (
	"slices"
	"sort"

	"github.com/tailcam/tailcam/explain/waitsites"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Limits of one critical path.
const (
	maxDepth  = 12
	maxPieces = 1 << 18 // of the slow task
	maxBelow  = 1 << 16 // of all other tasks
)

// piece is an interval of the critical path. below explains it further.
type piece struct {
	from, to uint64
	task     int
	cpu      int
	state    string
	cause    Cause
	by       *Who
	why      string
	reason   string // of Unexplained
	sampled  bool
	evidence evidence
	wait     wait
	cut      bool // below would be deeper than maxDepth
	waker    *Who
	stack    *stackAt        // blocked: at its end
	site     waitsites.Match // blocked: where
	item     *work           // by is this one
	below    []piece
}

// walker computes the critical path of one outlier.
type walker struct {
	m          *model
	outlier    *Outlier
	pieces     int
	below      int
	nested     int // depth of works waiting for works
	chained    []link
	found      *finding // the pattern
	longestWhy string   // of the blame, in words
	onTop      bool     // the blame interrupted it, and did not end a wait
	stack      []int    // tasks on the current path
	idles      []idle
	idlesKnown bool
	full       fullQueue
	asked      int // see maxAsked
	walked     int // see maxWalked
	spun       map[*task][]spun
	threads    int      // that the path of an activity goes through
	own        Activity // of the slow task: token and trace, as far as they are known
}

// add appends a piece or extends the last one.
func (w *walker) add(list []piece, p piece) []piece {
	if p.from >= p.to {
		return list
	}
	if n := len(list); n > 0 {
		l := &list[n-1]
		if l.to == p.from && l.cause == p.cause && l.by == p.by && l.state == p.state && l.cpu == p.cpu &&
			l.why == p.why && l.reason == p.reason && l.sampled == p.sampled && l.evidence == p.evidence && l.wait == p.wait && l.cut == p.cut &&
			l.waker == p.waker && l.stack == p.stack && l.site == p.site && l.item == p.item && l.below == nil && p.below == nil {
			l.to = p.to
			return list
		}
	}
	if len(w.stack) <= 1 {
		w.pieces++
	} else {
		w.below++
	}
	return appendGrow(list, p)
}

// follow returns contiguous pieces that cover [from, to] of a task.
func (w *walker) follow(tid int, from, to uint64) []piece {
	if from >= to {
		return nil
	}
	w.stack = append(w.stack, tid)
	defer func() { w.stack = w.stack[:len(w.stack)-1] }()
	var out []piece
	at := from
	if t := w.m.tasks[tid]; t != nil {
		i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].to > from })
		for ; i < len(t.segments) && t.segments[i].from < to; i++ {
			full := &t.segments[i]
			s := *full
			if s.from > at && i == 0 && len(w.stack) == 1 && w.trackedFromStart(&s) {
				s.from = at // known from the tracker
			}
			out = w.add(out, w.absent(t, at, s.from))
			s.from, s.to = max(s.from, at), min(s.to, to)
			if s.from >= s.to {
				continue
			}
			if w.pieces > maxPieces || len(w.stack) > 1 && w.below > maxBelow {
				out = w.add(out, w.unexplained(tid, s.from, to, "the path has too many steps"))
				return out
			}
			out = w.segment(out, t, &s, full)
			at = s.to
		}
	}
	if t := w.m.tasks[tid]; t != nil {
		return w.add(out, w.absent(t, at, to))
	}
	return w.add(out, w.unexplained(tid, at, to, w.m.unknownReason(at)))
}

// absent explains a time at which a task is in no segment. Before it was made, what its maker
// did is what was in the way.
func (w *walker) absent(t *task, from, to uint64) piece {
	if from >= to || from > t.born || t.maker == 0 {
		return w.unexplained(t.tid, from, to, w.m.reasonBefore(t, from))
	}
	p := piece{from: from, to: to, task: t.tid, cpu: -1, state: "blocked", cause: Task, by: w.m.whoTask(t.maker), wait: waitStart, evidence: byMaker}
	w.descend(&p, t.maker)
	return p
}

// trackedFromStart reports whether the tracker knows the slow task's state since the
// outlier's start, before the trace begins.
func (w *walker) trackedFromStart(s *segment) bool {
	return s.from <= w.m.coveredFrom && (w.outlier.Track == "offcpu" && s.state == blocked || w.outlier.Track == "wakeup" && s.state == runnable)
}

// runnableCertain reports whether a runnable task cannot have run unseen: the CPU is
// covered, or the tracker knows.
func (w *walker) runnableCertain(s *segment) bool {
	list := w.m.names.Covered[int(s.cpu)]
	return len(list) == 0 || len(w.stack) == 1 && w.outlier.Track == "wakeup" || slices.ContainsFunc(list, func(c Interval) bool {
		return c.From <= s.from && min(s.to, w.outlier.End) <= c.To
	})
}

// unknownReason returns why nothing is known about a time.
func (m *model) unknownReason(at uint64) string {
	switch {
	case m.firstEventTime == 0:
		return "the trace is empty"
	case at < m.coveredFrom:
		return reasonShort
	case !m.eventSeen[trace.SchedSwitch]:
		return "the recorder's event group sched is off"
	case m.recordsMissing(at):
		return reasonOverwritten
	case m.full:
		return "the trace has too many events"
	case m.damaged:
		return "the trace is damaged"
	}
	return "records are missing"
}

// reasonBefore returns why nothing is known of a task at a time at which it is in no segment.
func (m *model) reasonBefore(t *task, at uint64) string {
	if at < t.born {
		return "the task did not exist yet"
	}
	return m.unknownReason(at)
}

const reasonShort = "the history is too short"

const reasonOverwritten = "records of that time were overwritten before they were read"

// recordsMissing reports whether records of some CPU are missing at a time.
func (m *model) recordsMissing(at uint64) bool {
	for _, list := range m.names.Covered {
		if m.scanned++; m.scanned > maxScanned {
			return false
		}
		if !slices.ContainsFunc(list, func(s Interval) bool { return s.From <= at && at <= s.To }) {
			return true
		}
	}
	return false
}

func (w *walker) unexplained(tid int, from, to uint64, reason string) piece {
	return piece{from: from, to: to, task: tid, cpu: -1, state: "unknown", cause: Unexplained, reason: reason, why: reason}
}

// triggerPieces follows the target of a trigger, if it has one.
func (w *walker) triggerPieces(nobody string) []piece {
	o := w.outlier
	if o.TID != 0 {
		return w.follow(o.TID, o.Start, o.End)
	}
	return []piece{w.unexplained(0, o.Start, o.End, nobody)}
}

// workItemPieces follows the worker of a work item, if it has one.
func (w *walker) workItemPieces() []piece {
	o := w.outlier
	switch {
	case o.TID != 0:
		return w.follow(o.TID, o.Start, o.End)
	case o.Waiting && o.Cause == "timeout":
		return []piece{w.unexplained(0, o.Start, o.End, "which worker will take it is not known")}
	}
	return []piece{w.unexplained(0, o.Start, o.End, "it runs in a softirq")}
}

// segment explains s, which is full clipped to the requested interval.
func (w *walker) segment(out []piece, t *task, s, full *segment) []piece {
	switch s.state {
	case running:
		return w.runSegment(out, t, s)
	case runnable:
		if !w.runnableCertain(full) {
			return w.add(out, w.unexplained(t.tid, s.from, s.to, w.m.unknownReason(full.from)))
		}
		return w.runnableUntilGap(out, t, s, full)
	case blocked:
		if len(w.stack) == 1 && w.outlier.Track == "wakeup" { // the tracker knows better
			return w.add(out, w.unexplained(t.tid, s.from, s.to, w.m.unknownReason(s.from)))
		}
		n := len(out)
		out = w.blockedSegment(out, t, s, full)
		tracked := len(w.stack) == 1 && w.outlier.Track == "offcpu"
		switch gap := w.m.gapIn(full.from, full.to) < full.to; {
		case gap && tracked && full.to > w.outlier.End && w.outlier.Cause != "timeout": // its end is missing
			return w.add(out[:n], w.unexplained(t.tid, s.from, s.to, reasonOverwritten))
		case gap:
			lessSure(out[n:], byGap)
		}
		return out
	}
	return w.add(out, w.unexplained(t.tid, s.from, s.to, w.m.unknownReason(s.from)))
}

// overlay splits [from, to] of a CPU into interruptions and the rest.
func (w *walker) overlay(n int, from, to uint64, covered func(o *interruption, from, to uint64), rest func(from, to uint64)) {
	var list []interruption
	if c := w.m.cpus[n]; c != nil {
		list = c.interruptions
	}
	split(list, from, to, covered, rest)
}

// split calls inside for each element of a list ordered by time that overlaps
// [from, to], clipped to it, and outside for the time between them.
func split[T interface{ bounds() (from, to uint64) }](list []T, from, to uint64, inside func(x *T, from, to uint64), outside func(from, to uint64)) {
	at := from
	i := sort.Search(len(list), func(i int) bool { _, end := list[i].bounds(); return end > from })
	for ; i < len(list); i++ {
		lo, hi := list[i].bounds()
		if lo >= to {
			break
		}
		if lo, hi = max(lo, at), min(hi, to); lo >= hi {
			continue
		}
		if lo > at {
			outside(at, lo)
		}
		inside(&list[i], lo, hi)
		at = hi
	}
	if at < to {
		outside(at, to)
	}
}

// interruptionPiece returns the piece of an interruption.
func (w *walker) interruptionPiece(tid, n int, o *interruption, from, to uint64, state string) piece {
	p := piece{from: from, to: to, task: tid, cpu: n, state: state, by: w.m.whoContext(o.context), sampled: o.sampled}
	if o.sampled {
		p.why = "sampled"
	}
	if o.placed || o.kind == KindHypervisor {
		p.evidence = byPlacing
	}
	switch o.kind {
	case KindSoftirq:
		p.cause = Softirq
	case KindHypervisor:
		p.cause = StolenTime
	default:
		p.cause = IRQ
	}
	return p
}

// runSegment explains time on a CPU.
func (w *walker) runSegment(out []piece, t *task, s *segment) []piece {
	n := int(s.cpu)
	w.overlay(n, s.from, s.to, func(o *interruption, from, to uint64) {
		out = w.add(out, w.interruptionPiece(t.tid, n, o, from, to, "interrupted"))
	}, func(from, to uint64) {
		out = w.splitMemoryWaits(out, t, n, from, to)
	})
	return out
}

// splitMemoryWaits separates reclaim and compaction from running time.
func (w *walker) splitMemoryWaits(out []piece, t *task, n int, from, to uint64) []piece {
	split(t.memoryWaits, from, to, func(e *memoryWait, from, to uint64) {
		out = w.add(out, piece{from: from, to: to, task: t.tid, cpu: n, state: "running", cause: e.cause, by: w.m.whoMemory(t, e)})
	}, func(from, to uint64) { out = w.splitLocks(out, t, n, from, to) })
	return out
}

// splitLocks separates spinning on kernel locks from running time.
func (w *walker) splitLocks(out []piece, t *task, n int, from, to uint64) []piece {
	split(t.lockWaits, from, to, func(l *lockWait, from, to uint64) {
		p := piece{from: from, to: to, task: t.tid, cpu: n, state: "running", cause: Locked, by: w.m.whoUnknown("an unknown holder"), why: "spinning on a kernel lock"}
		p.wait = lockKind(l.flags)
		if l.owner != 0 && l.owner != t.tid && !t.sleptSince(l.from, from) { // later it may be another's
			p.by, p.evidence = w.m.whoTask(l.owner), byOwner
			w.descend(&p, l.owner)
		}
		out = w.add(out, p)
	}, func(from, to uint64) { out = w.splitSpins(out, t, n, from, to) })
	return out
}

// sleptSince reports whether a task may have blocked between two times.
func (t *task) sleptSince(from, to uint64) bool {
	if t.segments[0].from > from {
		return true // what was before is not kept
	}
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].to > from })
	for ; i < len(t.segments) && t.segments[i].from < to; i++ {
		if t.segments[i].state == blocked {
			return true
		}
	}
	return false
}

// splitUserKernel splits running time into user and kernel.
func (w *walker) splitUserKernel(out []piece, t *task, n int, from, to uint64) []piece {
	add := func(from, to uint64, cause Cause, why string) {
		out = w.add(out, piece{from: from, to: to, task: t.tid, cpu: n, state: "running", cause: cause, by: w.m.whoTask(t.tid), why: why})
	}
	switch {
	case len(t.guests) > 0:
		split(t.guests, from, to, func(_ *call, from, to uint64) { add(from, to, RunningUser, "its guest ran") },
			func(from, to uint64) { add(from, to, RunningKernel, "outside its guest") })
	case len(w.stack) == 1 && w.outlier.Track == "syscall" && t.tid == w.outlier.TID, w.m.kernelThread(t.tid):
		add(from, to, RunningKernel, "")
	case !w.m.eventSeen[trace.SyscallEntry] && !w.m.eventSeen[trace.SyscallExit]:
		add(from, to, Running, "")
	default:
		split(t.calls, from, to, func(c *call, from, to uint64) { add(from, to, RunningKernel, w.m.callText(c.nr, c.name)) },
			func(from, to uint64) { add(from, to, RunningUser, "") })
	}
	return out
}

// descend explains a piece by what another task did meanwhile, unless that is on the path
// already.
func (w *walker) descend(p *piece, tid int) {
	w.descendInto(p, tid, func() []piece { return w.follow(tid, p.from, p.to) })
}

func (w *walker) descendInto(p *piece, tid int, below func() []piece) {
	if tid <= 0 || w.below > maxBelow || slices.Contains(w.stack, tid) || w.m.tasks[tid] == nil {
		return
	}
	if len(w.stack) >= maxDepth {
		p.cut = true
		return
	}
	p.below = below()
}

// lockWaitAt returns the lock wait at a time, or nil.
func (t *task) lockWaitAt(at uint64) *lockWait {
	i := sort.Search(len(t.lockWaits), func(i int) bool { return t.lockWaits[i].to > at })
	if i < len(t.lockWaits) && t.lockWaits[i].from <= at {
		return &t.lockWaits[i]
	}
	return nil
}

func (t *task) memoryWaitAt(at uint64) *memoryWait {
	i := sort.Search(len(t.memoryWaits), func(i int) bool { return t.memoryWaits[i].to > at })
	if i < len(t.memoryWaits) && t.memoryWaits[i].from <= at {
		return &t.memoryWaits[i]
	}
	return nil
}

// callAt returns the system call in which a task blocked: its number, trace.CallNone or
// trace.CallException.
func (t *task) callAt(s *segment) (nr int, name string) {
	if nr = int(s.call); nr == trace.CallException {
		return nr, ""
	}
	i := sort.Search(len(t.calls), func(i int) bool { return t.calls[i].to > s.from })
	if i < len(t.calls) && t.calls[i].from <= s.from && (nr < 0 || nr == t.calls[i].nr) {
		return t.calls[i].nr, t.calls[i].name
	}
	return nr, ""
}
