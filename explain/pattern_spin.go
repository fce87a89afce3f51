package explain

import (
	"fmt"
	"strings"
)

// spinsByName reports whether a function of a program waits for a lock without sleeping, as far
// as its name says.
func spinsByName(function string) bool {
	return strings.Contains(strings.ToLower(function), "spin") || function == "s_lock" || function == "perform_spin_delay" // PostgreSQL
}

// spunFor: samples of the slow task are in a function that spins, while one other thread of its
// process had lost its CPU to another task: perhaps that one has the lock. Nothing says so.
func (l *look) spunFor() *finding {
	b, slow := &l.r.Blame, l.slow()
	if slow == nil || b.Cause != Running && b.Cause != RunningUser || !l.most(uint64(b.NS)) || b.Site.Of < 2 || !spinsByName(b.Site.Function) {
		return nil
	}
	var holder *task
	var most, second uint64
	by := map[int]uint64{}
	for _, o := range l.siblings(slow) {
		ns, behind := l.lostCPU(o)
		if ns > most {
			holder, most, second, by = o, ns, most, behind
		} else {
			second = max(second, ns)
		}
	}
	if most*10 < uint64(b.NS)*8 || second*5 > most {
		return nil // it ran, or it may have been either
	}
	first := 0
	for tid, ns := range by {
		if tid > 0 && (ns > by[first] || ns == by[first] && tid < first) {
			first = tid
		}
	}
	if by[first]*2 < most || first == 0 {
		return nil
	}
	x := &finding{holder: l.m.whoTask(holder.tid), by: l.m.whoTask(first), confidence: Guess}
	x.why = fmt.Sprintf("it spins in %s by its samples, and %s of its process had lost its CPU to %s meanwhile", b.Site.Function, x.holder.Name, x.by.Name)
	return x
}

// lostCPU adds up for how long a thread waited for the CPU that it had lost while the slow task
// ran, and who had that CPU.
func (l *look) lostCPU(t *task) (ns uint64, behind map[int]uint64) {
	behind = map[int]uint64{}
	for i := range l.pieces {
		p := &l.pieces[i]
		if p.cause != Running && p.cause != RunningUser {
			continue
		}
		l.segmentsIn(t, p.from, p.to, func(s *segment, from, to uint64) {
			c := l.m.cpus[int(s.cpu)]
			if s.state != runnable || !s.preempted || c == nil {
				return
			}
			ns += to - from
			split(c.runs, from, to, func(r *run, from, to uint64) { behind[r.tid] += to - from }, func(uint64, uint64) {})
		})
	}
	return ns, behind
}
