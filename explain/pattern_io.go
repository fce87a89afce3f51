package explain

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/tailcam/tailcam/internal/linux"
)

// Amounts of I/O, in bytes.
const (
	leastBulk      = 1 << 20
	bulkTimes      = 8 // what the slow task asked for
	leastWriteback = 4 << 20
)

// diskTime adds up how long the path waited for disks, and names the device.
func (l *look) diskTime() (ns uint64, dev uint32, ok bool) {
	visit(l.pieces, func(p *piece) bool {
		if disk := p.cause == BlockQueue || p.cause == BlockDevice || p.cause == Journal; disk {
			ns += p.ns()
			return false
		}
		return p.cause != Reclaim && p.cause != Compaction // what memory is short for is another matter
	})
	if !l.most(ns) {
		return 0, 0, false
	}
	// The device is that of the request that was slow longest: its owner is on the path.
	on := map[int]bool{}
	visit(l.pieces, func(p *piece) bool { on[p.task] = true; return true })
	from, to := l.span()
	var most uint64
	l.requestsIn(from, to, func(r *request, lo, hi uint64) {
		if on[r.tid] && hi-lo > most {
			most, dev, ok = hi-lo, r.dev, true
		}
	})
	return ns, dev, ok
}

// requestsIn visits the requests that were under way in an interval.
func (l *look) requestsIn(from, to uint64, see func(r *request, from, to uint64)) {
	visit := func(r *request, end uint64) {
		if lo, hi := max(r.started(), from), min(end, to); r.started() > 0 && lo < hi {
			see(r, lo, hi)
		}
	}
	i := sort.Search(len(l.m.requests), func(i int) bool { return l.m.requests[i].complete > from })
	for ; i < len(l.m.requests) && l.spend(); i++ {
		visit(l.m.requests[i], l.m.requests[i].complete)
	}
	for _, r := range l.m.inFlight {
		if !l.spend() {
			return
		}
		visit(r, forever)
	}
}

func (r *request) isWrite() bool { return linux.BlockOpClass(r.flags) == "write" }

// bulkIO: requests of tasks that move much more than the slow one went first.
func (l *look) bulkIO() *finding {
	sums := map[*Who]uint64{}
	var ns uint64
	visit(l.pieces, func(p *piece) bool {
		if p.cause == BlockQueue && p.by.Kind == KindTask {
			sums[p.by] += p.ns()
			ns += p.ns()
		}
		return p.cause != Reclaim && p.cause != Compaction
	})
	if !l.most(ns) {
		return nil
	}
	var by *Who
	for w := range sums {
		if by == nil || sums[w] > sums[by] || sums[w] == sums[by] && w.TID < by.TID {
			by = w
		}
	}
	ahead := map[int]bool{}
	for w := range sums {
		ahead[w.TID] = true
	}
	own := map[int]bool{l.outlier.TID: true}
	leaves(l.pieces, func(p *piece) { own[p.task] = true })
	var theirs, mine uint64
	from, to := l.span()
	l.requestsIn(from, to, func(r *request, _, _ uint64) {
		switch {
		case own[r.tid] && !ahead[r.tid]:
			mine += uint64(r.bytes)
		case ahead[r.tid]:
			theirs += uint64(r.bytes)
		}
	})
	if theirs < leastBulk || theirs < bulkTimes*mine {
		return nil
	}
	return &finding{confidence: Inferred, by: by, why: fmt.Sprintf("%s moved %s meanwhile, the slow one %s", by.Name, roughBytes(theirs), roughBytes(mine))}
}

