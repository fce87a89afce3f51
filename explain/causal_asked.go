package explain

import (
	"cmp"
	"slices"
)

// asks are the wake-ups of other processes, which are not on the way, by that of a level since the
// wait began, in order of time.
func (b *backward) asks(l *level) map[int][]reply {
	out := map[int][]reply{}
	for _, tid := range b.w.m.threadsOf(l.process) {
		b.replies(tid, b.from-min(b.from, stillAsking), l.at, func(r *reply, process int) bool {
			if process != b.waiter && !b.onTheWay(process) {
				out[process] = append(out[process], *r)
			}
			return true
		})
	}
	for _, asks := range out {
		slices.SortFunc(asks, func(x, y reply) int { return cmp.Compare(x.at, y.at) })
	}
	return out
}

// spokeFirst reports whether a process is a client of that of a level, or, if that is not known,
// woke it before it was woken by it: then it was answered.
func (b *backward) spokeFirst(l *level, process int, woken uint64) bool {
	switch b.w.m.roleOf(process, l.process) {
	case roleClient:
		return true
	case roleOther:
		return false
	}
	_, _, by := b.answerOf(process, l.process, b.from-min(b.from, stillAsking), woken)
	return by != 0
}

// rightBefore is the share of a wait in which at its end somebody may have ended it.
const rightBefore = 16

// asked goes over to the process that the one of a level asked since the wait began, and that
// answered right before the level's thread went on, and reports whether there is one: for more than
// half of the time, and of several the one that took the longest. A client is one if the last
// message is from it, as a worker that gets its work from a broker.
func (b *backward) asked(l *level, last *message) bool {
	wait := l.at - b.lo
	var most uint64
	var x message
	all := b.asks(l)
	for process, asks := range all {
		client := b.spokeFirst(l, process, asks[0].at)
		if client && process != last.process {
			continue
		}
		for i := range asks {
			from, until := asks[i].at, l.end
			if i+1 < len(asks) {
				until = asks[i+1].at
			}
			first, at, by := b.answerOf(process, l.process, from, until)
			if client {
				at = first
			}
			at = min(at, l.at)
			if by == 0 || at < l.at-wait/rightBefore || (at-min(from, at))*2 <= wait {
				continue
			}
			if took := at - from; took > most || took == most && by < x.tid {
				most, x = took, message{at: at, tid: by, process: process}
			}
		}
	}
	doubt := byAnswer
	if x.tid == 0 && last.tid == 0 {
		x, doubt = b.unheard(l, all), byUnheard
	}
	if x.tid == 0 || slices.Contains(b.w.stack, x.tid) {
		return false
	}
	b.own(l, x.at)
	b.doubt = doubt
	return b.deeper(l, &x, piece{})
}

// unheard returns the message of the one task of those that the process of a level asked which went
// on after most of the time, right before the level's thread did: no wake-up tells of an answer to
// those who are awake.
func (b *backward) unheard(l *level, all map[int][]reply) (x message) {
	wait := l.at - b.lo
	for process, asks := range all {
		ask := asks[len(asks)-1]
		if b.w.m.besides(process, l.process) || b.spokeFirst(l, process, asks[0].at) {
			continue
		}
		wentOn, done := b.wentOn(ask.tid, ask.at, l.end)
		if wentOn < l.at-wait/rightBefore || (wentOn-ask.at)*2 <= wait {
			continue
		}
		if x.tid != 0 {
			return message{}
		}
		x = message{at: min(done, l.at), tid: ask.tid, process: process}
	}
	return x
}

// wentOn returns when a wait of a task ended that took more than half of the time since it was
// asked, and until when it was at work then; 0: there was none.
func (b *backward) wentOn(tid int, asked, to uint64) (at, done uint64) {
	t := b.w.m.tasks[tid]
	for i := t.segmentAt(asked); i < len(t.segments) && t.segments[i].from < to; i++ {
		b.w.walked++
		s := &t.segments[i]
		switch {
		case s.state == unknown:
			return 0, 0
		case s.state != blocked:
		case s.from > asked && s.to < to && (s.to-s.from)*2 > to-asked:
			at, done = s.to, to
		case at != 0 && done == to && s.from > at:
			done = s.from
		}
	}
	return at, done
}

