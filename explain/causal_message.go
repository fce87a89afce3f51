package explain

import (
	"slices"
	"sort"
)

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
	tid     int // who sent it; 0: a timer, a packet from elsewhere, or a runtime's keeper
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
	b.loop(t, to)
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
		if by != 0 && x.process == own && m.runtime(own) && m.keeper(by) {
			x.tid, x.process = 0, 0
			return x, true
		}
		k, _ := b.w.futexKind(t, s)
		x.handed = by != 0 && x.process == own && !k.isLock() && k != waitJoin && b.receives(by, s.to, depth)
		return x, x.handed
	}
	if !m.waitsForInput(t, s) || by != 0 && m.kernelThread(by) {
		return x, false
	}
	switch many := m.waitsForMany(s) && b.loops[t.tid]; {
	case by == 0:
		return x, many && s.wake.ctx != nil && s.wake.protocol == nil && (s.byTimer() && !t.triesForLock(s) || s.wake.isPacket())
	case x.process == own:
		x.handed = many && b.receives(by, s.to, depth)
		return x, x.handed
	case many:
		return x, true
	}
	return x, b.onTheWay(x.process)
}

// onTheWay reports whether a process is one of those that the walk goes through now.
func (b *backward) onTheWay(process int) bool {
	return slices.ContainsFunc(b.levels, func(l level) bool { return l.process == process })
}

// loop finds out, and reports, whether a thread does all of its waiting in calls for many, except
// for disks, locks and helpers: otherwise these may be for one, with a time limit. What is done
// for one alone is in order. A thread of a runtime is one: its waits are those of several tasks.
func (b *backward) loop(t *task, to uint64) bool {
	is, known := b.loops[t.tid]
	if !known {
		process := b.w.process(t.tid)
		is = b.w.m.runtime(process) || !b.w.m.dedicated(process) && b.waitsForManyAlone(t, to)
		if b.loops == nil {
			b.loops = map[int]bool{}
		}
		b.loops[t.tid] = is
	}
	return is
}

