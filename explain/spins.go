package explain

import (
	"slices"
	"sort"

	"github.com/tailcam/tailcam/explain/waitsites"
)

// spun is a stretch in which a task spun for a lock, on a CPU, until its holder let it go on.
type spun struct {
	from, to uint64
	holder   int // 0: not known
}

func (s spun) bounds() (from, to uint64) { return s.from, s.to }

// splitSpins separates spinning for locks of which the kernel tells by no event: for a
// priority-inheriting futex, a task spins as long as the holder runs
// (rt_mutex_slowlock_block), and is woken without having slept, or sees it first.
func (w *walker) splitSpins(out []piece, t *task, n int, from, to uint64) []piece {
	list, known := w.spun[t]
	if !known && len(t.samples) > 0 {
		if w.spun == nil {
			w.spun = map[*task][]spun{}
		}
		list = w.spins(t)
		w.spun[t] = list
	}
	split(list, from, to, func(s *spun, from, to uint64) {
		p := piece{from: from, to: to, task: t.tid, cpu: n, state: "running", cause: Locked, by: w.m.whoUnknown("an unknown holder"), why: "spinning, as its holder runs", wait: waitPIMutex}
		if s.holder != 0 {
			p.by, p.evidence = w.m.whoTask(s.holder), bySpinning
			w.descend(&p, s.holder)
		}
		out = w.add(out, p)
	}, func(from, to uint64) { out = w.splitUserKernel(out, t, n, from, to) })
	return out
}

// spins finds where a task spun, as far as samples do: before a wake-up that found it running,
// and before the end of the system call that the outlier is.
func (w *walker) spins(t *task) (out []spun) {
	for _, wk := range t.letGo {
		i := t.segmentAt(wk.at)
		if i >= len(t.segments) || t.segments[i].state != running || w.m.kernelThread(wk.tid) {
			continue
		}
		out = w.addSpun(out, t, &t.segments[i], wk.at, wk.tid)
	}
	if i := t.segmentAt(max(w.outlier.End, 1) - 1); w.isCallOf(t) && i < len(t.segments) && t.segments[i].state == running {
		out = w.addSpun(out, t, &t.segments[i], w.outlier.End, 0)
	}
	return out
}

// isCallOf reports whether the outlier is a system call of a task.
func (w *walker) isCallOf(t *task) bool {
	o := w.outlier
	return o.Track == "syscall" && o.Key == nil && t.tid == o.TID
}

// addSpun adds the stretch that ends at a time, in a segment, if there is one.
func (w *walker) addSpun(out []spun, t *task, s *segment, until uint64, holder int) []spun {
	least := s.from
	if n := len(out); n > 0 {
		least = max(least, out[n-1].to)
	}
	if from := w.spunSince(t, least, until); from < until {
		out = append(out, spun{from, until, holder})
	}
	return out
}

// spunSince returns since when a task spun until a time: since the first of the last samples
// that all found it so, or since it began the system call that the outlier is, if there are no
// others in between.
func (w *walker) spunSince(t *task, least, until uint64) uint64 {
	since := until
	i := sort.Search(len(t.samples), func(i int) bool { return t.samples[i].at > until }) - 1
	for ; i >= 0 && t.samples[i].at > least; i-- {
		s := &t.samples[i]
		if s.User || !slices.ContainsFunc(waitsites.Works(w.m.sampleFrames(s)), func(m waitsites.Match) bool { return m.Spins }) {
			return since
		}
		since = s.at
	}
	if o := w.outlier; w.isCallOf(t) && since < until && o.Start >= least {
		since = min(since, o.Start)
	}
	return since
}
