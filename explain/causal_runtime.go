package explain

import "sort"

// A runtime such as those of Go and Tokio runs its tasks on threads by turns. A task that becomes
// ready on one thread may go on at another that is awake: no wake-up tells of it, and what that
// other one waited for before is nobody's.

// runtimeThreads is how many threads tell a runtime.
const runtimeThreads = 2

// runtime reports whether a process has threads that run what a runtime gives them: they wait by
// turns for many with epoll, and for each other.
func (m *model) runtime(process int) bool {
	if is, known := m.runtimes[process]; known {
		return is
	}
	n := 0
	for _, tid := range m.threadsOf(process) {
		if x := m.habitsOf(tid); x.epoll && x.parks {
			n++
		}
	}
	m.runtimes[process] = n >= runtimeThreads
	return n >= runtimeThreads
}

// habits are how a thread of a runtime has waited.
type habits struct {
	epoll bool // for many
	parks bool // to be handed work
	naps  int  // by the clock
	waits int  // of any kind
}

func (m *model) habitsOf(tid int) habits {
	x, known := m.habits[tid]
	if known {
		return x
	}
	t := m.tasks[tid]
	last := len(t.before) + len(t.segments) - 1
	for i := last; i >= 0 && i > last-maxBack; i-- {
		s := t.kept(i)
		if s.state != blocked {
			continue
		}
		x.waits++
		x.parks = x.parks || s.mayBeIdle()
		if s.call >= 0 {
			call := m.syscall(int(s.call))
			x.epoll = x.epoll || epollCalls[call]
			if isSleep(call) {
				x.naps++
			}
		}
	}
	m.habits[tid] = x
	return x
}

// keeper reports whether a thread of a runtime looks after its others by the clock, as Go's sysmon
// does: whom it wakes had work before. Others nap now and then, before they take work from each other.
func (m *model) keeper(tid int) bool {
	x := m.habitsOf(tid)
	return 2*x.naps > x.waits && !x.epoll
}

// epollCalls are those with which the threads of a runtime wait for all of its files.
var epollCalls = map[string]bool{"epoll_wait": true, "epoll_pwait": true, "epoll_pwait2": true}

// elsewhere goes over to the thread of a runtime that was at work while the one of a level waited
// for a timer, or a keeper, and until it went on, and reports whether there is one. Of several, it
// is the one that was at work the longest.
func (b *backward) elsewhere(l *level, x *message) bool {
	if x.wake.ctx != nil && !x.s.byTimer() || !b.w.m.runtime(l.process) {
		return false
	}
	from := max(x.s.from, b.lo)
	wait := x.at - min(from, x.at)
	tid, work, most := 0, span{}, uint64(0)
	for _, other := range b.w.m.threadsOf(l.process) {
		if other == l.tid {
			continue
		}
		for s, ok := b.workBefore(other, l.at); ok && s.to >= x.at-wait/rightBefore; s, ok = b.workBefore(other, s.from) {
			during := min(s.to, x.at) - min(max(s.from, from), s.to, x.at)
			better := during > most || during == most && other < tid
			if better && during*2 > wait && !b.w.m.keeper(other) {
				tid, work, most = other, s, during
			}
		}
	}
	if tid == 0 {
		return false
	}
	b.own(l, work.to)
	l.tid = tid
	work.from = max(work.from, b.lo)
	b.doubt = byOtherThread
	b.own(l, work.from)
	return true
}

// workBefore returns the last stretch of a thread's work that it ended, or was at, at a time: from
// right after it had nothing to do, until it ran last.
func (b *backward) workBefore(tid int, at uint64) (work span, ok bool) {
	t := b.w.m.tasks[tid]
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].from >= at })
	for i--; i >= 0; i-- {
		s := &t.segments[i]
		if b.w.walked++; b.w.walked > maxWalked || s.state == unknown || ok && b.w.m.withoutWork(s) {
			break
		}
		if s.state == running && !ok {
			work.to, ok = min(s.to, at), true
		}
		work.from = s.from + 1
	}
	return work, ok
}

// withoutWork reports whether a segment is a wait of a thread for something to do, or may be.
func (m *model) withoutWork(s *segment) bool {
	switch {
	case s.state != blocked || s.iowait || s.held() || s.bits&taskUninterruptible != 0:
		return false
	case s.mayBeIdle(), s.futex.Known() && s.futex.Timed(), s.call < 0:
		return true
	}
	call := m.syscall(int(s.call))
	return multiplexing[call] || isSleep(call)
}
