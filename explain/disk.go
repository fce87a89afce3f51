package explain

import (
	"cmp"
	"fmt"
	"sort"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// diskPieces splits a wait for a block request.
func (w *walker) diskPieces(out []piece, p piece, r *request) []piece {
	device := w.m.whoDevice(r)
	text := w.m.requestText(r)
	if r.tid != p.task && r.tid != 0 {
		text += " of " + w.m.whoOwner(r).Name
	}
	at := p.from
	add := func(to uint64, cause Cause, by *Who, why string, e evidence) {
		if to = min(to, p.to); to > at {
			q := p
			q.from, q.to, q.cause, q.by, q.why = at, to, cause, by, why
			if e != byRecords {
				q.evidence = e
			}
			out = w.add(out, q)
			at = to
		}
	}
	if w.m.olderThanHistory(r) {
		add(w.m.coveredFrom, BlockDevice, device, text, byOldRequest) // in its queue, or in it
	}
	if until := min(r.started(), p.to); until > at {
		q := p
		q.from, q.to = at, until
		switch {
		case w.m.heldBack(r):
			out = w.add(out, w.limitPiece(q, r))
		case r.by != nil && r.by.worker != p.task:
			// Such as the device mapper's, which submits what the task has sent to another disk.
			out = w.workPieces(out, q, &wake{tid: r.by.worker, work: r.by})
		case w.m.byAnother(r, p.task):
			// Such as a worker of io_uring: what that did before is its own path.
			q.cause, q.by, q.why = Task, w.m.whoOwner(r), "before the "+text+" was queued"
			w.descend(&q, r.tid)
			out = w.add(out, q)
		default:
			add(until, BlockQueue, device, "before the "+text+" was queued", byRecords)
		}
		at = until
	}
	if r.insert > 0 && r.issue > at {
		if by := w.m.busiestOther(r, at, min(r.issue, p.to)); by != nil {
			add(r.issue, BlockQueue, by, text+" waited in the queue of "+device.Device+" behind others", byQueueShare)
		}
		add(r.issue, BlockQueue, device, text+" waited in the queue of "+device.Device, byRecords)
	}
	until, by, alone := w.m.requestsAhead(r, at)
	if by != nil {
		add(until, BlockQueue, by, text+" was behind others in "+device.Device, byDeviceOrder)
	}
	e := byRecords
	switch {
	case r.started() == 0:
		e = byOldRequest
	case !alone:
		e = byDeviceOrder // what the device did first is not seen
	}
	if at >= p.to {
		return out
	}
	p.from, p.cause, p.by, p.why = at, BlockDevice, device, text
	if e != byRecords {
		p.evidence = e
	}
	for _, q := range w.carriedOut(p, r) {
		out = w.add(out, q)
	}
	return out
}

func (m *model) requestText(r *request) string {
	op := cmp.Or(linux.BlockOp(r.flags), "request")
	if r.bytes == 0 {
		return op
	}
	return op + " of " + bytesText(uint64(r.bytes))
}

func bytesText(n uint64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// maxOtherRequests bounds the requests examined per wait, maxScanned those in total.
const (
	maxOtherRequests = 4096
	maxScanned       = 1 << 22
)

// seekCost is the overhead of a request, expressed in bytes.
const seekCost = 16 << 10

// requestsAhead returns the requests of other tasks that were issued before r and
// delayed it after a time: until when, and whose they were, or nil; and whether r was alone in
// the device. A device that serves many requests at
// once completes r much later than the one before, or together with it; r was behind
// the others only if the time in between matches its share, or if a worker has one after the other.
func (m *model) requestsAhead(r *request, from uint64) (until uint64, by *Who, alone bool) {
	if r.issue == 0 || r.complete <= r.issue || m.scanned > maxScanned {
		return 0, nil, true
	}
	bytes, n := uint64(0), uint64(0)
	sums := map[int]uint64{}
	var best *request
	last := sort.Search(len(m.requests), func(i int) bool { return m.requests[i].complete > r.complete })
	alone = !m.overtook(r, last)
	for i := last - 1; i >= max(0, last-maxOtherRequests); i-- {
		o := m.requests[i]
		if m.scanned++; o.complete <= r.issue {
			break
		}
		if o == r || o.dev != r.dev {
			continue
		}
		alone = alone && o.issue > 0 // or it may have been there before
		if o.issue == 0 || o.last >= r.last {
			continue
		}
		bytes += uint64(o.bytes)
		n++
		if o.tid == r.tid || o.tid == 0 || o.complete <= from {
			continue
		}
		until = max(until, o.complete)
		sums[o.tid] += uint64(o.bytes) + seekCost
		if best == nil || sums[o.tid] > sums[best.tid] {
			best = o
		}
	}
	if best == nil {
		return 0, nil, alone && n == 0
	}
	if m.inTurn(r) {
		return until, m.whoOwner(best), true
	}
	own := uint64(r.bytes) + seekCost
	total := own + bytes + n*seekCost
	const patience = 8
	if float64(r.complete-until)*patience < float64(r.complete-r.issue)*float64(own)/float64(total) {
		return 0, nil, false
	}
	return until, m.whoOwner(best), false
}

// lateInterrupt is how long after its end the completion of a request may be told.
const lateInterrupt = 1_000_000

// overtook reports whether a request that was in the device before r is told to have completed
// soon after it; those from next on completed later than r.
func (m *model) overtook(r *request, next int) bool {
	for i := next; i < min(len(m.requests), next+maxOtherRequests) && m.requests[i].complete < r.complete+lateInterrupt; i++ {
		m.scanned++
		if o := m.requests[i]; o.dev == r.dev && o.issue > 0 && o.last < r.last {
			return true
		}
	}
	return false
}

// byAnother reports whether another task, which is known, has submitted a request.
func (m *model) byAnother(r *request, tid int) bool {
	return r.tid != 0 && r.tid != tid && r.by == nil && m.tasks[r.tid] != nil
}

// busiestOther returns the other task with the most bytes in flight on the device in an
// interval.
func (m *model) busiestOther(r *request, from, to uint64) *Who {
	return m.busiest(r.dev, from, to, func(o *request) bool { return o == r || o.tid == r.tid })
}

// busiest returns the task with the most bytes in flight on a device in an interval, but for
// requests that are left out.
func (m *model) busiest(dev uint32, from, to uint64, without func(*request) bool) *Who {
	sums := map[int]uint64{}
	var best *request
	if m.scanned > maxScanned {
		return nil
	}
	count := func(o *request) {
		m.scanned++
		if begin := o.started(); o.dev != dev || o.tid == 0 || without(o) || begin == 0 || begin >= to || o.complete > 0 && o.complete <= from {
			return
		}
		sums[o.tid] += uint64(o.bytes) + seekCost
		if best == nil || sums[o.tid] > sums[best.tid] || sums[o.tid] == sums[best.tid] && o.tid < best.tid {
			best = o
		}
	}
	first := sort.Search(len(m.requests), func(i int) bool { return m.requests[i].complete > from })
	for i := first; i < min(len(m.requests), first+maxOtherRequests); i++ {
		count(m.requests[i])
	}
	if best == nil && len(m.inFlight) <= maxOtherRequests {
		for _, o := range m.inFlight {
			if m.gapIn(o.started(), to) == to { // otherwise it may have completed
				count(o)
			}
		}
	}
	if best == nil {
		return nil
	}
	return m.whoOwner(best)
}

// openRequest returns the oldest incomplete request of a task.
func (m *model) openRequest(tid int, at uint64) *request {
	var found *request
	if m.scanned > maxScanned {
		return nil
	}
	for _, r := range m.inFlight {
		if m.scanned++; r.tid == tid && r.started() < at+earlyWakeLimit && (found == nil || r.started() < found.started() || r.started() == found.started() && r.rq < found.rq) {
			found = r
		}
	}
	return found
}

// blockPieces explains an outlier of the block tracker.
func (w *walker) blockPieces() []piece {
	o := w.outlier
	r := w.m.requestOf(o)
	p := piece{from: o.Start, to: o.End, task: o.TID, cpu: -1, state: "blocked"}
	if r == nil {
		p.cause, p.reason = Unexplained, w.withoutRequest()
		p.why = p.reason
		return w.add(nil, p)
	}
	if r.tid != 0 {
		p.task = r.tid
	}
	return w.diskPieces(nil, p, r)
}

// requestOf returns the request of a block outlier.
func (m *model) requestOf(o *Outlier) *request {
	i := sort.Search(len(m.requests), func(i int) bool { return m.requests[i].complete >= o.End })
	for ; i < len(m.requests) && m.requests[i].complete == o.End; i++ {
		if r := m.requests[i]; r.sector == o.Sector || r.insert == o.Start || r.issue == o.Start {
			return r
		}
	}
	var found *request
	match := func(r *request) { // for timeouts: still in flight
		if (r.insert == o.Start || r.issue == o.Start) && (found == nil || r.rq < found.rq) {
			found = r
		}
	}
	for _, r := range m.inFlight {
		match(r)
	}
	for ; found == nil && i < len(m.requests); i++ {
		match(m.requests[i])
	}
	return found
}

// withoutRequest is why the history has no request of a block outlier.
func (w *walker) withoutRequest() string {
	m, o := w.m, w.outlier
	switch {
	case m.firstEventTime == 0:
		return "the trace is empty"
	case o.Start < m.coveredFrom:
		return reasonShort + ": it begins " + duration(int64(min(m.coveredFrom, o.End)-o.Start)) + " after the request"
	case m.recordsMissing(o.Start) || m.recordsMissing(o.End):
		return reasonOverwritten
	case !m.eventSeen[trace.BlockInsert] && !m.eventSeen[trace.BlockIssue] && !m.eventSeen[trace.BlockComplete]:
		return "the trace has no block request: the recorder's event group block is off"
	}
	return "the trace does not have its request"
}

// olderThanHistory reports whether a request began before the history does.
func (m *model) olderThanHistory(r *request) bool {
	return r.started() == 0 && m.firstEventTime > 0
}
