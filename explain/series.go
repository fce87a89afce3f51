package explain

import (
	"slices"
	"sort"
)

// timedCalls are system calls that end after a while if nothing happens, beside futex.
var timedCalls = []string{
	"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2", "rt_sigtimedwait", "semtimedop",
	"mq_timedreceive", "mq_timedsend", "io_getevents",
}

// timed reports whether a wait can end by a time limit that its program chose for it.
func (w *walker) timed(s *segment) bool {
	return s.state == blocked && (s.futex.Timed() || slices.Contains(timedCalls, w.m.syscall(int(s.call))))
}

// byTimer reports whether a timer ended a wait.
func (s *segment) byTimer() bool {
	wk := s.wake
	return wk != nil && wk.protocol == nil && wk.ctx != nil && (wk.ctx.kind == KindTimer ||
		wk.ctx.kind == KindSoftirq && (wk.ctx.number == softirqTimer || wk.ctx.number == softirqHrtimer))
}

// seriesEnd returns what ended a series of waits with a time limit, of which full is one
// that a timer ended: the task had asked for the same again and again, until somebody
// gave way. Nil: it did not wait again, or nobody did within the history.
func (w *walker) seriesEnd(t *task, full *segment) *wake {
	if !w.timed(full) || !full.byTimer() {
		return nil
	}
	if t.series == nil {
		t.series = w.findSeries(t)
	}
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].from >= full.from })
	if i >= len(t.series) || t.series[i] < 0 {
		return nil
	}
	return t.segments[t.series[i]].wake
}

// findSeries returns, for each segment of a task, the last wait of the series that it is
// in, if that did not end by its limit; -1: none.
func (w *walker) findSeries(t *task) []int32 {
	ends := make([]int32, len(t.segments))
	next := -1 // the wait after this one
	for i := len(t.segments) - 1; i >= 0; i-- {
		s := &t.segments[i]
		if ends[i] = -1; s.state != blocked {
			continue
		}
		switch {
		case !w.timed(s) || s.wake == nil:
		case !s.byTimer():
			ends[i] = int32(i)
		case next >= 0 && sameSeries(s, &t.segments[next]):
			ends[i] = ends[next]
		}
		next = i
	}
	return ends
}

// sameSeries reports whether a task waits in b for what it waited for in a, and did little
// else in between.
func sameSeries(a, b *segment) bool {
	return a.call == b.call && a.futex.Op() == b.futex.Op() && (b.from-a.to)*4 <= a.to-a.from
}

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
