package explain

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/tailcam/tailcam/snapshot/trace"
)

const (
	// leastHerd is how many others must have been woken at once with the slow task.
	leastHerd = 8
	herdTime  = 1_000_000
)

// thunderingHerd: one waker woke many tasks at once, and it waited for a CPU behind those.
func (l *look) thunderingHerd() *finding {
	behind := map[int]uint64{}
	var woken *wake
	if t := l.slow(); t != nil {
		from, to := l.span()
		var most uint64
		l.segmentsIn(t, from, to, func(s *segment, lo, hi uint64) {
			if s.state == runnable && s.wake != nil && hi-lo > most {
				most, woken = hi-lo, s.wake
			}
		})
	}
	if woken == nil {
		return nil
	}
	for i := range l.pieces {
		if p := &l.pieces[i]; p.behindTask() && p.from >= woken.at {
			behind[p.by.TID] += p.ns()
		}
	}
	if len(behind) == 0 {
		return nil
	}
	herd, ns := 0, uint64(0)
	for _, o := range l.m.tasks {
		if o.tid != l.outlier.TID && l.wokenWith(o, woken) {
			herd++
			ns += behind[o.tid]
		}
	}
	if herd < leastHerd || !l.most(ns) {
		return nil
	}
	return &finding{confidence: Seen, by: l.m.whoWoke(woken), why: fmt.Sprintf("%s woke %d others within %s of it, and those ran first for %s",
		describe(l.m.whoWoke(woken)), herd, duration(herdTime), duration(int64(ns)))}
}

// wokenWith reports whether what woke one task also woke another, at about that time.
func (l *look) wokenWith(t *task, wk *wake) bool {
	for i := t.segmentAt(wk.at - min(herdTime, wk.at)); i < len(t.segments) && t.segments[i].from <= wk.at+herdTime && l.spend(); i++ {
		x := t.segments[i].wake
		if t.segments[i].state != runnable || x == nil {
			continue
		}
		if at := max(x.at, wk.at) - min(x.at, wk.at); at <= herdTime && x.tid == wk.tid && x.ctx == wk.ctx && x.cpu == wk.cpu {
			return true
		}
	}
	return false
}

// noisyNeighbour: tasks of one other cgroup had what it waited for.
func (l *look) noisyNeighbour() *finding {
	if l.slow() == nil {
		return nil
	}
	f, _ := l.m.taskInfo(l.outlier.TID)
	own := f.quotaCgroup()
	if own == "" {
		return nil
	}
	sums, tasks := map[string]uint64{}, map[string]map[int]bool{}
	leaves(l.pieces, func(p *piece) {
		if p.task != l.outlier.TID || !p.behindTask() && (p.cause != BlockQueue || p.by.Kind != KindTask) ||
			p.by.Prio > 0 && p.by.Prio < realTime || l.m.kernelThread(p.by.TID) {
			return
		}
		of, _ := l.m.taskInfo(p.by.TID)
		c := of.quotaCgroup()
		if c == "" || c == "/" || within(c, own) || within(own, c) {
			return
		}
		if tasks[c] == nil {
			tasks[c] = map[int]bool{}
		}
		sums[c] += p.ns()
		tasks[c][p.by.TID] = true
	})
	for _, c := range slices.Sorted(maps.Keys(sums)) {
		if l.most(sums[c]) {
			return &finding{confidence: Seen, by: l.m.whoCgroup(c), why: fmt.Sprintf("%s of cgroup %s went first for %s; its own is %s",
				plural(len(tasks[c]), "task"), c, duration(int64(sums[c])), own)}
		}
	}
	return nil
}

// within reports whether a cgroup is another one or below it.
func within(path, of string) bool {
	return path == of || of == "/" || strings.HasPrefix(path, of+"/")
}

