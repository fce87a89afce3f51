package explain

import (
	"fmt"
	"slices"
)

// key is a cause and a culprit.
type key struct {
	cause Cause
	name  string // of what is no task
	task  *actor
}

func taskKey(c Cause, t *actor) key { return key{cause: c, task: t} }

func diskKey(d *disk) key { return key{cause: BlockDevice, name: fmt.Sprintf("disk%d", d.dev)} }

func (k key) String() string {
	if k.task != nil {
		return fmt.Sprintf("%s %v", k.cause, k.task)
	}
	return fmt.Sprintf("%s %s", k.cause, k.name)
}

// share is a part of a wait, from the one before it on.
type share struct {
	to uint64
	key
}

// reason is what a wait was for, and what ended it.
type reason struct {
	key
	by     *actor  // the task that woke it
	before []share // until then, others
	disk   *disk
	worker *kworker
	issuer *actor
	within Cause // it waited for that, within something larger
	legs   []leg // with whom the request was, that a server replied to
}

// episode is a time in which a task was in one state.
type episode struct {
	Interval
	state state
	cpu   *simCPU
	prio  int
	why   *reason // blocked; nil: it has not ended
	hope  *reason
	// series is the last wait of the series of waits that it is one of.
	series *episode
}

// reason is what a wait was for, as far as events until horizon tell.
func (s *episode) reason(horizon uint64) *reason {
	switch {
	case s.To > horizon || s.why == nil:
		return s.hope
	case s.series != nil && s.series.To <= horizon:
		return s.series.why
	}
	return s.why
}

// note is what a task, or a worker, did meanwhile.
type note struct {
	Interval
	key
	by *actor
}

// cpuSpan is what a CPU did: a task, or what ran on top of it.
type cpuSpan struct {
	Interval
	task *actor // nil: idle
	top  *key
}

// become ends what a task did until now.
func (m *machine) become(t *actor, s state) {
	if m.now > t.since && t.state != unknown {
		t.truth = append(t.truth, episode{Interval: Interval{t.since, m.now}, state: t.state, cpu: t.cpu, prio: t.prio, why: t.why, hope: t.hope})
	}
	if t.state == blocked {
		t.hope = nil
	}
	t.state, t.since, t.why = s, m.now, nil
}

// mark ends what a CPU did until now.
func (m *machine) mark(c *simCPU, top *key) {
	if n := len(c.spans); n > 0 {
		if c.spans[n-1].To = m.now; c.spans[n-1].From == m.now {
			c.spans = c.spans[:n-1]
		}
	}
	c.spans = append(c.spans, cpuSpan{Interval{m.now, forever}, c.current, top})
}

// seriesEnds makes the end of the last wait of a series what all of it was for. What did much
// else in between waited for the next timer alone.
func (t *actor) seriesEnds(first int) {
	var end *episode
	next := uint64(0)
	for i := len(t.truth) - 1; i >= first; i-- {
		s := &t.truth[i]
		if s.state != blocked {
			continue
		}
		if end == nil {
			end = &episode{Interval: s.Interval, why: s.why}
		} else if (next-s.From-(s.To-s.From))*4 > s.To-s.From {
			return
		}
		s.series, next = end, s.From
	}
}

// known is the truth about a time of a task.
type known struct {
	Interval
	key
	inner key    // within a page fault, or while it reclaimed memory
	plain key    // of one of several waits for the same: what ended that one
	below *actor // whose work it was waited for
	legs  []leg  // with whom it was meanwhile
}

// story is what a task did in a time, as far as is told until horizon.
func (t *actor) story(from, to, horizon uint64) []known {
	var out []known
	if first := t.truth[0].From; first > from && t.born != nil { // what its maker did comes first
		out = append(out, known{Interval: Interval{from, min(first, to)}, key: taskKey(Task, t.born), below: t.born})
	}
	i, _ := slices.BinarySearchFunc(t.truth, from, func(s episode, at uint64) int {
		if s.To <= at {
			return -1
		}
		return 1
	})
	for ; i < len(t.truth) && t.truth[i].From < to; i++ {
		s := t.truth[i]
		lo, hi := max(s.From, from), min(s.To, to)
		switch s.state {
		case running:
			out = append(out, t.ran(s, lo, hi)...)
		case runnable:
			out = append(out, t.queued(s, lo, hi)...)
		case blocked:
			told := whyWaited(s.reason(horizon), lo, hi)
			if s.series != nil && s.why != nil {
				for i := range told {
					told[i].plain = s.why.key
				}
			}
			out = append(out, told...)
		}
	}
	return out
}

// whyWaited is what a wait was for between two times.
func whyWaited(why *reason, from, to uint64) (out []known) {
	if why == nil {
		return []known{{Interval: Interval{from, to}, key: key{cause: Unexplained}}}
	}
	for _, x := range append(why.before[:len(why.before):len(why.before)], share{to: forever, key: why.key}) {
		if end := min(x.to, to); end > from {
			k := known{Interval: Interval{from, end}, key: x.key}
			if x.to == forever {
				k.below, k.legs = why.by, why.legs
			}
			if why.within != "" {
				k.inner, k.key = k.key, key{cause: why.within}
			}
			out = append(out, k)
			from = end
		}
	}
	return out
}