// waitsForManyAlone reports whether a thread waited in calls for many alone until a time, except for
// disks, locks and helpers.
func (b *backward) waitsForManyAlone(t *task, to uint64) bool {
	for i := t.segmentAt(b.from); i < len(t.segments) && t.segments[i].from < to; i++ {
		s := &t.segments[i]
		b.w.walked++
		if s.state == blocked && s.call >= 0 && !s.iowait && !s.held() && s.bits&taskUninterruptible == 0 &&
			!isFutex(b.w.m.syscall(int(s.call))) && !b.w.m.waitsForMany(s) {
			return false
		}
	}
	return true
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
	for ; i < len(list) && list[i].at < to && b.w.walked <= maxWalked; i++ {
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

// sentBefore reports whether the sender of a message had sent another one since the wait began,
// other than right before it, as a part of the same.
func (b *backward) sentBefore(l *level, x *message) bool {
	t := b.w.m.tasks[l.tid]
	for i := t.segmentAt(b.from); i < len(t.segments) && t.segments[i].to < x.at; i++ {
		b.w.walked++
		if (x.at-t.segments[i].to)*shortWork <= x.at-b.lo {
			break
		}
		if y, ok := b.message(t, &t.segments[i], 0); ok && y.process == x.process {
			return true
		}
	}
	return false
}

// answered reports whether after a message the thread of a level woke others than the one that
// it is followed for, and whether it woke the sender, be it right after that one.
func (b *backward) answered(l *level, x *message) (others, sender bool) {
	b.replies(l.tid, x.at, l.at, func(_ *reply, p int) bool {
		sender = sender || p == x.process && p != l.target
		others = others || p != l.target && b.w.m.roleOf(p, l.process) != roleOther
		return true
	})
	return others, sender || x.process != l.target && b.answers(l, x.process, l.at, l.at+sameReplies)
}

// seldom is the least share of the time that a server does not work in which what it answers in
// one go with the sender of a message is most likely by that message.
const seldom = 10

// mayBeAnother reports whether a thread that answered the sender of a message, and then another
// one, may as well have got another message while it was awake.
func (b *backward) mayBeAnother(l *level, x *message) bool {
	t := b.w.m.tasks[l.tid]
	var awake uint64
	for i := t.segmentAt(b.lo); i < len(t.segments) && t.segments[i].from < l.at; i++ {
		if s := &t.segments[i]; s.state != blocked {
			awake += min(s.to, l.at) - max(s.from, b.lo)
		}
	}
	return awake*seldom > l.at-b.lo
}

// forOthers reports whether what a thread did from a message on, until it waited again, is known
// to have been for the sender.
func (b *backward) forOthers(l *level, x *message, until uint64) bool {
	if x.tid == 0 || x.handed {
		return false
	}
	return b.answers(l, x.process, x.at, until) ||
		x.process != b.waiter && b.w.m.roleOf(x.process, l.process) == roleClient
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
const stillAsking = 100_000

// awake counts those who may have sent a thread something while it worked on a message: whom it
// has ever answered or asked, and who were at work then for another reason than that it woke
// them. If it had asked the one, and that one went to sleep meanwhile, then with when that was.
// Regulars are those of them who have talked to it since the wait began, and nothing came of it.
func (b *backward) awake(l *level, x *message) (r message, n, regulars int) {
	asked := map[int]uint64{}
	b.replies(l.tid, 0, x.at, func(r *reply, _ int) bool {
		asked[r.tid] = r.at
		return true
	})
	for tid, q := range asked {
		p := b.w.process(tid)
		if p == x.process || p == b.waiter || p == l.target || !b.workedBy(tid, l, x.at) {
			continue
		}
		n++
		switch role := b.w.m.roleOf(p, l.process); {
		case role != roleClient && q >= b.from-min(b.from, stillAsking) && !b.answers(&level{tid: tid, process: p}, l.process, q, x.at):
			if at := b.w.m.fellAsleep(tid, x.at, l.at); at > r.at {
				r = message{at: at, tid: tid, process: p, why: x.why}
			}
		case role == roleClient && b.talked(l, p, x.at) >= regular:
			regulars++
		}
	}
	return r, n, regulars
}

// regular is how many messages from a client tell that the next one of it is not the one that
// somebody else waits for.
const regular = 3

// talked counts the messages of a process to the thread of a level from the beginning of the wait
// until a time.
func (b *backward) talked(l *level, process int, until uint64) (n int) {
	t := b.w.m.tasks[l.tid]
	for i := t.segmentAt(b.from); i < len(t.segments) && t.segments[i].to < until; i++ {
		b.w.walked++
		if x, ok := b.message(t, &t.segments[i], 0); ok && x.process == process {
			n++
		}
	}
	return n
}

// workedBy reports whether a task had a CPU between a time and now, other than because the
// thread of a level has woken it since.
func (b *backward) workedBy(tid int, l *level, from uint64) bool {
	t := b.w.m.tasks[tid]
	for i := t.segmentAt(from); i < len(t.segments) && t.segments[i].from < l.at; i++ {
		s := &t.segments[i]
		if b.w.walked++; s.state == running {
			return true
		}
		if s.state == blocked && s.wake != nil && s.to > from && b.w.m.sender(s.wake) == l.tid {
			return false
		}
	}
	return false
}

// owesReply reports whether the thread of a level had asked the sender of a message, which has
// sent nothing since that woke it.
func (b *backward) owesReply(l *level, x *message) bool {
	if b.w.m.roleOf(x.process, l.process) == roleClient {
		return false
	}
	var asked uint64
	b.replies(l.tid, b.from-min(b.from, stillAsking), x.at, func(r *reply, _ int) bool {
		if r.tid == x.tid {
			asked = r.at
		}
		return true
	})
	return asked != 0 && !b.answers(&level{tid: x.tid, process: x.process}, l.process, asked, x.at)
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
