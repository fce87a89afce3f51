package explain

import (
	"cmp"
	"slices"
	"sort"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// lockedFile is a file, by one of the two kinds of its locks.
type lockedFile struct {
	inode uint64
	dev   uint32
	flock bool
}

// fileLock is a lock of a file that a task got, asked for in vain, waits for, or gave back.
type fileLock struct {
	at         uint64
	file       lockedFile
	start, end uint64 // bytes
	tid, pid   int
	holder     int // in vain, or waits: a process that had it; 0: not known

	vain, waits, gave bool
}

// Of the kernel: FL_FLOCK, F_UNLCK, -EAGAIN, FILE_LOCK_DEFERRED.
const (
	flFlock  = 2
	unlock   = 2
	again    = -11
	deferred = 1
)

func (m *model) ingestFileLock(t *task, at uint64, b *trace.FileLock) {
	t.pid = b.PID
	if b.Ret != 0 && b.Ret != again && b.Ret != deferred || !m.reserve() {
		return
	}
	x := &fileLock{
		at: at, tid: t.tid, pid: b.PID, holder: b.HolderPID, vain: b.Ret == again, waits: b.Ret == deferred, gave: b.Type == unlock,
		file: lockedFile{b.Inode, b.Dev, b.Flags&flFlock != 0}, start: b.Start, end: b.End,
	}
	m.fileLocks[x.file] = appendGrow(m.fileLocks[x.file], x)
	if !x.gave {
		t.tries = appendGrow(t.tries, x)
	}
}

// triesAround returns the last time that a task asked in vain for a lock of a file before a wait that
// a timer ended, and the first time that it asked for one of that file afterwards, with no other
// wait in between: it slept until it would try again. Nil: it did not.
func (t *task) triesAround(s *segment) (before, after *fileLock) {
	if len(t.tries) == 0 || !s.byTimer() {
		return nil, nil
	}
	n := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].from >= s.from })
	since, until := uint64(0), uint64(forever)
	for i := n - 1; i >= 0 && since == 0; i-- {
		if t.segments[i].state == blocked {
			since = t.segments[i].to
		}
	}
	for i := n + 1; i < len(t.segments) && until == forever; i++ {
		if t.segments[i].state == blocked {
			until = t.segments[i].from
		}
	}
	if until == forever && t.sleptLate > 0 {
		until = t.sleptLate
	}
	i := sort.Search(len(t.tries), func(i int) bool { return t.tries[i].at >= s.to })
	for j := i - 1; j >= 0 && t.tries[j].at >= since && before == nil; j-- {
		if t.tries[j].vain {
			before = t.tries[j]
		}
	}
	for ; before != nil && i < len(t.tries) && t.tries[i].at <= until; i++ {
		if x := t.tries[i]; x.file == before.file && !x.waits && (after == nil || x.vain) {
			if after = x; x.vain {
				break
			}
		}
	}
	if after == nil {
		return nil, nil
	}
	return before, after
}

// askedBefore returns what lock of a file a task asked for right before a wait for it; nil: that is
// not known.
func (t *task) askedBefore(s *segment) *fileLock {
	i := sort.Search(len(t.tries), func(i int) bool { return t.tries[i].at > s.from })
	if i == 0 || !t.tries[i-1].waits || t.sleptSince(t.tries[i-1].at, s.from) {
		return nil
	}
	return t.tries[i-1]
}

// overlaps reports whether two locks are of the same bytes of a file.
func (x *fileLock) overlaps(y *fileLock) bool { return x.start <= y.end && y.start <= x.end }

// holder returns the task that had what one asked for in vain, 0 if that is not known, and when
// it gave that back, forever if not within the history. Which thread of the process it was is
// known by that, or by when it took it; else it is the first.
func (m *model) holder(x *fileLock) (tid int, gave uint64) {
	list := m.fileLocks[x.file]
	i := sort.Search(len(list), func(i int) bool { return list[i].at > x.at })
	for _, y := range list[i:min(len(list), i+maxAhead)] {
		if y.gave && y.tid != x.tid && y.overlaps(x) && (y.pid == x.holder || x.holder == 0) {
			return y.tid, y.at
		}
	}
	for j := i - 1; j >= max(0, i-maxAhead); j-- {
		if y := list[j]; !y.vain && !y.waits && !y.gave && y.pid == x.holder && y.tid != x.tid && y.overlaps(x) {
			return y.tid, forever
		}
	}
	if x.holder == x.pid {
		return 0, forever // another thread of its own process
	}
	return x.holder, forever
}

// descendHolder explains a wait for a lock of a file by what its holder did, unless that may have
// been another thread of its process.
func (w *walker) descendHolder(p *piece, x *fileLock, tid int) {
	if tid == x.holder && !slices.ContainsFunc(w.m.fileLocks[x.file], func(y *fileLock) bool { return y.tid == tid }) {
		for _, t := range w.m.tasks {
			if t.pid == tid && t.tid != tid {
				return
			}
		}
	}
	w.descend(p, tid)
}

// triedPieces explains a sleep between two tries for a lock of a file: until its holder gave it
// back, the task waited for that, and then only for its own next try.
func (w *walker) triedPieces(out []piece, p piece, full *segment, before, after *fileLock) []piece {
	to := p.to
	add := func(x *fileLock, tid int, until uint64) {
		q := p
		q.to = min(to, until)
		q.cause, q.wait, q.evidence, q.by = Locked, waitFileLock, byTries, w.m.whoTask(tid)
		if tid == 0 || tid == x.tid {
			q.by = w.m.whoUnknown("an unknown holder")
		} else {
			w.descendHolder(&q, x, tid)
		}
		out = w.add(out, q)
		p.from = max(p.from, q.to)
	}
	tid, gave := w.m.holder(before)
	switch {
	case after.vain:
		next, _ := w.m.holder(after)
		if tid == 0 || next == 0 || next == tid {
			gave = to
		}
		add(before, cmp.Or(tid, next), gave)
		add(after, next, to)
	case gave < full.to:
		add(before, tid, gave)
	default: // what it gave back later was something else
		add(before, tid, to)
	}
	if p.from < to {
		p.cause, p.by, p.why = Timer, w.m.whoContext(full.wake.ctx), "until it tried again for a lock of a file"
		out = w.add(out, p)
	}
	return out
}

// triesForLock reports whether a wait is a sleep between two tries for a lock of a file.
func (t *task) triesForLock(s *segment) bool {
	before, _ := t.triesAround(s)
	return before != nil
}
