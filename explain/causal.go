package explain

import (
	"cmp"
	"slices"
)

// backward is a walk back in time from the moment in which a task woke another: through the
// messages without which it would not have done so. What a thread does for others, between the
// messages of those, is left out.
type backward struct {
	w        *walker
	from, lo uint64 // lo: what the first thread has read by then is known
	waiter   int    // process
	levels   []level
	loops    map[int]bool // see loop
	unsure   bool         // records of the first thread are missing
	doubt    evidence     // what all before now rests on, as a guess about what came later
}

// level is a process on the way, and the thread of it that is followed until at.
type level struct {
	tid, process int
	at           uint64
	end          uint64 // when it sent its message to the level above
	target       int    // process that it wakes at at
	wait         piece  // of the level above, for this one
	chunks       [][]piece
}

// descendCauses explains a wait for another task by what led to the wake-up.
func (w *walker) descendCauses(p *piece, full *segment, tid int) {
	w.descendInto(p, tid, func() []piece {
		b := &backward{w: w, from: min(max(full.from, w.m.from), p.from), waiter: w.process(p.task)}
		serves := full.wake.at == full.to && b.servesOthers(tid, full.to)
		if !serves || b.unsure {
			below := w.follow(tid, p.from, p.to)
			if serves {
				below = doubted(below, byOneOfMessages)
			}
			return below
		}
		return clipped(b.walk(tid, full.to), p.from, p.to)
	})
}

// clipped leaves out what is before and after some time.
func clipped(pieces []piece, from, to uint64) (out []piece) {
	for i := range pieces {
		p := pieces[i]
		if p.from >= to || p.to <= from {
			continue
		}
		if p.from < from || p.to > to {
			p.from, p.to = max(p.from, from), min(p.to, to)
			p.below = clipped(p.below, p.from, p.to)
		}
		out = append(out, p)
	}
	return out
}

// process returns a task's process, or itself if that is not known.
func (w *walker) process(tid int) int { return cmp.Or(w.m.pidOf(tid), tid) }

// servesOthers reports whether a thread got messages from more than one side during a wait, and
// sets lo to the beginning of the first wait for these. A thread of a runtime does.
func (b *backward) servesOthers(tid int, to uint64) bool {
	t := b.w.m.tasks[tid]
	if t == nil || !b.loop(t, to) {
		return false
	}
	b.unsure = b.w.m.gapIn(b.from, to) < to
	if b.w.m.runtime(b.w.process(tid)) {
		b.lo = b.from
		return true
	}
	first, some, others := 0, false, false // first: task that sent something
	before := b.from
	var latest message
	for i := t.segmentAt(b.from); i < len(t.segments) && t.segments[i].to < to; i++ {
		s := &t.segments[i]
		b.w.walked++
		if b.w.walked > maxWalked {
			return false
		}
		b.unsure = b.unsure || s.state == unknown
		x, ok := b.message(t, s, 0)
		if !ok {
			continue
		}
		if latest = x; !some {
			some = true
			b.lo = max(b.from, s.from)
		}
		switch {
		case x.handed, x.tid != 0 && first == 0 && b.answers(&level{tid: tid}, x.process, x.at, to):
			others = true
		case x.tid != 0 && first != 0: // another one, or once more without being asked
			others = others || x.tid != first || !b.answers(&level{tid: tid}, x.process, before, x.at)
		}
		before = x.at
		first = cmp.Or(first, x.tid)
	}
	switch {
	case !some || others:
	case latest.tid == 0:
		others = first != 0
	default: // what it did before may have led to this message
		l := &level{tid: tid, process: b.w.process(tid), at: to, target: b.waiter}
		if r, n, _ := b.awake(l, &latest); r.at != 0 || n > 0 && !b.owesReply(l, &latest) {
			b.lo, others = max(b.from, latest.s.from), true
		}
	}
	return others
}

// walk returns contiguous pieces from the beginning of the wait until its end.
func (b *backward) walk(tid int, to uint64) []piece {
	b.levels = []level{{tid: tid, process: b.w.process(tid), at: to, end: to, target: b.waiter}}
	for b.step() {
	}
	b.closeTo(0, b.lo)
	l := &b.levels[0]
	l.tid, l.at = tid, b.lo
	b.own(l, b.from)
	slices.Reverse(l.chunks)
	return slices.Concat(l.chunks...)
}

// shortWork is the share of the time since lo in which it matters little for which of the messages
// of one process a thread worked: what led to the first led to any of them.
const shortWork = 10

