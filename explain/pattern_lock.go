package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// hold is how long the holders of locks waited for a CPU that other tasks had.
type hold struct {
	ns         uint64
	holder, by *Who // of the longest such wait
	sure       Confidence
}

// heldUp adds up such waits of the holders of the locks that the slow task waited for. rank,
// if not nil, tells which count, by the priority that the slow task had and whom the holder
// waited behind.
func (l *look) heldUp(rank func(own int, by *Who) bool) hold {
	h := hold{sure: Seen}
	var most uint64
	for i := range l.pieces {
		p := &l.pieces[i]
		if p.cause != Locked || !p.wait.isLock() {
			continue
		}
		own, holder := l.prioAt(p), p.by
		visit(p.below, func(x *piece) bool {
			if x.behindTask() && (rank == nil || rank(own, x.by)) {
				if h.ns += x.ns(); x.ns() > most {
					most, h.holder, h.by = x.ns(), holder, x.by
				}
				if c := evidences[p.evidence].confidence; c.rank() > h.sure.rank() {
					h.sure = c
				}
			}
			if x.cause == Locked && x.wait.isLock() && x.by.Kind == KindTask {
				holder = x.by
			}
			return x.cause == Locked
		})
	}
	return h
}

// prioAt returns the kernel priority that a piece's task had; 0: not known.
func (l *look) prioAt(p *piece) int {
	t := l.m.tasks[p.task]
	if t == nil {
		return 0
	}
	if i := t.segmentAt(p.from); i < len(t.segments) {
		return t.prioIn(&t.segments[i])
	}
	return t.prio
}

// priorityInversion: whoever holds the lock waits for a CPU behind a task that the slow one
// goes before.
func (l *look) priorityInversion() *finding {
	h := l.heldUp(func(own int, by *Who) bool { return own != 0 && by.Prio > own })
	if !l.most(h.ns) {
		return nil
	}
	return &finding{by: h.by, holder: h.holder, confidence: h.sure, why: fmt.Sprintf("%s goes before %s, but waited for the lock of %s, which waited %s behind such tasks",
		l.r.Task.Name, h.by.Name, h.holder.Name, duration(int64(h.ns)))}
}

// preemptedHolder: whoever holds the lock waits for a CPU behind others.
func (l *look) preemptedHolder() *finding {
	h := l.heldUp(nil)
	if !l.most(h.ns) {
		return l.spunFor()
	}
	return &finding{by: h.by, holder: h.holder, confidence: h.sure, why: fmt.Sprintf("%s held the lock and waited for a CPU, %s of such waits in all",
		h.holder.Name, duration(int64(h.ns)))}
}

// leastConvoy is how many tasks must have handed a lock on.
const leastConvoy = 4

// turns is how long each holder had one lock, without the waits for the one before it.
type turns struct {
	own          map[*Who]uint64
	all, longest uint64
}

// lockConvoy: the lock went through the hands of many, none of which had it for long.
func (l *look) lockConvoy() *finding {
	locks := map[uint64]*turns{} // by address; 0: not recorded, of a futex
	visit(l.pieces, func(p *piece) bool {
		if p.cause == PageFault {
			return true
		}
		if p.cause != Locked || !p.wait.isLock() || p.by == nil || p.by.Kind != KindTask {
			return false
		}
		ns := p.ns()
		for i := range p.below {
			if x := &p.below[i]; x.cause == Locked && x.wait.isLock() {
				ns -= min(x.ns(), ns)
			}
		}
		addr := l.lockOf(p)
		if locks[addr] == nil {
			locks[addr] = &turns{own: map[*Who]uint64{}}
		}
		locks[addr].own[p.by] += ns
		return true
	})
	for _, addr := range slices.Sorted(maps.Keys(locks)) {
		x := locks[addr]
		for _, ns := range x.own {
			x.all += ns
			x.longest = max(x.longest, ns)
		}
		if len(x.own) < leastConvoy || x.longest*2 > x.all || !l.most(x.all) {
			continue
		}
		f := &finding{confidence: Seen, why: fmt.Sprintf("%d tasks had the lock in turn, %s each at most", len(x.own), duration(int64(x.longest)))}
		if addr == 0 {
			f.confidence = Inferred
			f.why += "; that it was the same one is not recorded"
		}
		return f
	}
	return nil
}

// lockOf returns the address of the lock that a piece waits for; 0: not recorded.
func (l *look) lockOf(p *piece) uint64 {
	if t := l.m.tasks[p.task]; t != nil {
		if x := t.lockWaitAt(p.from); x != nil {
			return x.lock
		}
	}
	return 0
}

// timedWaits is a series of waits of the slow task that a timer ended.
type timedWaits struct {
	count          int
	ns             uint64
	least, longest uint64
	from, to       uint64
}

// timedSeries returns the waits of the slow task that a timer ended, of those that count.
func (l *look) timedSeries(t *task, counts func(s *segment) bool) (x timedWaits) {
	from, to := l.span()
	l.segmentsIn(t, from, to, func(s *segment, lo, hi uint64) {
		if s.state != blocked || s.wake == nil || s.wake.ctx == nil || s.wake.request != nil || !isTimer(s.wake.ctx) || !counts(s) {
			return
		}
		if x.count == 0 {
			x.from, x.least = lo, hi-lo
		}
		x.count++
		x.ns += hi - lo
		x.to, x.least, x.longest = hi, min(x.least, hi-lo), max(x.longest, hi-lo)
	})
	return x
}

func isTimer(x *context) bool {
	return x.kind == KindTimer || x.kind == KindSoftirq && (x.number == softirqTimer || x.number == softirqHrtimer)
}

