package explain

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// runnableSegment explains runnable time.
func (w *walker) runnableSegment(out []piece, t *task, s, full *segment) []piece {
	n := int(s.cpu)
	w.overlay(n, s.from, s.to, func(o *interruption, from, to uint64) {
		out = w.add(out, w.interruptionPiece(t.tid, n, o, from, to, "runnable"))
	}, func(from, to uint64) {
		out = w.runnableBehind(out, t, s, full, from, to)
	})
	return out
}

// runnableBehind explains runnable time by the tasks that ran on the CPU.
func (w *walker) runnableBehind(out []piece, t *task, s, full *segment, from, to uint64) []piece {
	var runs []run
	if c := w.m.cpus[int(s.cpu)]; c != nil {
		runs = c.runs
	}
	split(runs, from, to, func(r *run, from, to uint64) { out = w.runnableBehindTask(out, t, s, full, from, to, r.tid, r.prio) },
		func(from, to uint64) { out = w.runnableBehindTask(out, t, s, full, from, to, unknownTask, 0) })
	return out
}

// runnableBehindTask explains runnable time behind one task; tid 0: idle, -1: unknown.
func (w *walker) runnableBehindTask(out []piece, t *task, s, full *segment, from, to uint64, tid, prio int) []piece {
	p := piece{from: from, to: to, task: t.tid, cpu: int(s.cpu), state: "runnable"}
	until, sure := w.m.throttled(t, s, full, from, to, tid == 0)
	if !sure {
		p.evidence = byQuota
	}
	if until > from {
		q := p
		q.to, q.cause, q.by = until, Throttled, w.m.whoQuota(t)
		out = w.add(out, q)
		if p.from = until; p.from >= p.to {
			return out
		}
	}
	switch {
	case tid == t.tid:
		p.cause, p.by = Runnable, w.m.whoSelf("switch")
	case tid < 0:
		p.cause, p.reason = Unexplained, w.m.unknownReason(from)
		p.why = p.reason
	case t.prioIn(s) < 0 && (tid == 0 || prio > t.prioIn(s)) && full.preempted && full.to-full.from > minRTLimit:
		p.cause, p.wait, p.by, p.evidence = Limited, waitDLRuntime, w.m.whoSelf("SCHED_DEADLINE"), byLowerInstead
	case (tid == 0 || prio >= realTime) && t.isRealTime(s) && full.preempted && full.to-full.from > minRTLimit:
		p.cause, p.wait, p.by, p.evidence = Limited, waitRTRuntime, w.m.whoSelf("rt"), byLowerInstead
	case tid == 0:
		p.cause, p.by, p.why = Runnable, w.m.whoSelf("idle"), "the idle CPU had to wake up"
	case prio < t.prioIn(s):
		p.cause, p.by = Preempted, w.m.whoAtPrio(tid, prio)
	case t.prioIn(s) < realTime && prio > t.prioIn(s):
		p.cause, p.by, p.why = Runnable, w.m.whoAtPrio(tid, prio), "which has a lower priority, but was in the kernel with interrupts or preemption off"
	default:
		p.cause, p.by = Runnable, w.m.whoAtPrio(tid, prio)
		return w.misplaced(out, t, full, p)
	}
	return w.add(out, p)
}

// realTime is the lowest kernel priority that is not a real-time one.
const realTime = 100

// prioIn returns a task's kernel priority in a segment; lower values go first.
func (t *task) prioIn(s *segment) int {
	if s.prio != 0 {
		return int(s.prio)
	}
	return t.prio
}

// throttled returns until when in [from, to] the task's cgroup is throttled, or 0, and whether
// that is sure. If it is not, an idle CPU tells.
func (m *model) throttled(t *task, s, full *segment, from, to uint64, idle bool) (until uint64, sure bool) {
	c := m.cpus[int(s.cpu)]
	if c == nil || len(c.quota) == 0 {
		if full.throttled {
			return to, true
		}
		return 0, true
	}
	sure = true
	last := sort.Search(len(c.quota), func(i int) bool { return c.quota[i].from > from }) - 1
	for i := last; i >= max(0, last-maxQuotas); i-- {
		q := &c.quota[i]
		if q.to <= from || q.tid == 0 {
			continue
		}
		same, known := m.sameCgroup(q.tid, t.tid)
		switch {
		case q.tid == t.tid || t.pid != 0 && q.pid == t.pid || same:
			return min(q.to, to), true
		case !known && idle:
			return min(q.to, to), false
		case !known:
			sure = false
		}
	}
	return 0, sure
}

// sameCgroup reports whether two tasks have the same CPU quota, and whether that is known.
func (m *model) sameCgroup(a, b int) (same, known bool) {
	fa, ok := m.taskInfo(a)
	fb, also := m.taskInfo(b)
	x, y := m.throttledCgroup(&fa), m.throttledCgroup(&fb)
	known = ok && also && x != "" && y != ""
	return known && x == y, known
}

// minMisplaced is the shortest wait called misplaced: load balancing takes time.
const minMisplaced = 100_000

// misplaced splits a wait behind tasks of equal priority by whether another CPU was
// idle.
func (w *walker) misplaced(out []piece, t *task, full *segment, p piece) []piece {
	if full.to-full.from < minMisplaced {
		return w.add(out, p)
	}
	idles := w.idleTimes()
	at := p.from
	i := sort.Search(len(idles), func(i int) bool { return idles[i].to > p.from })
	for ; i < len(idles) && idles[i].from < p.to; i++ {
		lo, hi := max(idles[i].from, at), min(idles[i].to, p.to)
		if hi < lo+minMisplaced/10 {
			continue // too short to matter
		}
		q := p
		q.from, q.to = at, lo
		out = w.add(out, q)
		q.from, q.to, q.cause, q.why = lo, hi, Misplaced, w.m.idleText(t.tid, idles[i].cpu)
		out = w.add(out, q)
		at = hi
	}
	p.from = at
	return w.add(out, p)
}

// idle is an interval in which a CPU was idle.
type idle struct {
	from, to uint64
	cpu      int
}

// idleTimes returns the intervals in which some CPU was idle, without overlap; each
// names the CPU that stayed idle longest.
func (w *walker) idleTimes() []idle {
	if w.idlesKnown {
		return w.idles
	}
	w.idlesKnown = true
	var all []idle
	for n, c := range w.m.cpus {
		i := sort.Search(len(c.runs), func(i int) bool { return c.runs[i].to > w.outlier.Start })
		for ; i < len(c.runs) && c.runs[i].from < w.outlier.End; i++ {
			if r := &c.runs[i]; r.tid == 0 {
				all = append(all, idle{from: r.from, to: r.to, cpu: n})
			}
		}
	}
	slices.SortFunc(all, func(a, b idle) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to), cmp.Compare(a.cpu, b.cpu))
	})
	var end uint64
	for _, i := range all {
		if i.to <= end {
			continue
		}
		i.from = max(i.from, end)
		end = i.to
		w.idles = append(w.idles, i)
	}
	return w.idles
}

// idleText describes whether a waiting task could have used an idle CPU.
func (m *model) idleText(tid, n int) string {
	f, ok := m.taskInfo(tid)
	switch {
	case !ok || f.CPUs == nil:
		return fmt.Sprintf("while CPU %d was idle", n)
	case slices.Contains(f.CPUs, n):
		return fmt.Sprintf("while CPU %d, on which it may run, was idle", n)
	}
	return fmt.Sprintf("while CPU %d was idle, on which it may not run", n)
}
