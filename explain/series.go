package explain

import (
	"slices"
	"sort"
	"strings"
)

// timedCalls are system calls that end after a while if nothing happens, beside futex.
var timedCalls = []string{
	"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2", "rt_sigtimedwait", "semtimedop",
	"mq_timedreceive", "mq_timedsend", "io_getevents",
}

// interrupted reports whether a signal ended a wait, which says nothing of what was waited for.
func (s *segment) interrupted() bool { return s.state == blocked && s.wake != nil && s.wake.signal }

// timed reports whether a wait can end by a time limit that its program chose for it.
func (w *walker) timed(s *segment) bool {
	return s.state == blocked && (s.futex.Timed() || slices.Contains(timedCalls, w.m.syscall(int(s.call))))
}

// limitedInside reports whether a wait ended by a time limit within a call that has none of its
// own: that of a socket (SO_RCVTIMEO), or one that the kernel waits by, to look again.
func (w *walker) limitedInside(s *segment) bool {
	return s.state == blocked && s.call >= 0 && s.bits&taskUninterruptible == 0 && s.byTimer() &&
		w.m.function(s.wake.ctx.function) == "process_timeout" && !isSleep(w.m.syscall(int(s.call)))
}

// byTimer reports whether a timer ended a wait.
func (s *segment) byTimer() bool {
	wk := s.wake
	return wk != nil && wk.protocol == nil && wk.ctx != nil && (wk.ctx.kind == KindTimer ||
		wk.ctx.kind == KindSoftirq && (wk.ctx.number == softirqTimer || wk.ctx.number == softirqHrtimer))
}

// seriesEnd returns what ended a series of waits, of which full is one that a time limit or a
// signal ended: the task asked for the same again and again, until somebody gave way. Who
// sent the signals took no part. Nil: it did not wait again, or nobody did within the history.
func (w *walker) seriesEnd(t *task, full *segment) *wake {
	if !full.interrupted() && (!w.timed(full) || !full.byTimer()) && !w.limitedInside(full) {
		return nil
	}
	last := w.seriesLast(t, full)
	if last == nil || last.wake == nil {
		return nil
	}
	if len(w.stack) > 1 && !full.interrupted() && full.call >= 0 &&
		strings.HasPrefix(w.m.syscall(int(full.call)), "epoll") && !w.idleUntil(t, full, last) {
		return nil // others asked for something meanwhile, perhaps: see backward
	}
	return last.wake
}

// idleUntil reports whether who ended the last wait of a series was not asked for that after a time
// limit had ended one: it was blocked then, so that who asks it wakes it, and the waiting task woke
// nobody from then on until its last wait.
func (w *walker) idleUntil(t *task, full, last *segment) bool {
	by, process := w.m.sender(last.wake), w.process(t.tid)
	x := w.m.tasks[by]
	if x == nil || w.process(by) == process || w.m.kernelThread(by) || w.m.runtime(process) || slices.Contains(w.stack, by) {
		return false
	}
	if at := x.segmentAt(full.to); at >= len(x.segments) || x.segments[at].from > full.to || x.segments[at].state != blocked {
		return false
	}
	replies := w.m.repliesOf(t.tid)
	i := sort.Search(len(replies), func(i int) bool { return replies[i].at >= full.to })
	if i < len(replies) && replies[i].at < last.from {
		return false
	}
	for _, tid := range w.m.threadsOf(process) {
		if tid != t.tid && w.m.tasks[tid] != nil && w.wakes(w.m.tasks[tid], t.tid, full.to, last.from) {
			return false
		}
	}
	return true
}

// wakes reports whether one task woke another between two times, or may have: too much has been
// looked at already.
func (w *walker) wakes(t *task, by int, from, to uint64) bool {
	for i := t.segmentAt(from); i < len(t.segments) && t.segments[i].from < to; i++ {
		w.walked++
		if wk := t.segments[i].wake; w.walked > maxWalked || wk != nil && wk.tid == by && wk.at >= from && wk.at < to {
			return true
		}
	}
	return false
}

// seriesOpen returns the wait for a futex with which a series goes on that full is one of, and that
// nobody has ended yet; nil: there is none.
func (w *walker) seriesOpen(t *task, full *segment) *segment {
	if !full.futex.Timed() || !full.byTimer() {
		return nil
	}
	if last := w.seriesLast(t, full); last != nil && last.wake == nil {
		return last
	}
	return nil
}