// Python's interpreter lock is asked for in waits of sys.getswitchinterval(), 5 ms unless a
// program has set it (take_gil in CPython's Python/ceval_gil.c).
const (
	leastInterval = 500_000
	mostInterval  = 50_000_000
)

// interpreterLock: a thread of Python waited for a condition in equal stretches, while
// another thread of its process ran.
func (l *look) interpreterLock() *finding {
	t := l.slow()
	if t == nil || !l.python(t) {
		return nil
	}
	x := l.timedSeries(t, func(s *segment) bool {
		return s.futex.Known() && s.futex.Timed() && s.futex.Op() == trace.FutexWaitBitset
	})
	if x.count < 2 || !l.most(x.ns) || x.least < leastInterval || x.longest > mostInterval || x.longest > x.least*2 {
		return nil
	}
	var all, most uint64
	var holder *task
	for _, o := range l.siblings(t) {
		var ran uint64
		l.segmentsIn(o, x.from, x.to, func(s *segment, from, to uint64) {
			if s.state != blocked && s.state != unknown { // it keeps the lock while it waits for a CPU
				ran += to - from
			}
		})
		if all += ran; ran > most || ran == most && holder != nil && o.tid < holder.tid {
			most, holder = ran, o
		}
	}
	if holder == nil || all*10 < (x.to-x.from)*9 {
		return nil
	}
	by := l.m.whoTask(holder.tid)
	return &finding{by: by, confidence: Inferred, why: fmt.Sprintf("%d timed waits of %s, while other threads of the process ran, mostly %s",
		x.count, duration(int64(x.ns)/int64(x.count)), by.Name)}
}

// python reports whether a task is of a Python program, by its name, its process's, or the
// user stack.
func (l *look) python(t *task) bool {
	names := []string{t.comm.String()}
	if p := l.m.tasks[t.pid]; p != nil {
		names = append(names, p.comm.String())
	}
	if f, ok := l.m.taskInfo(t.pid); ok {
		names = append(names, f.Comm)
	}
	for _, n := range names {
		if strings.HasPrefix(n, "python") || strings.HasPrefix(n, "pypy") {
			return true
		}
	}
	for _, f := range l.outlier.User[:min(len(l.outlier.User), 64)] {
		if strings.HasPrefix(f, "take_gil") || strings.HasPrefix(f, "_PyEval_") || strings.HasPrefix(f, "PyEval_") {
			return true
		}
	}
	return false
}

// leastRetries is how many sleeps make a loop; of those that are ever longer, the last is so
// many times as long as the first.
const (
	leastRetries  = 4
	backOffGrowth = 4
)

// sleepCalls are system calls in which a program waits for a time of its choice.
var sleepCalls = map[string]bool{
	"nanosleep": true, "clock_nanosleep": true, "poll": true, "ppoll": true, "select": true, "pselect6": true,
	"epoll_wait": true, "epoll_pwait": true, "epoll_pwait2": true, "rt_sigtimedwait": true, "semtimedop": true,
}

// retryLoop: it slept again and again, each time until a timer of its own; or one of its sleeps
// is the slow one, and those before it were ever longer.
func (l *look) retryLoop() *finding {
	t := l.slow()
	if t == nil || l.outlier.Track == "trigger" { // its time is not of one operation
		return nil
	}
	x := l.timedSeries(t, func(s *segment) bool { return l.ownSleep(t, s) })
	if x.count >= leastRetries && l.most(x.ns) && x.longest*10 <= x.ns*6 {
		return &finding{confidence: Inferred, why: fmt.Sprintf("it slept %d times until a timer, %s to %s, %s in all",
			x.count, duration(int64(x.least)), duration(int64(x.longest)), duration(int64(x.ns)))}
	}
	return l.backOff(t)
}

// ownSleep reports whether a wait is for a time that the program chose, and nobody ended it.
func (l *look) ownSleep(t *task, s *segment) bool {
	if l.seriesEnd(t, s) != nil {
		return false // it was woken in the end
	}
	if s.futex.Known() {
		return s.futex.Timed()
	}
	nr, name := t.callAt(s)
	if name == "" {
		name = l.m.syscall(nr)
	}
	return sleepCalls[name]
}

// backOff: the slow sleep is the last of some, each of which was at least about as long as the
// one before, with next to no work between them.
func (l *look) backOff(t *task) *finding {
	byItself := l.r.Blame.Cause == Timer || l.r.Blame.Wait == waits[waitFileLock].name
	if l.outlier.Track != "offcpu" || !byItself || !l.most(uint64(l.r.Blame.NS)) {
		return nil
	}
	from, to := l.span()
	i := t.segmentAt(from)
	for i < len(t.segments) && t.segments[i].state != blocked && t.segments[i].from < to {
		i++
	}
	if i == len(t.segments) || t.segments[i].from >= to || !l.ownSleep(t, &t.segments[i]) {
		return nil
	}
	last := t.segments[i].to - t.segments[i].from
	first, count, between := last, 1, uint64(0)
	for i--; i >= 0 && l.spend(); i-- {
		s := &t.segments[i]
		ns := s.to - s.from
		if s.state == running {
			between += ns
		}
		if s.state == running || s.state == runnable {
			continue
		}
		if !s.byTimer() || !l.ownSleep(t, s) || ns*4 > first*5 || between > ns {
			break
		}
		first, between = ns, 0
		count++
	}
	if count <= leastRetries || last < first*backOffGrowth {
		return nil
	}
	return &finding{confidence: Inferred, why: fmt.Sprintf("it slept %d times until a timer, ever longer, %s to %s, and did next to nothing between",
		count, duration(int64(first)), duration(int64(last)))}
}