// within calls f for what a CPU did in a time.
func (c *simCPU) within(from, to uint64, f func(x cpuSpan, lo, hi uint64)) {
	i, _ := slices.BinarySearchFunc(c.spans, from, func(s cpuSpan, at uint64) int {
		if s.To <= at {
			return -1
		}
		return 1
	})
	for ; i < len(c.spans) && c.spans[i].From < to; i++ {
		f(c.spans[i], max(c.spans[i].From, from), min(c.spans[i].To, to))
	}
}

func (t *actor) ran(s episode, from, to uint64) (out []known) {
	s.cpu.within(from, to, func(x cpuSpan, lo, hi uint64) {
		k := taskKey(Running, t)
		if x.top != nil {
			k = *x.top
		}
		for _, n := range t.notes {
			if at, end := max(n.From, lo), min(n.To, hi); x.top == nil && at < end {
				if at > lo {
					out = append(out, known{Interval: Interval{lo, at}, key: k})
				}
				out = append(out, known{Interval: Interval{at, end}, key: n.key})
				lo = end
			}
		}
		if lo < hi {
			out = append(out, known{Interval: Interval{lo, hi}, key: k})
		}
	})
	return out
}

// queued is behind whom a task waited for its CPU.
func (t *actor) queued(s episode, from, to uint64) (out []known) {
	s.cpu.within(from, to, func(x cpuSpan, lo, hi uint64) {
		var k key
		switch {
		case x.top != nil:
			k = *x.top
		case x.task == nil:
			k = key{cause: Runnable, name: "idle"}
		case x.task.prio < s.prio:
			k = taskKey(Preempted, x.task)
		default:
			k = taskKey(Runnable, x.task)
		}
		for _, q := range s.cpu.throttles {
			if at, end := max(q.From, lo), min(q.To, hi); t.cgroup == quotaCgroup && x.top == nil && at < end {
				if at > lo {
					out = append(out, known{Interval: Interval{lo, at}, key: k})
				}
				out = append(out, known{Interval: Interval{at, end}, key: key{cause: Throttled}})
				lo = end
			}
		}
		if lo < hi {
			out = append(out, s.misplaced(known{Interval: Interval{lo, hi}, key: k})...)
		}
	})
	return out
}

// misplaced splits a wait behind a task by whether another CPU was idle.
func (s *episode) misplaced(k known) (out []known) {
	if k.cause != Runnable || k.task == nil || s.To-s.From < minMisplaced {
		return []known{k}
	}
	for _, i := range s.idle(k.From, k.To) {
		before, within := k, k
		before.To, within.From, within.To, within.cause = i.From, i.From, i.To, Misplaced
		if k.From = i.To; before.From < before.To {
			out = append(out, before)
		}
		out = append(out, within)
	}
	if k.From < k.To {
		out = append(out, k)
	}
	return out
}

// idle is when a CPU other than that of an episode was idle.
func (s *episode) idle(from, to uint64) (out []Interval) {
	for at := from; at < to; {
		end := at
		for _, c := range s.cpu.all {
			c.within(at, to, func(x cpuSpan, lo, hi uint64) {
				if x.task == nil && lo <= end {
					end = max(end, hi)
				}
			})
		}
		if end == at {
			end = to
			for _, c := range s.cpu.all {
				c.within(at, to, func(x cpuSpan, lo, _ uint64) {
					if x.task == nil && lo > at {
						end = min(end, lo)
					}
				})
			}
		} else if end-at >= minMisplaced/10 {
			out = append(out, Interval{at, end})
		}
		at = end
	}
	return out
}

// roots replaces waits for tasks by what those did.
func (t *actor) roots(from, to, horizon uint64, path []*actor) (out []known) {
	path = append(path, t)
	if first := t.truth[0].From; first > from && t.born == nil { // it did not exist
		out = append(out, known{Interval: Interval{from, min(first, to)}, key: key{cause: Unexplained}})
	}
	for _, k := range t.story(from, to, horizon) {
		if k.inner != (key{}) {
			k.key = k.inner
		}
		if k.below == nil || slices.Contains(path, k.below) || len(path) >= maxDepth {
			out = append(out, k)
			continue
		}
		if k.legs == nil {
			out = append(out, k.below.roots(k.From, k.To, horizon, path)...)
			continue
		}
		for _, l := range clip(k.legs, k.From, k.To) {
			switch on := slices.Concat(path, []*actor{k.below}); {
			case l.below == nil:
				out = append(out, l)
			case l.below == k.below:
				out = append(out, l.below.roots(l.From, l.To, horizon, path)...)
			case slices.Contains(on, l.below) || len(on) >= maxDepth:
				l.key = taskKey(Task, l.below)
				out = append(out, l)
			default:
				out = append(out, l.below.roots(l.From, l.To, horizon, on)...)
			}
		}
	}
	return out
}