// seriesLast returns the last wait of the series that one is in, which has ended otherwise than
// by its limit or for a signal, or not at all; nil: there is none.
func (w *walker) seriesLast(t *task, full *segment) *segment {
	if t.series == nil {
		t.series = w.findSeries(t)
	}
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].from >= full.from })
	if i >= len(t.series) || t.series[i] < 0 {
		return nil
	}
	return &t.segments[t.series[i]]
}

// lookAhead is how much longer than until the last outlier's end events matter if a time limit
// ended that: what ends the same wait, begun again, tells who did not give way. Ruby's threads ask
// each 100 ms for the lock of their interpreter, and the one that has it gives way right after; of
// those that wait for a monitor of Java one asks after 1, 8, 64 and 512 ms. Rules record as much by
// default.
const lookAhead = 50_000_000

// timeLimitEnded reports whether the last outlier ended with a wait for a futex, for its time limit.
func (m *model) timeLimitEnded(outliers []Outlier) bool {
	for i := range outliers {
		o := &outliers[i]
		t := m.tasks[o.TID]
		if t == nil || o.End+lateEvents < m.to {
			continue
		}
		j := t.segmentAt(o.End)
		for j = min(j, len(t.segments)-1); j >= 0 && t.segments[j].state != blocked; j-- {
		}
		if j >= 0 && t.segments[j].to > o.Start && t.segments[j].futex.Timed() && t.segments[j].byTimer() {
			return true
		}
	}
	return false
}

// findSeries returns, for each segment of a task, the last wait of the series that it is
// in, if that did not end by its limit or for a signal, or has not ended; -1: none.
func (w *walker) findSeries(t *task) []int32 {
	ends := make([]int32, len(t.segments))
	next := -1        // the wait after this one
	open := int32(-1) // the wait that has not ended
	if n := len(t.segments) - 1; n >= 0 && t.segments[n].wake == nil && t.segments[n].to >= w.m.to-lateEvents {
		open = int32(n)
	}
	for i := len(t.segments) - 1; i >= 0; i-- {
		s := &t.segments[i]
		if ends[i] = -1; s.state != blocked {
			continue
		}
		again := next >= 0 && w.sameSeries(t, i, next)
		switch {
		case int32(i) == open:
			ends[i] = open
		case s.wake == nil || s.held() || s.wake.thaw:
		case s.interrupted():
			if again && ends[next] != open {
				ends[i] = ends[next]
			}
		case !s.byTimer():
			ends[i] = int32(i)
		case again && (w.timed(s) && w.timed(&t.segments[next]) || w.limitedInside(s)):
			ends[i] = ends[next]
		}
		next = i
	}
	return ends
}

// sameSeries reports whether a task waits in its segment j for what it waited for in i, the wait
// before, and did little else in between: of a futex, however long it was kept from its CPU. What
// else an event loop waited for before it was kept from it is not known.
func (w *walker) sameSeries(t *task, i, j int) bool {
	a, b := &t.segments[i], &t.segments[j]
	did := b.from - a.to
	for k := i + 1; k < j && b.futex.Known(); k++ {
		if s := &t.segments[k]; s.state == runnable {
			did -= s.to - s.from
		}
	}
	same := a.call == b.call && a.futex.Op() == b.futex.Op() || a.interrupted() && w.m.syscall(int(b.call)) == restartCall
	return same && !b.held() && did*4 <= a.to-a.from
}

// restartCall is how the kernel goes on with calls that have a time limit, after a signal.
const restartCall = "restart_syscall"

// inSeries explains a wait by what ended the series that it is part of.
func (w *walker) inSeries(t *task, p piece, full *segment, nr int, name string, end *wake) []piece {
	f := *full
	f.wake = end
	p.why = withSpaceAfter(p.why) + "again and again"
	pieces := w.wakePieces(nil, t, p, &f, nr, name)
	for i := range pieces {
		if evidences[pieces[i].evidence].confidence == Seen {
			pieces[i].evidence = bySeries
		}
	}
	return pieces
}

func withSpaceAfter(s string) string {
	if s == "" {
		return ""
	}
	return s + " "
}