// idleWakeup: nothing but the idle CPU's own way back kept it.
func (l *look) idleWakeup() *finding {
	var ns uint64
	n := -1
	var from, to uint64
	for i := range l.pieces {
		p := &l.pieces[i]
		if p.cause == Runnable && p.by != nil && p.by.Kind == KindSelf && p.by.Name == "idle" {
			if ns += p.ns(); p.ns() > to-from {
				n, from, to = p.cpu, p.from, p.to
			}
		}
	}
	if !l.most(ns) {
		return nil
	}
	why := fmt.Sprintf("CPU %d was idle for %s after the wake-up", n, duration(int64(ns)))
	c := l.m.cpus[n]
	if c == nil {
		return nil
	}
	i := sort.Search(len(c.idles), func(i int) bool { return c.idles[i].at > from }) - 1
	if i < 0 || c.idles[i].state < 0 {
		return &finding{confidence: Inferred, why: why + "; its C-state is not recorded, and a virtual CPU may have waited for its host"}
	}
	return &finding{confidence: Seen, why: fmt.Sprintf("%s, in idle state %d", why, c.idles[i].state)}
}

// idleState is a CPU's idle state from a time on; -1: it is not idle.
type idleState struct {
	at    uint64
	state int
}

// ingestIdle keeps the idle states of CPUs, which the group power has.
func (m *model) ingestIdle(ev *trace.Event, b *trace.Idle) {
	if b.CPU < 0 || b.CPU >= maxCPUs {
		return
	}
	c := m.cpu(b.CPU)
	if n := len(c.idles); n > 0 && c.idles[n-1].at <= m.from {
		c.idles[n-1] = idleState{ev.Time, b.State}
	} else if m.reserve() {
		c.idles = append(c.idles, idleState{ev.Time, b.State})
	}
}

// cpuSaturation: it waited for a CPU behind its equals, and no CPU that it may use was idle.
func (l *look) cpuSaturation() *finding {
	t := l.slow()
	if t == nil {
		return nil
	}
	var ns uint64
	var waits []Interval
	others := map[int]uint64{}
	var largest uint64
	for i := range l.pieces {
		p := &l.pieces[i]
		if !p.behindTask() || p.by.Prio < realTime || l.m.kernelThread(p.by.TID) {
			continue
		}
		ns += p.ns()
		others[p.by.TID] += p.ns()
		largest = max(largest, others[p.by.TID])
		if n := len(waits); n > 0 && waits[n-1].To == p.from {
			waits[n-1].To = p.to
		} else {
			waits = append(waits, Interval{p.from, p.to})
		}
	}
	if !l.most(ns) || largest*4 > ns*3 { // of one task, that is not what the machine lacks
		return nil
	}
	cpus := l.allowed(t)
	var idle uint64
	for _, w := range waits {
		for _, n := range cpus {
			idle += l.idleOf(n, w.From, w.To)
		}
	}
	if len(cpus) == 0 || idle*10 > ns*uint64(len(cpus)) {
		return nil
	}
	wanted := l.wanted(waits, cpus)
	if float64(wanted) < 1.25*float64(ns)*float64(len(cpus)) {
		return nil
	}
	return &finding{confidence: Seen, why: fmt.Sprintf("%s that it may use: %.1f tasks to run on each, idle for %.0f %% of its wait",
		plural(len(cpus), "CPU"), float64(wanted)/float64(ns)/float64(len(cpus)), 100*float64(idle)/float64(ns)/float64(len(cpus)))}
}

// allowed returns the CPUs of the history that a task may use.
func (l *look) allowed(t *task) []int {
	f, ok := l.m.taskInfo(t.tid)
	var out []int
	for _, n := range slices.Sorted(maps.Keys(l.m.cpus)) {
		if !ok || f.CPUs == nil || slices.Contains(f.CPUs, n) {
			out = append(out, n)
		}
	}
	return out
}

// idleOf returns how long a CPU was idle, or unknown, in an interval.
func (l *look) idleOf(n int, from, to uint64) (ns uint64) {
	split(l.m.cpus[n].runs, from, to, func(r *run, from, to uint64) {
		if l.left--; r.tid <= 0 {
			ns += to - from
		}
	}, func(from, to uint64) { ns += to - from })
	return ns
}

// wanted adds up how long tasks ran or waited to run on CPUs, in intervals.
func (l *look) wanted(waits []Interval, cpus []int) (ns uint64) {
	on := map[int32]bool{}
	for _, n := range cpus {
		on[int32(n)] = true
	}
	for _, t := range l.m.tasks {
		for _, w := range waits {
			if l.left <= 0 {
				return ns
			}
			l.segmentsIn(t, w.From, w.To, func(s *segment, from, to uint64) {
				if (s.state == running || s.state == runnable) && on[s.cpu] {
					ns += to - from
				}
			})
		}
	}
	return ns
}