// step goes back to the message before, and reports whether there may be another one.
func (b *backward) step() bool {
	n := len(b.levels) - 1
	l := &b.levels[n]
	x, ok := b.last(l.tid, l.at)
	if !ok {
		x, ok = b.made(l)
	}
	switch {
	case !ok && b.w.m.runtime(l.process) && b.asked(l, &x):
		return true
	case !ok || b.w.below > maxBelow || !x.handed && (x.process == b.waiter && !b.sibling(&x) || slices.Contains(b.w.stack, x.tid)):
		b.own(l, b.lo)
		return false
	case x.handed:
		b.own(l, x.at)
		l.tid, l.target = x.tid, l.process
		return true
	case x.tid == 0:
		if b.elsewhere(l, &x) || b.w.m.runtime(l.process) && b.asked(l, &x) || !b.naps(l, &x) && b.inVain(l, &x) {
			return true
		}
		b.alone(l, &x)
		return false
	}
	for j := range n {
		if b.levels[j].process != x.process {
			continue
		}
		if b.answers(l, x.process, x.at, l.end) {
			if (l.end-x.at)*shortWork > l.end-b.lo {
				b.unseen(l, x.at)
				return false
			}
			b.doubt = weaker(b.doubt, byUnseenMessage)
			l.wait.evidence = weaker(l.wait.evidence, byUnseenMessage)
		}
		b.own(l, x.at)
		b.closeTo(j, x.at)
		b.levels[j].tid, b.levels[j].target = x.tid, l.process
		return true
	}
	if x.wake == nil { // it was made, not woken
		b.own(l, x.at)
		return b.deeper(l, &x, piece{wait: waitStart, evidence: byMaker})
	}
	if n > 0 && b.mayHaveAsked(&b.levels[n-1], x.at, l.end) {
		b.unseen(l, x.at)
		return false
	}
	return b.push(l, &x)
}

// sibling reports whether a message is of another thread of the waiting process that sends for
// itself, and nothing that the waiting one has asked it for: in a runtime, any may send for any.
func (b *backward) sibling(x *message) bool {
	return x.tid != 0 && x.wake != nil && x.at > b.from && !b.w.m.runtime(x.process) && !b.onTheWay(x.process)
}

// push goes over to who sent a message, and reports whether it is the one that counts.
func (b *backward) push(l *level, x *message) bool {
	evidence := byLastMessage
	others, sender := b.answered(l, x)
	if others || sender {
		evidence = byOneOfMessages
	}
	client := b.w.m.roleOf(x.process, l.process) == roleClient && x.process != l.target
	if client {
		evidence = byOneOfMessages // it may have asked something for itself
	}
	answeredToo := client || sender
	if answeredToo && b.asked(l, x) {
		return true // and not what it did for another one
	}
	owes := !sender && b.owesReply(l, x)
	talks := client || sender && !b.w.m.serves(x.process)
	if !b.answers(l, x.process, b.from, x.at) { // otherwise a server may answer in several messages
		talks = b.sentBefore(l, x)
	}
	r, n, regulars := b.awake(l, x)
	if n -= regulars; regulars > 0 {
		evidence = byOneOfMessages
	}
	switch {
	case n == 1 && r.at != 0 && (others || !owes):
		x, evidence = &r, byOneOfMessages
	case n > 0 && !others && !sender && owes:
		if r.at != 0 {
			evidence = byOneOfMessages
		}
	case n > 0, sender && b.mayBeAnother(l, x), talks:
		if !answeredToo && b.asked(l, x) {
			return true
		}
		b.unknownMessage(l, x)
		return false
	}
	b.own(l, x.at)
	return b.deeper(l, x, piece{why: x.why, evidence: evidence})
}

// unknownMessage ends the walk at a message that may not be the one for which a level's thread
// went on.
func (b *backward) unknownMessage(l *level, x *message) {
	b.own(l, x.at)
	l.add([]piece{b.w.unexplained(l.tid, b.lo, x.at, "which message it went on for is not recorded")})
	l.at = b.lo
}

// made returns the making of a level's thread as a message: it works since then for who made it,
// or whom that works for.
func (b *backward) made(l *level) (message, bool) {
	t := b.w.m.tasks[l.tid]
	if t == nil || t.maker == 0 || t.born <= b.lo || t.born >= l.at {
		return message{}, false
	}
	process := b.w.process(t.maker)
	return message{at: t.born, tid: t.maker, process: process, handed: process == l.process}, true
}

// deeper goes over to who sent a message, for which the level above had a wait like p.
func (b *backward) deeper(l *level, x *message, p piece) bool {
	m := b.w.m
	p.evidence = weaker(p.evidence, b.doubt)
	p.to, p.task, p.cpu, p.state, p.cause, p.by = x.at, l.tid, -1, "blocked", Task, m.whoTask(x.tid)
	if wk := x.wake; wk != nil {
		if p.waker = m.whoWoke(wk); wk.ctx != nil && wk.device != "" && wk.device != "lo" {
			p.cause, p.by = Network, m.whoNetwork(wk.device, x.tid)
		}
	}
	b.w.below++
	if p.cut = len(b.w.stack)+len(b.levels) >= maxDepth; p.cut {
		p.from = b.lo
		l.add([]piece{p})
		l.at = b.lo
		return false
	}
	b.levels = append(b.levels, level{tid: x.tid, process: x.process, at: x.at, end: x.at, target: l.process, wait: p})
	if evidences[p.evidence].confidence == Guess {
		b.doubt = weaker(b.doubt, p.evidence)
	}
	return true
}

