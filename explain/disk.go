package explain

import (
	"fmt"
	"sort"
)

// Operations of block requests: the low bits of their flags.
const reqOpMask = 0xff

var operations = map[uint32]string{0: "read", 1: "write", 2: "flush", 3: "discard", 5: "secure erase", 9: "write of zeroes"}

func operation(flags uint32) string {
	if op := operations[flags&reqOpMask]; op != "" {
		return op
	}
	return "request"
}

// diskPieces splits a wait for a block request.
func (w *walker) diskPieces(out []piece, p piece, r *request) []piece {
	device := w.m.whoDevice(r)
	what := w.m.requestText(r)
	if r.tid != p.task && r.tid != 0 {
		what += " of " + w.m.whoOwner(r).Name
	}
	at := p.from
	add := func(to uint64, cause Cause, by *Who, why string) {
		if to = min(to, p.to); to > at {
			q := p
			q.from, q.to, q.cause, q.by, q.why = at, to, cause, by, why
			out = w.add(out, q)
			at = to
		}
	}
	add(r.started(), BlockQueue, device, "before the "+what+" was queued")
	if r.insert > 0 && r.issue > at {
		if by := w.m.busiestOther(r, at, r.issue); by != nil {
			add(r.issue, BlockQueue, by, what+" waited in the queue of "+device.Device+" behind others")
		}
		add(r.issue, BlockQueue, device, what+" waited in the queue of "+device.Device)
	}
	if until, by := w.m.requestsAhead(r); by != nil {
		add(until, BlockQueue, by, what+" was behind others in "+device.Device)
	}
	add(p.to, BlockDevice, device, what)
	return out
}

func (m *model) requestText(r *request) string {
	op := operation(r.flags)
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

// maxOtherRequests bounds how many requests are looked at for each one that was waited
// for, maxLooks for all together.
const (
	maxOtherRequests = 4096
	maxScanned       = 1 << 22
)

// seekCost is what positions and answers cost a disk, in bytes.
const seekCost = 16 << 10

// requestsAhead finds the requests of others that the device had got before r and
// that kept it from serving r: until when they did, and whose they were. One
// that serves many at once answers r long after the last one before it, or at
// once with it; only if the time between fits the share of r was it behind them.
func (m *model) requestsAhead(r *request) (until uint64, by *Who) {
	if r.issue == 0 || r.complete <= r.issue || m.scanned > maxScanned {
		return 0, nil
	}
	bytes, n := uint64(0), uint64(0)
	sums := map[int]uint64{}
	var best *request
	last := sort.Search(len(m.requests), func(i int) bool { return m.requests[i].complete > r.complete })
	for i := last - 1; i >= max(0, last-maxOtherRequests); i-- {
		o := m.requests[i]
		if m.scanned++; o.complete <= r.issue {
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
		sums[o.tid] += uint64(o.bytes) + seekCost
		if best == nil || sums[o.tid] > sums[best.tid] {
			best = o
		}
	}
	if best == nil {
		return 0, nil
	}
	mine := uint64(r.bytes) + seekCost
	whole := mine + bytes + n*seekCost
	const patience = 8
	if float64(r.complete-until)*patience < float64(r.complete-r.issue)*float64(mine)/float64(whole) {
		return 0, nil
	}
	return until, m.whoOwner(best)
}

// busiestOther is whose requests kept a device busy in a stretch, those with most bytes.
func (m *model) busiestOther(r *request, from, to uint64) *Who {
	sums := map[int]uint64{}
	var best *request
	if m.scanned > maxScanned {
		return nil
	}
	count := func(o *request) {
		m.scanned++
		if begin := o.started(); o == r || o.dev != r.dev || o.tid == r.tid || begin == 0 || begin >= to || o.complete > 0 && o.complete <= from {
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
		p.cause, p.reason = Unexplained, "the trace does not have its request: the recorder's event group block is off, or the history is too short"
		p.why = p.reason
		return w.add(nil, p)
	}
	if r.tid != 0 {
		p.task = r.tid
	}
	return w.diskPieces(nil, p, r)
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
