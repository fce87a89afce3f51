package explain

import (
	"sort"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// piece is one stretch of the critical path, with what lies below it.
type piece struct {
	from, to uint64
	task     int
	cpu      int
	state    string
	cause    Cause
	by       *Who
	why      string
	reason   string // unexplained: why
	waker    *Who
	below    []piece
}

// walker follows the critical path of one outlier.
type walker struct {
	m       *model
	outlier *Outlier
	steps   int
	stack   []int // tasks that the path is in
	deepest int
}

// follow returns the pieces of [from, to] of a task, without a gap.
func (w *walker) follow(tid int, from, to uint64) []piece {
	var out []piece
	if from >= to {
		return nil
	}
	t := w.m.tasks[tid]
	if t == nil {
		return []piece{w.unexplained(tid, from, to, "the trace has no event of this task")}
	}
	at := from
	w.stack = append(w.stack, tid)
	defer func() { w.stack = w.stack[:len(w.stack)-1] }()
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].to > from })
	for ; i < len(t.segments) && at < to; i++ {
		s := t.segments[i]
		if s.from >= to {
			break
		}
		if s.from > at {
			out = append(out, w.unexplained(tid, at, s.from, w.m.why(at)))
		}
		s.from, s.to = max(s.from, at), min(s.to, to)
		if s.from >= s.to {
			continue
		}
		out = append(out, w.segment(t, &s, &t.segments[i])...)
		at = s.to
	}
	if at < to {
		out = append(out, w.unexplained(tid, at, to, w.m.why(at)))
	}
	return out
}

// why says why nothing is known of a moment.
func (m *model) why(at uint64) string {
	switch {
	case m.full:
		return "the trace has more events than are looked at"
	case at < m.begin || m.begin == 0:
		return "the history is too short"
	case m.damaged:
		return "the trace is damaged"
	}
	return "records are missing"
}

func (w *walker) unexplained(tid int, from, to uint64, reason string) piece {
	return piece{from: from, to: to, task: tid, cpu: -1, state: "unknown", cause: Unexplained, reason: reason, why: reason}
}

// segment explains one stretch; whole is the same, not cut to what is asked for.
func (w *walker) segment(t *task, s, whole *segment) []piece {
	w.steps++
	switch {
	case w.steps > maxSteps:
		return []piece{w.unexplained(t.tid, s.from, s.to, "the path has too many steps")}
	case s.state == running:
		return w.ran(t, s)
	case s.state == runnable:
		return w.waited(t, s)
	case s.state == blocked:
		return w.slept(t, s, whole)
	}
	reason := w.m.why(s.from)
	if s.from <= w.m.begin {
		reason = "the history is too short"
	}
	return []piece{w.unexplained(t.tid, s.from, s.to, reason)}
}

// overlay cuts [from, to] of a CPU into what interrupts took, and the rest.
func (w *walker) overlay(n int, from, to uint64, covered func(o *over, from, to uint64), rest func(from, to uint64)) {
	c := w.m.cpus[n]
	at := from
	if c != nil {
		i := sort.Search(len(c.overs), func(i int) bool { return c.overs[i].to > from })
		for ; i < len(c.overs) && c.overs[i].from < to; i++ {
			o := &c.overs[i]
			lo, hi := max(o.from, at), min(o.to, to)
			if lo >= hi {
				continue
			}
			if lo > at {
				rest(at, lo)
			}
			covered(o, lo, hi)
			at = hi
		}
	}
	if at < to {
		rest(at, to)
	}
}

