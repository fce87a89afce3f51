package explain

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// A disk may be a file, another disk, or a server: its driver has a worker carry each request out.
// The work queue of a loop device is called as the disk is (drivers/block/loop.c), so the records
// say which work items those are. That of a network block device receives the answers in a work
// item that never ends (drivers/block/nbd.c); its worker is called so in procfs.

// receives is what the work queue of a network block device is called after the disk.
const receives = "-recv"

// execution is a stretch in which a worker of a disk's driver was at work.
type execution struct {
	*work
	from, to uint64
}

// executions lists when the work item was executed that carried a request out, in order; none:
// its disk has no such queue, or which of several items it was is not known.
func (m *model) executions(r *request, from, to uint64) []execution {
	disk := m.whoDevice(r).Device
	if list := m.executed(m.queues[disk], r, from, to); len(list) > 0 {
		return list
	}
	if workers := m.receivers()[disk]; len(workers) == 1 { // more: one for each connection
		return []execution{{&work{worker: workers[0]}, from, to}}
	}
	return nil
}

// inTurn reports whether one work item carries out all requests to the disk of one, each to its end
// before the next.
func (m *model) inTurn(r *request) bool {
	queue := m.queues[m.whoDevice(r).Device]
	queue = queue[sort.Search(len(queue), func(i int) bool { return queue[i].end > r.issue }):]
	for _, x := range queue {
		if m.scanned++; x.work != queue[0].work || m.scanned > maxScanned {
			return false
		}
		if x.end >= r.complete {
			break
		}
	}
	list := m.executions(r, r.issue, r.complete)
	return len(list) > 0 && m.handedOn(r, list[len(list)-1].work, r.issue) == nil
}

// receivers lists the workers that receive the answers for network block devices, by the disk.
func (m *model) receivers() map[string][]int {
	if m.received != nil {
		return m.received
	}
	m.received = map[string][]int{}
	for tid, t := range m.tasks {
		f, ok := m.taskInfo(tid)
		if !ok || !f.Kernel || t.work != nil || len(t.works) > 0 {
			continue
		}
		_, queue, _ := strings.Cut(f.Comm, "+") // that it is at work for
		if disk, ok := strings.CutSuffix(queue, receives); ok {
			m.received[disk] = append(m.received[disk], tid)
		}
	}
	return m.received
}

// executed lists what of a disk's work queue carried a request out.
func (m *model) executed(queue []*work, r *request, from, to uint64) (list []execution) {
	items := map[uint64]bool{}
	own := uint64(0) // that was queued when the request was issued
	i := sort.Search(len(queue), func(i int) bool { return queue[i].end > r.started() })
	for _, x := range queue[i:min(len(queue), i+maxAhead)] {
		if m.scanned++; x.start >= to || m.scanned > maxScanned {
			continue
		}
		items[x.work] = true
		if own == 0 && x.queuer == r.tid && x.queued >= r.started() && x.queued < r.started()+lateWork {
			own = x.work
		}
		if x.end > from {
			list = append(list, execution{x, max(x.start, from), min(x.end, to)})
		}
	}
	if len(items) > 1 { // one for each cgroup
		list = slices.DeleteFunc(list, func(e execution) bool { return e.work.work != own })
	}
	slices.SortFunc(list, func(a, b execution) int { return cmp.Compare(a.from, b.from) })
	return list
}

// lateWork is how much later than a request is issued its driver may queue the work for it.
const lateWork = 100_000

// carriedOut explains a wait for a disk by what the worker of its driver did meanwhile. The rest
// of the wait, if there is one, is after it: the worker was through with the request by then.
func (w *walker) carriedOut(p piece, r *request) []piece {
	list := w.m.executions(r, p.from, p.to)
	if len(list) == 0 {
		return []piece{p}
	}
	if len(w.stack) == 0 { // of a request: its owner's path has no thread
		w.stack = append(w.stack, p.task)
		defer func() { w.stack = w.stack[:0] }()
	}
	last := &list[len(list)-1]
	q, rest := p, p
	worked := last.to
	q.to = worked
	lower := w.m.handedOn(r, last.work, p.from)
	if lower != nil {
		worked, q.to = lower.started(), min(lower.complete, p.to)
	}
	w.descendInto(&q, last.worker, func() (below []piece) {
		at := q.from
		for i := range list {
			e := &list[i]
			if from := min(e.from, worked); from > at {
				below = w.add(below, piece{
					from: at, to: from, task: e.worker, cpu: -1, state: "blocked", cause: WorkQueue, by: w.m.whoWork(e.work), item: e.work,
					why: "its work " + w.m.workName(e.function) + " waited in the queue",
				})
				at = from
			}
			if to := min(e.to, worked); to > at {
				below = append(below, w.follow(e.worker, at, to)...)
				at = to
			}
		}
		if lower != nil { // whether the worker waited for that or not
			w.stack = append(w.stack, last.worker)
			below = w.diskPieces(below, piece{from: at, to: q.to, task: last.worker, cpu: -1, state: "blocked"}, lower)
			w.stack = w.stack[:len(w.stack)-1]
		}
		lessSure(below, byDriver)
		return below
	})
	if len(q.below) == 0 {
		return []piece{p}
	}
	if rest.from = q.to; rest.from < rest.to {
		return []piece{q, rest}
	}
	return []piece{q}
}

// handedOn returns the request to another disk with whose end one ended after a time, which the
// work item that carried it out submitted. Nil: there is none, or it has not ended.
func (m *model) handedOn(r *request, x *work, from uint64) *request {
	if x.work == 0 {
		return nil
	}
	for i := sort.Search(len(m.requests), func(i int) bool { return m.requests[i].complete > r.complete }) - 1; i >= 0; i-- {
		o := m.requests[i]
		if m.scanned++; o.complete+lateInterrupt < r.complete || o.complete <= from || m.scanned > maxScanned {
			break
		}
		if o.dev != r.dev && o.by != nil && o.by.work == x.work && o.started() >= r.started() {
			return o
		}
	}
	return nil
}
