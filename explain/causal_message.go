package explain

import "sort"

// maxWalked bounds the segments that are looked at for messages, of one outlier.
const maxWalked = 1 << 22

// multiplexing are the system calls in which a thread waits for all that it serves at once:
// what it did before such a wait, and what it does afterwards, need not be for the same.
var multiplexing = map[string]bool{
	"poll": true, "ppoll": true, "select": true, "pselect6": true,
	"epoll_wait": true, "epoll_pwait": true, "epoll_pwait2": true, "io_uring_enter": true,
}

// message is what ended a wait of a thread that may do something else afterwards.
type message struct {
	s       *segment // the wait
	wake    *wake
	at      uint64
	tid     int // who sent it; 0: a timer, or a packet from elsewhere
	process int
	handed  bool // by a thread of the same process that waits for messages
	why     string
}

// last finds the last message that a thread got before a time.
func (b *backward) last(tid int, to uint64) (message, bool) {
	t := b.w.m.tasks[tid]
	if t == nil {
		return message{}, false
	}
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].to >= to })
	for i--; i >= 0; i-- {
		s := &t.segments[i]
		if b.w.walked++; b.w.walked > maxWalked || s.state == unknown || s.to <= b.lo {
			break
		}
		if x, ok := b.message(t, s, 0); ok {
			return x, true
		}
	}
	return message{}, false
}

// message reports whether a segment is a wait that a message ended after which the thread may
// do something else.
func (b *backward) message(t *task, s *segment, depth int) (message, bool) {
	m := b.w.m
	if s.state != blocked || s.wake == nil || s.from == s.to {
		return message{}, false
	}
	by, own := m.sender(s.wake), b.w.process(t.tid)
	x := message{s: s, wake: s.wake, at: s.to, tid: by, process: b.w.process(by), why: m.callText(int(s.call), "")}
	if s.mayBeIdle() {
		k, _ := b.w.futexKind(t, s)
		x.handed = by != 0 && x.process == own && !k.isLock() && k != waitJoin && b.receives(by, s.to, depth)
		return x, x.handed
	}
	if !m.waitsForInput(t, s) || by != 0 && m.kernelThread(by) {
		return x, false
	}
	switch many := m.waitsForMany(s); {
	case by == 0:
		return x, many && (s.byTimer() || s.wake.isPacket())
	case x.process == own:
		x.handed = many && b.receives(by, s.to, depth)
		return x, x.handed
	case many:
		return x, true
	}
	for i := range b.levels {
		if b.levels[i].process == x.process {
			return x, true
		}
	}
	return x, false
}

// waitsForMany reports whether a wait for input is one for all that the thread serves.
func (m *model) waitsForMany(s *segment) bool {
	return s.call >= 0 && multiplexing[m.syscall(int(s.call))]
}

// receives reports whether the last wait of a thread for something to do was one for messages,
// or for such a thread.
func (b *backward) receives(tid int, before uint64, depth int) bool {
	t := b.w.m.tasks[tid]
	if t == nil || depth >= maxHandedOver {
		return false
	}
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].to >= before })
	for i += len(t.before) - 1; i >= 0; i-- {
		s := t.kept(i)
		switch b.w.walked++; {
		case b.w.walked > maxWalked || s.state == unknown:
			return false
		case s.state != blocked || s.wake == nil:
		case s.mayBeIdle():
			if by := b.w.m.sender(s.wake); by != 0 && b.w.process(by) == b.w.process(tid) {
				return b.receives(by, s.to, depth+1)
			}
		case b.w.m.waitsForInput(t, s) && b.w.m.waitsForMany(s):
			return true
		}
	}
	return false
}

// replies calls do for each task of another process that a thread woke between two times from a
// wait for input, until that returns false.
func (b *backward) replies(tid int, from, to uint64, do func(r *reply, process int) bool) {
	list := b.w.m.repliesOf(tid)
	own := b.w.process(tid)
	i := sort.Search(len(list), func(i int) bool { return list[i].at > from })
	for ; i < len(list) && list[i].at < to; i++ {
		b.w.walked++
		if p := b.w.process(list[i].tid); p != own && !b.w.m.kernelThread(list[i].tid) && !do(&list[i], p) {
			return
		}
	}
}

// answers reports whether the thread of a level woke a process between two times.
func (b *backward) answers(l *level, process int, from, to uint64) (found bool) {
	b.replies(l.tid, from, to, func(_ *reply, p int) bool {
		found = p == process
		return !found
	})
	return found
}

// answersOthers reports whether the thread of a level woke others than the one that it is
// followed for, after a message, or the sender right after that one.
func (b *backward) answersOthers(l *level, x *message) (found bool) {
	b.replies(l.tid, x.at, l.at, func(_ *reply, p int) bool {
		found = p != l.target && b.w.m.roleOf(p, l.process) != roleOther
		return !found
	})
	return found || x.process != l.target && b.answers(l, x.process, l.at, l.at+sameReplies)
}

// forOthers reports whether what a thread did from a message on, until it waited again, is known
// to have been for the sender.
func (b *backward) forOthers(l *level, x *message, until uint64) bool {
	if x.tid == 0 || x.handed {
		return false
	}
	return b.answers(l, x.process, x.at, until) || x.process != b.waiter && b.w.m.roleOf(x.process, l.process) == roleClient
}

// mayHaveAsked reports whether a level's process ran between two times.
func (b *backward) mayHaveAsked(l *level, from, to uint64) bool {
	for _, tid := range b.w.m.threadsOf(l.process) {
		t := b.w.m.tasks[tid]
		for i := t.segmentAt(from); i < len(t.segments) && t.segments[i].from < to; i++ {
			if b.w.walked++; t.segments[i].state == running {
				return true
			}
		}
	}
	return false
}

// threadsOf returns the threads of a process.
func (m *model) threadsOf(process int) []int {
	if m.threads == nil {
		m.threads = map[int][]int{}
		for tid := range m.tasks {
			p := m.pidOf(tid)
			if p == 0 {
				p = tid
			}
			m.threads[p] = append(m.threads[p], tid)
		}
	}
	return m.threads[process]
}

// stillAsking is how long before it waits a task may have asked.
const stillAsking = stillAsked

// rival finds who else may have sent what made a thread go on, while it worked on a message: the
// only one that it had asked before, and that ended its work on that meanwhile.
func (b *backward) rival(l *level, x *message) (r message, ok bool) {
	asked := map[int]uint64{}
	since := b.from - min(b.from, stillAsking)
	b.replies(l.tid, since, x.at, func(r *reply, _ int) bool {
		asked[r.tid] = r.at
		return true
	})
	n := 0
	for tid, q := range asked {
		p := b.w.process(tid)
		if p == x.process || p == b.waiter || p == l.target || b.w.m.roleOf(p, l.process) == roleClient {
			continue
		}
		at := b.w.m.fellAsleep(tid, x.at, l.at)
		if at == 0 {
			continue
		}
		o := &level{tid: tid}
		if b.answers(o, l.process, q, x.at) {
			continue
		}
		n++
		r = message{at: at, tid: tid, process: p, why: x.why}
	}
	return r, n == 1
}

// fellAsleep returns when a task ended its work between two times, of which it has done some; 0:
// it did not.
func (m *model) fellAsleep(tid int, from, to uint64) uint64 {
	t := m.tasks[tid]
	for i := t.segmentAt(from); i < len(t.segments) && t.segments[i].from < to; i++ {
		switch s := &t.segments[i]; {
		case s.state != blocked || !m.waitsForInput(t, s):
		case s.from <= from:
			return 0
		default:
			return s.from
		}
	}
	return 0
}