// answerOf returns when a process first and last woke another between two times, and the thread
// which did that; 0: none did. The first time may have been as it took what it was asked.
func (b *backward) answerOf(process, other int, from, to uint64) (first, at uint64, by int) {
	for _, tid := range b.w.m.threadsOf(process) {
		b.replies(tid, from, to, func(r *reply, p int) bool {
			if p == other && r.at > at {
				at, by = r.at, tid
			}
			if p == other && (first == 0 || r.at < first) {
				first = r.at
			}
			return true
		})
	}
	return first, at, by
}

// inVain goes over to the one process that the one of a level has asked since the wait began, and
// that did not answer until a time limit of the level's thread was over; it reports whether there
// is one. Who spoke first is a client, and was answered itself. Of several, whom it asked since its
// time limit before counts: it did not wait any longer for those that it asked earlier.
func (b *backward) inVain(l *level, x *message) bool {
	m := b.w.m
	if !x.s.byTimer() || b.w.timerKind(m.tasks[l.tid], x.wake, x.s, m.syscall(int(x.s.call))) != waitTimeLimit {
		return false
	}
	since := b.timerBefore(l.tid, x)
	var last, earlier []reply
	for process, asks := range b.asks(l) {
		ask := asks[len(asks)-1]
		switch {
		case ask.at >= x.at || m.besides(process, l.process) || b.spokeFirst(l, process, asks[0].at) || b.answeredSince(l, process, x.at):
		case ask.at >= since:
			last = append(last, ask)
		default:
			earlier = append(earlier, ask)
		}
	}
	if len(last) == 0 {
		last = earlier
	}
	if len(last) != 1 {
		return false
	}
	tid := last[0].tid
	if t := m.tasks[tid]; t == nil || t.ended() || slices.Contains(b.w.stack, tid) {
		return false
	}
	b.own(l, x.at)
	to := message{at: x.at, tid: tid, process: b.w.process(tid), why: x.why}
	p := piece{wait: waitNoAnswer, evidence: byNoAnswer}
	_, _, by := b.answerOf(to.process, l.process, x.at, l.end)
	wentOn, _ := b.wentOn(tid, last[0].at, l.end)
	switch { // the time limit was for something else
	case by != 0:
		p = piece{evidence: byAnswer}
	case wentOn >= x.at-(x.at-b.lo)/rightBefore:
		p = piece{evidence: byUnheard}
	}
	b.doubt = p.evidence
	return b.deeper(l, &to, p)
}

// answeredSince reports whether a process woke that of a level since the wait began, and that went
// on to wake somebody: who reads from a UNIX socket wakes its other end for room alone. In a runtime,
// another thread may go on.
func (b *backward) answeredSince(l *level, process int, to uint64) (found bool) {
	if b.w.m.runtime(l.process) {
		_, _, by := b.answerOf(process, l.process, b.from, to)
		return by != 0
	}
	for _, tid := range b.w.m.threadsOf(process) {
		b.replies(tid, b.from, to, func(r *reply, p int) bool {
			found = p == l.process && b.wakesSomebody(r.tid, r.at, to)
			return !found
		})
		if found {
			return true
		}
	}
	return false
}

// wakesSomebody reports whether a task woke one of another process between two times, before it
// waited again.
func (b *backward) wakesSomebody(tid int, from, to uint64) (found bool) {
	t := b.w.m.tasks[tid]
	for i := t.segmentAt(from); i < len(t.segments) && t.segments[i].from < to; i++ {
		b.w.walked++
		if s := &t.segments[i]; s.state == blocked && s.from > from {
			to = s.from
		}
	}
	b.replies(tid, from, to, func(*reply, int) bool {
		found = true
		return false
	})
	return found
}

// timerBefore returns when a timer last ended a wait of a thread before the one that a message
// ended; 0: none did.
func (b *backward) timerBefore(tid int, x *message) uint64 {
	before, ok := b.last(tid, x.s.from)
	for ok && (before.tid != 0 || !before.s.byTimer()) {
		before, ok = b.last(tid, before.s.from)
	}
	if !ok {
		return 0
	}
	return before.at
}