// add puts pieces before those that are there.
func (l *level) add(pieces []piece) {
	if len(pieces) > 0 {
		l.chunks = append(l.chunks, pieces)
	}
}

// own follows the thread of a level from a time on, by itself.
func (b *backward) own(l *level, from uint64) {
	b.within(l, func() { l.add(doubted(b.w.follow(l.tid, from, l.at), b.doubt)) })
	l.at = min(l.at, from)
}

// doubted has what waits are for rest on something, if that is less sure.
func doubted(pieces []piece, e evidence) []piece {
	for i := range pieces {
		if p := &pieces[i]; p.state == "blocked" {
			p.evidence = weaker(p.evidence, e)
		}
	}
	return pieces
}

// within does something with the levels above on the path.
func (b *backward) within(l *level, do func()) {
	stack := b.w.stack
	for i := range b.levels {
		if o := &b.levels[i]; o != l {
			b.w.stack = append(b.w.stack, o.tid)
		}
	}
	do()
	b.w.stack = stack
}

// closeTo ends the levels below one: their waits began then.
func (b *backward) closeTo(n int, at uint64) {
	for len(b.levels)-1 > n {
		l := &b.levels[len(b.levels)-1]
		b.levels = b.levels[:len(b.levels)-1]
		above := &b.levels[len(b.levels)-1]
		slices.Reverse(l.chunks)
		if p := l.wait; at < p.to {
			if p.from, p.below = at, slices.Concat(l.chunks...); p.wait == waitNoAnswer && mostlyUnknown(p.below) {
				p.below = nil
			}
			above.add([]piece{p})
		}
		above.at = min(above.at, at)
	}
}

// unseen ends the walk: the thread of a level has worked since a message that may not be the
// one which made it send its own.
func (b *backward) unseen(l *level, at uint64) {
	b.own(l, at)
	l.wait.evidence = byUnseenMessage
	l.add([]piece{b.w.unexplained(l.tid, b.lo, at, "when it was asked is not recorded")})
	l.at = b.lo
}

// shortNap is the share of the time since lo below which a timer that ended a wait of a runtime's
// thread says nothing of the task that is followed.
const shortNap = 8

// naps reports whether a message ended such a wait.
func (b *backward) naps(l *level, x *message) bool {
	return b.w.m.runtime(l.process) && (x.at-x.s.from)*shortNap < l.at-b.lo
}

// alone goes on over a message without a sender that is followed: a timer, or a packet from
// elsewhere. What the thread did before because of messages of others is left out, and it is a
// guess if that is not known to have been for those.
func (b *backward) alone(l *level, x *message) {
	for {
		if x.wake.ctx == nil || b.naps(l, x) { // of a runtime's keeper, or for any of its tasks
			b.unknownMessage(l, x)
			return
		}
		b.own(l, x.at)
		evidence := byLastMessage
		from := x.s.from
		before, ok := b.last(l.tid, from)
		for ok && before.tid != 0 {
			if !b.forOthers(l, &before, from) {
				if !before.handed && b.w.m.runtime(l.process) {
					b.unknownMessage(l, x)
					return
				}
				evidence = byOneOfMessages
			}
			from = before.s.from
			before, ok = b.last(l.tid, from)
		}
		from = max(from, b.lo)
		p := b.w.stretched(l.tid, x.s, from)
		p.evidence = weaker(p.evidence, evidence)
		l.add([]piece{p})
		if l.at = min(l.at, from); !ok {
			b.own(l, b.lo)
			return
		}
		x = &before
	}
}

// stretched explains a wait that a timer or a packet ended, as if it had begun earlier.
func (w *walker) stretched(tid int, full *segment, from uint64) piece {
	t, wk := w.m.tasks[tid], full.wake
	p := piece{
		from: from, to: full.to, task: tid, cpu: -1, state: "blocked", cause: Timer, by: w.m.whoContext(wk.ctx),
		waker: w.m.whoWoke(wk), why: w.m.callText(int(full.call), ""),
	}
	switch wk.ctx.kind {
	case KindTimer:
		p.wait = w.timerKind(t, wk, full, w.m.syscall(int(full.call)))
	case KindSoftirq:
		p = w.softirqWake(p, full)
	}
	w.below++
	return p
}