// overPiece is time that an interrupt took.
func (w *walker) overPiece(t *task, n int, o *over, from, to uint64, state string) piece {
	p := piece{from: from, to: to, task: t.tid, cpu: n, state: state, by: w.m.whoOver(o)}
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

// ran is time on a CPU.
func (w *walker) ran(t *task, s *segment) []piece {
	var out []piece
	w.overlay(s.cpu, s.from, s.to, func(o *over, from, to uint64) {
		out = append(out, w.overPiece(t, s.cpu, o, from, to, "interrupted"))
	}, func(from, to uint64) {
		out = append(out, w.onCPU(t, s.cpu, from, to)...)
	})
	return out
}

// onCPU splits running time by what the task did there, as far as that is known.
func (w *walker) onCPU(t *task, n int, from, to uint64) []piece {
	var out []piece
	at := from
	add := func(from, to uint64, cause Cause) {
		if from < to {
			out = append(out, piece{from: from, to: to, task: t.tid, cpu: n, state: "running", cause: cause, by: w.m.whoTask(t.tid)})
		}
	}
	rest := func(from, to uint64) { w.kernelOrUser(t, from, to, add) }
	for _, e := range t.reclaims {
		lo, hi := max(e.from, at), min(e.to, to)
		if lo >= hi {
			continue
		}
		rest(at, lo)
		add(lo, hi, e.cause)
		at = hi
	}
	rest(at, to)
	return out
}

func (w *walker) kernelOrUser(t *task, from, to uint64, add func(from, to uint64, cause Cause)) {
	switch {
	case w.m.kernelThread(t.tid), len(w.stack) == 1 && w.outlier.Track == "syscall":
		add(from, to, RunningKernel)
		return
	case !w.m.syscalls:
		add(from, to, Running)
		return
	}
	at := from
	i := sort.Search(len(t.calls), func(i int) bool { return t.calls[i].to > from })
	for ; i < len(t.calls) && t.calls[i].from < to; i++ {
		lo, hi := max(t.calls[i].from, at), min(t.calls[i].to, to)
		add(at, lo, RunningUser)
		add(lo, hi, RunningKernel)
		at = max(at, hi)
	}
	add(at, to, RunningUser)
}

// waited is time ready to run.
func (w *walker) waited(t *task, s *segment) []piece {
	var out []piece
	w.overlay(s.cpu, s.from, s.to, func(o *over, from, to uint64) {
		out = append(out, w.overPiece(t, s.cpu, o, from, to, "runnable"))
	}, func(from, to uint64) {
		out = append(out, w.behind(t, s, from, to)...)
	})
	return out
}

// behind is time ready to run in which the CPU ran tasks.
func (w *walker) behind(t *task, s *segment, from, to uint64) []piece {
	var out []piece
	c := w.m.cpus[s.cpu]
	at := from
	add := func(from, to uint64, tid, prio int) {
		if from < to {
			out = append(out, w.behindOne(t, s, from, to, tid, prio)...)
		}
	}
	if c != nil {
		i := sort.Search(len(c.runs), func(i int) bool { return c.runs[i].to > from })
		for ; i < len(c.runs) && c.runs[i].from < to; i++ {
			r := &c.runs[i]
			lo, hi := max(r.from, at), min(r.to, to)
			if lo >= hi {
				continue
			}
			add(at, lo, -1, 0)
			add(lo, hi, r.tid, r.prio)
			at = hi
		}
	}
	add(at, to, -1, 0)
	return out
}

func (w *walker) behindOne(t *task, s *segment, from, to uint64, tid, prio int) []piece {
	p := piece{from: from, to: to, task: t.tid, cpu: s.cpu, state: "runnable"}
	switch {
	case s.throttled && tid != t.tid && (tid <= 0 || !rtPrio(prio)):
		p.cause, p.by = Throttled, w.m.whoCgroup(t.tid)
	case tid < 0:
		p.cause, p.reason = Unexplained, w.m.why(from)
		p.why = p.reason
	case tid == 0:
		p.cause, p.by, p.why = Runnable, &Who{Kind: KindSelf, Name: "idle"}, "the CPU was idle and had to take it up"
	case tid == t.tid:
		p.cause, p.by = Runnable, &Who{Kind: KindSelf, Name: "switch"}
	case goesFirst(prio, t.prio):
		p.cause, p.by = Preempted, w.m.whoRan(tid, prio)
	default:
		p.cause, p.by = Runnable, w.m.whoRan(tid, prio)
		return w.misplaced(t, s, p)
	}
	return []piece{p}
}

func rtPrio(prio int) bool { return prio < 100 }

// goesFirst tells whether a task of one priority goes before one of another:
// the smaller one of the kernel's numbers.
func goesFirst(prio, than int) bool { return prio < than }

// A wait shorter than this is no wrong placement: balancing takes its time.
const placement = 100_000

// misplaced cuts a wait behind tasks of the same rank by whether another CPU,
// on which the task may run, was idle meanwhile.
func (w *walker) misplaced(t *task, s *segment, p piece) []piece {
	if s.to-s.from < placement {
		return []piece{p}
	}
	idle := w.m.idle(t.tid, s.cpu, p.from, p.to)
	if idle == nil {
		return []piece{p}
	}
	var out []piece
	at := p.from
	for _, i := range idle {
		if i.from > at {
			q := p
			q.from, q.to = at, i.from
			out = append(out, q)
		}
		q := p
		q.from, q.to, q.cause, q.why = i.from, i.to, Misplaced, i.name
		out = append(out, q)
		at = i.to
	}
	if at < p.to {
		q := p
		q.from = at
		out = append(out, q)
	}
	return out
}

// lockedBy finds the wait for a lock of the kernel that covers a moment.
func (t *task) lockedBy(at uint64) *locking {
	for i := range t.locks {
		if l := &t.locks[i]; l.from <= at && at < l.to {
			return l
		}
	}
	return nil
}

func (t *task) effortAt(at uint64) Cause {
	for _, e := range t.reclaims {
		if e.from <= at && at < e.to {
			return e.cause
		}
	}
	return ""
}

// inCall is the system call that a task is in at a moment, trace.CallNone or
// trace.CallException.
func (t *task) inCall(s *segment) int {
	if s.call != trace.CallNone {
		return s.call
	}
	i := sort.Search(len(t.calls), func(i int) bool { return t.calls[i].to > s.from })
	if i < len(t.calls) && t.calls[i].from <= s.from {
		return t.calls[i].nr
	}
	return trace.CallNone
}
