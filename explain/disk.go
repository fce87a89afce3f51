package explain

import (
	"cmp"
	"fmt"
	"sort"

	"github.com/tailcam/tailcam/internal/linux"
)

// disk splits a wait for a block request.
func (w *walker) disk(out []piece, p piece, r *request) []piece {
	device := w.m.whoDevice(r)
	what := w.m.requestWords(r)
	if r.tid != p.task && r.tid != 0 {
		what += " of " + w.m.whoOwner(r).Name
	}
	at := p.from
	add := func(to uint64, cause Cause, by *Who, why string) {
		if to = min(to, p.to); to > at {
			q := p
			q.from, q.to, q.cause, q.by, q.why = at, to, cause, by, why
			out = w.put(out, q)
			at = to
		}
	}
	add(r.begin(), BlockQueue, device, "before the "+what+" was queued")
	if r.insert > 0 && r.issue > at {
		if by := w.m.others(r, at, r.issue); by != nil {
			add(r.issue, BlockQueue, by, what+" waited in the queue of "+device.Device+" behind others")
		}
		add(r.issue, BlockQueue, device, what+" waited in the queue of "+device.Device)
	}
	if until, by := w.m.inFront(r); by != nil {
		add(until, BlockQueue, by, what+" was behind others in "+device.Device)
	}
	add(p.to, BlockDevice, device, what)
	return out
}

func (m *model) requestWords(r *request) string {
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

// maxOthers bounds how many requests are looked at for each one that was waited
// for, maxLooks for all together.
const (
	maxOthers = 4096
	maxLooks  = 1 << 22
)

// seek is what positions and answers cost a disk, in bytes.
const seek = 16 << 10

// inFront finds the requests of others that the device had got before r and
// that kept it from serving r: until when they did, and whose they were. One
// that serves many at once answers r long after the last one before it, or at
// once with it; only if the time between fits the share of r was it behind them.
func (m *model) inFront(r *request) (until uint64, by *Who) {
	if r.issue == 0 || r.complete <= r.issue || m.looks > maxLooks {
		return 0, nil
	}
	bytes, n := uint64(0), uint64(0)
	sums := map[int]uint64{}
	var best *request
	last := sort.Search(len(m.requests), func(i int) bool { return m.requests[i].complete > r.complete })
	for i := last - 1; i >= max(0, last-maxOthers); i-- {
		o := m.requests[i]
		if m.looks++; o.complete <= r.issue {
			break
		}
		if o == r || o.dev != r.dev || o.issue == 0 || o.issue >= r.issue {
			continue
		}
		bytes += uint64(o.bytes)
		n++
		if o.tid == r.tid {
			continue
		}
		until = max(until, o.complete)
		sums[o.tid] += uint64(o.bytes) + seek
		if best == nil || sums[o.tid] > sums[best.tid] {
			best = o
		}
	}
	if best == nil {
		return 0, nil
	}
	mine := uint64(r.bytes) + seek
	whole := mine + bytes + n*seek
	const patience = 8
	if float64(r.complete-until)*patience < float64(r.complete-r.issue)*float64(mine)/float64(whole) {
		return 0, nil
	}
	return until, m.whoOwner(best)
}

// others is whose requests kept a device busy in a stretch, those with most bytes.
func (m *model) others(r *request, from, to uint64) *Who {
	sums := map[int]uint64{}
	var best *request
	if m.looks > maxLooks {
		return nil
	}
	count := func(o *request) {
		m.looks++
		if begin := o.begin(); o == r || o.dev != r.dev || o.tid == r.tid || begin == 0 || begin >= to || o.complete > 0 && o.complete <= from {
			return
		}
		sums[o.tid] += uint64(o.bytes) + seek
		if best == nil || sums[o.tid] > sums[best.tid] || sums[o.tid] == sums[best.tid] && o.tid < best.tid {
			best = o
		}
	}
	first := sort.Search(len(m.requests), func(i int) bool { return m.requests[i].complete > from })
	for i := first; i < min(len(m.requests), first+maxOthers); i++ {
		count(m.requests[i])
	}
	if best == nil && len(m.inFlight) <= maxOthers {
		for _, o := range m.inFlight {
			count(o)
		}
	}
	if best == nil {
		return nil
	}
	return m.whoOwner(best)
}

// openRequest is a request of a task that has not completed, the oldest.
func (m *model) openRequest(tid int, at uint64) *request {
	var found *request
	if m.looks > maxLooks {
		return nil
	}
	for _, r := range m.inFlight {
		if m.looks++; r.tid == tid && r.begin() < at+earlyWake && (found == nil || r.begin() < found.begin() || r.begin() == found.begin() && r.rq < found.rq) {
			found = r
		}
	}
	return found
}

// request explains an outlier of the block tracker.
func (w *walker) request() []piece {
	o := w.outlier
	r := w.m.requestOf(o)
	p := piece{from: o.Start, to: o.End, task: o.TID, cpu: -1, state: "blocked"}
	if r == nil {
		p.cause, p.reason = Unexplained, "the trace does not have its request: the recorder's event group block is off, or the history is too short"
		p.why = p.reason
		return w.put(nil, p)
	}
	if r.tid != 0 {
		p.task = r.tid
	}
	return w.disk(nil, p, r)
}

// requestOf finds the request that an outlier is about.
func (m *model) requestOf(o *Outlier) *request {
	i := sort.Search(len(m.requests), func(i int) bool { return m.requests[i].complete >= o.End })
	for ; i < len(m.requests) && m.requests[i].complete == o.End; i++ {
		if r := m.requests[i]; r.sector == o.Sector || r.insert == o.Start || r.issue == o.Start {
			return r
		}
	}
	var found *request
	look := func(r *request) { // a timeout: it was still under way
		if (r.insert == o.Start || r.issue == o.Start) && (found == nil || r.rq < found.rq) {
			found = r
		}
	}
	for _, r := range m.inFlight {
		look(r)
	}
	for ; found == nil && i < len(m.requests); i++ {
		look(m.requests[i])
	}
	return found
}