// roughBytes formats an amount for people.
func roughBytes(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// written is what a task wrote.
type written struct {
	bytes uint64
	since uint64 // when the first of it began
}

// writes adds up what each task wrote to a device meanwhile, and all of it.
func (l *look) writes(dev uint32) (by map[int]written, all uint64) {
	by = map[int]written{}
	from, to := l.span()
	l.requestsIn(from, to, func(r *request, _, _ uint64) {
		if r.dev != dev {
			return
		}
		all += uint64(r.bytes)
		if r.isWrite() {
			x := by[r.tid]
			if x.bytes == 0 || r.started() < x.since {
				x.since = r.started()
			}
			x.bytes += uint64(r.bytes)
			by[r.tid] = x
		}
	})
	return by, all
}

// storm returns how much tasks of some kind wrote to the device that was waited for, if that
// was most of what it did. Since when they did is before the wait, if their requests were there.
func (l *look) storm(is func(tid int, since uint64) bool) (by *Who, bytes uint64) {
	_, dev, ok := l.diskTime()
	if !ok {
		return nil, 0
	}
	wrote, all := l.writes(dev)
	most := 0
	for _, tid := range slices.Sorted(maps.Keys(wrote)) {
		if is(tid, wrote[tid].since) {
			if bytes += wrote[tid].bytes; most == 0 || wrote[tid].bytes > wrote[most].bytes {
				most = tid
			}
		}
	}
	if most == 0 || bytes < leastWriteback || bytes*2 < all {
		return nil, 0
	}
	return l.m.whoTask(most), bytes
}

// checkpoint: a task that calls itself a checkpointer wrote most of what the device did.
func (l *look) checkpoint() *finding {
	by, bytes := l.storm(func(tid int, _ uint64) bool {
		w := l.m.whoTask(tid)
		for _, name := range []string{w.Comm, w.Title} {
			if strings.Contains(name, "checkpoint") || strings.Contains(name, "redis-rdb-bgs") {
				return true
			}
		}
		return false
	})
	if by == nil {
		return nil
	}
	return &finding{confidence: Inferred, by: by, why: fmt.Sprintf("%s wrote %s to the device meanwhile, most of all; what it is, its name says", by.Name, roughBytes(bytes))}
}

// writebackStorm: the kernel wrote dirty pages back meanwhile, most of what the device did.
func (l *look) writebackStorm() *finding {
	_, to := l.span()
	by, bytes := l.storm(func(tid int, since uint64) bool { return l.writesBack(tid, since, to) })
	if by == nil {
		return nil
	}
	return &finding{confidence: Inferred, by: by, why: fmt.Sprintf("%s wrote back %s of dirty pages to the device meanwhile, most of what that did", by.Name, roughBytes(bytes))}
}

// writesBack reports whether a task is a worker of the kernel that writes dirty pages back: by
// the work that it ran, or by what the kernel called it then.
func (l *look) writesBack(tid int, from, to uint64) bool {
	t := l.m.tasks[tid]
	if t == nil || !l.m.kernelThread(tid) {
		return false
	}
	if f, ok := l.m.taskInfo(tid); ok && strings.Contains(f.Comm, "flush-") {
		return true
	}
	runs := func(x *work) bool {
		return x.start < to && x.end > from && l.m.function(x.function) == "wb_workfn"
	}
	return t.work != nil && runs(t.work) || slices.ContainsFunc(t.works, runs)
}

// leastReclaimers is how many tasks must have reclaimed memory at once.
const leastReclaimers = 3

// reclaimStorm: it reclaimed memory itself, as many others did.
func (l *look) reclaimStorm() *finding {
	var ns uint64
	visit(l.pieces, func(p *piece) bool {
		if p.cause == Reclaim {
			ns += p.ns()
		}
		return p.cause != Reclaim
	})
	if !l.most(ns) {
		return nil
	}
	from, to := l.span()
	tasks, all := 0, uint64(0)
	for _, t := range l.m.tasks {
		once := false
		for i := range t.memoryWaits {
			e := &t.memoryWaits[i]
			if lo, hi := max(e.from, from), min(e.to, to); l.spend() && e.cause == Reclaim && lo < hi {
				once = true
				all += hi - lo
			}
		}
		if once {
			tasks++
		}
	}
	if tasks < leastReclaimers {
		return nil
	}
	return &finding{confidence: Seen, why: fmt.Sprintf("%d tasks reclaimed memory themselves meanwhile, for %s together", tasks, duration(int64(all)))}
}
