package explain

import (
	"cmp"
	"slices"
	"sort"

	"github.com/tailcam/tailcam/explain/waitsites"
)

// spun is a stretch in which a task spun for a lock, on a CPU, until its holder let it go on.
type spun struct {
	from, to uint64
	holder   int // 0: not known
	evidence evidence
	wait     wait
}

func (s spun) bounds() (from, to uint64) { return s.from, s.to }

// splitSpins separates spinning for locks of which the kernel tells by no event. For a
// priority-inheriting futex, a task spins as long as the holder runs
// (rt_mutex_slowlock_block), and is woken without having slept, or sees it first. For a
// semaphore of the kernel it does so before contention begins (rwsem_down_write_slowpath).
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
		p := piece{from: from, to: to, task: t.tid, cpu: n, state: "running", cause: Locked, by: w.m.whoUnknown("an unknown holder"), why: "spinning, as its holder runs", wait: s.wait}
		if s.holder != 0 {
			p.by, p.evidence = w.m.whoTask(s.holder), s.evidence
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
	out = append(out, w.adaptive(t)...)
	slices.SortFunc(out, func(a, b spun) int { return cmp.Compare(a.from, b.from) })
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
		out = append(out, spun{from, until, holder, bySpinning, waitPIMutex})
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
		if !w.sampledAt(s, func(m waitsites.Match) bool { return m.Spins }) {
			return since
		}
		since = s.at
	}
	if o := w.outlier; w.isCallOf(t) && since < until && o.Start >= least {
		since = min(since, o.Start)
	}
	return since
}

// sampledAt reports whether a sample found its task in the kernel, at a site of a kind.
func (w *walker) sampledAt(s *stackAt, kind func(waitsites.Match) bool) bool {
	return !s.User && slices.ContainsFunc(waitsites.Works(w.m.sampleFrames(s)), kind)
}

// adaptive finds where a task spun for locks of the kernel whose holders ran: between samples of a
// stretch on a CPU that all found it so, until contention for a lock began after them, and since
// and until the system call that the outlier is began and ended, if there are no others in between.
func (w *walker) adaptive(t *task) (out []spun) {
	spins := func(m waitsites.Match) bool { return m.Adaptive }
	i := sort.Search(len(t.samples), func(i int) bool { return t.samples[i].at >= w.outlier.Start })
	for ; i < len(t.samples) && t.samples[i].at <= w.outlier.End; i++ {
		at := t.segmentAt(t.samples[i].at)
		if at >= len(t.segments) || t.segments[at].state != running || !w.sampledAt(&t.samples[i], spins) {
			continue
		}
		seg, first := &t.segments[at], i
		for i+1 < len(t.samples) && t.samples[i+1].at <= seg.to && w.sampledAt(&t.samples[i+1], spins) {
			i++
		}
		s := spun{from: t.samples[first].at, to: t.samples[i].at, wait: waitKernelLock}
		if o := w.outlier; w.isCallOf(t) && o.Start >= seg.from && (first == 0 || t.samples[first-1].at < o.Start) {
			s.from = min(s.from, o.Start)
		}
		next := seg.to
		if i+1 < len(t.samples) {
			next = min(next, t.samples[i+1].at)
		}
		slept := t.lockWaitSince(s.to, next)
		switch {
		case slept != nil:
			s.to, s.wait = slept.from, lockKind(slept.flags)
		case w.isCallOf(t) && w.outlier.End <= next:
			s.to = max(s.to, w.outlier.End)
		}
		s.holder, s.evidence = w.ranBeside(t, s.from, s.to, slept)
		if s.from < s.to {
			out = append(out, s)
		}
	}
	return out
}

// lockWaitSince returns the first wait for a lock that began between two times, or nil.
func (t *task) lockWaitSince(from, until uint64) *lockWait {
	i := sort.Search(len(t.lockWaits), func(i int) bool { return t.lockWaits[i].from >= from })
	if i < len(t.lockWaits) && t.lockWaits[i].from <= until {
		return &t.lockWaits[i]
	}
	return nil
}

// ranBeside returns which task ran on another CPU while one spun: the owner of the lock that it
// slept for at last (nil: it did not), or the only one; 0: not known.
func (w *walker) ranBeside(t *task, from, to uint64, slept *lockWait) (int, evidence) {
	ran := map[int]uint64{}
	for _, c := range w.m.cpus {
		split(c.runs, from, to, func(r *run, from, to uint64) { ran[r.tid] += to - from }, func(uint64, uint64) {})
	}
	delete(ran, 0)
	delete(ran, t.tid)
	for tid, ns := range ran {
		if ns*10 < (to-from)*9 {
			delete(ran, tid)
		}
	}
	if slept != nil && ran[slept.owner] > 0 {
		return slept.owner, byOwner
	}
	if len(ran) == 1 {
		for tid := range ran {
			return tid, byOnlyRunner
		}
	}
	return 0, byRecords
}
