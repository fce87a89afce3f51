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
		if full.to != p.to || len(w.stack) == 0 {
			return w.follow(tid, p.from, p.to)
		}
		b := &backward{w: w, from: p.from, waiter: w.process(p.task)}
		if !b.servesOthers(tid, p.to) {
			return w.follow(tid, p.from, p.to)
		}
		return b.walk(tid, p.to)
	})
}

// process returns a task's process, or itself if that is not known.
func (w *walker) process(tid int) int { return cmp.Or(w.m.pidOf(tid), tid) }

// servesOthers reports whether a thread got messages from more than one side during a wait, and
// sets lo to the beginning of the first wait for these.
func (b *backward) servesOthers(tid int, to uint64) bool {
	t := b.w.m.tasks[tid]
	if t == nil || b.w.m.gapIn(b.from, to) < to {
		return false
	}
	first, some, others := 0, false, false
	for i := t.segmentAt(b.from); i < len(t.segments) && t.segments[i].to < to; i++ {
		s := &t.segments[i]
		b.w.walked++
		if s.state == unknown || b.w.walked > maxWalked {
			return false
		}
		x, ok := b.message(t, s, 0)
		switch {
		case !ok:
		case !some:
			first, some, others = x.tid, true, x.handed
			b.lo = max(b.from, s.from)
		default:
			others = others || x.handed || x.tid != first
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

// step goes back to the message before, and reports whether there may be another one.
func (b *backward) step() bool {
	n := len(b.levels) - 1
	l := &b.levels[n]
	x, ok := b.last(l.tid, l.at)
	switch {
	case !ok || b.w.below > maxBelow || !x.handed && (x.process == b.waiter || slices.Contains(b.w.stack, x.tid)):
		b.own(l, b.lo)
		return false
	case x.handed:
		b.own(l, x.at)
		l.tid, l.target = x.tid, l.process
		return true
	case x.tid == 0:
		b.alone(l, &x)
		return false
	}
	for j := range n {
		if b.levels[j].process != x.process {
			continue
		}
		if b.answers(l, x.process, x.at, l.end) {
			b.unseen(l, x.at)
			return false
		}
		b.own(l, x.at)
		b.closeTo(j, x.at)
		b.levels[j].tid, b.levels[j].target = x.tid, l.process
		return true
	}
	if n > 0 && b.mayHaveAsked(&b.levels[n-1], x.at, l.end) {
		b.unseen(l, x.at)
		return false
	}
	b.push(l, &x)
	return true
}

// push goes over to who sent a message.
func (b *backward) push(l *level, x *message) {
	evidence := byLastMessage
	if b.answersOthers(l, x) {
		evidence = byOneOfMessages
		if r, ok := b.rival(l, x); ok {
			x = &r
		}
	}
	b.own(l, x.at)
	m := b.w.m
	p := piece{
		to: x.at, task: l.tid, cpu: -1, state: "blocked", cause: Task, by: m.whoTask(x.tid), why: x.why, evidence: evidence,
	}
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
		return
	}
	b.levels = append(b.levels, level{tid: x.tid, process: x.process, at: x.at, end: x.at, target: l.process, wait: p})
}

// add puts pieces before those that are there.
func (l *level) add(pieces []piece) {
	if len(pieces) > 0 {
		l.chunks = append(l.chunks, pieces)
	}
}

// own follows the thread of a level from a time on, by itself.
func (b *backward) own(l *level, from uint64) {
	b.within(l, func() { l.add(b.w.follow(l.tid, from, l.at)) })
	l.at = min(l.at, from)
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
			p.from, p.below = at, slices.Concat(l.chunks...)
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

// alone goes on over a message without a sender that is followed: a timer, or a packet from
// elsewhere. Of what the thread did before, what is known to have been for others is left out.
func (b *backward) alone(l *level, x *message) {
	for {
		b.own(l, x.at)
		from := x.s.from
		before, ok := b.last(l.tid, from)
		for ok && b.forOthers(l, &before, from) {
			from = before.s.from
			before, ok = b.last(l.tid, from)
		}
		from = max(from, b.lo)
		b.within(l, func() { l.add(b.w.stretched(l.tid, x.s, from)) })
		if l.at = from; !ok || before.handed || before.tid != 0 {
			b.own(l, b.lo)
			return
		}
		x = &before
	}
}

// stretched explains a wait, as if it had begun earlier.
func (w *walker) stretched(tid int, full *segment, from uint64) []piece {
	t := w.m.tasks[tid]
	w.stack = append(w.stack, tid)
	defer func() { w.stack = w.stack[:len(w.stack)-1] }()
	s := *full
	out := w.blockedSegment(nil, t, &s, full)
	if len(out) > 0 {
		out[0].from = from
		if out[0].evidence == byRecords {
			out[0].evidence = byLastMessage
		}
	}
	return out
}
