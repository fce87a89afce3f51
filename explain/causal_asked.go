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
			if process != b.waiter && !slices.ContainsFunc(b.levels, func(o level) bool { return o.process == process }) {
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

// answerOf returns when a process last woke another between two times, and the thread which did;
// 0: none did. It may have done so before, too, as it took what it was asked.
func (b *backward) answerOf(process, other int, from, to uint64) (at uint64, by int) {
	for _, tid := range b.w.m.threadsOf(process) {
		b.replies(tid, from, to, func(r *reply, p int) bool {
			if p == other && r.at > at {
				at, by = r.at, tid
			}
			return true
		})
	}
	return at, by
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
		_, by := b.answerOf(process, l.process, b.from, x.at)
		switch {
		case by != 0 || ask.at >= x.at || m.roleOf(process, l.process) == roleClient:
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
	return b.deeper(l, &to, piece{wait: waitNoAnswer, evidence: byNoAnswer})
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
