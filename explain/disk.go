package explain

import "fmt"

// disk splits a wait for a block request, cut to the piece.
func (w *walker) disk(p piece, r *request) []piece {
	var out []piece
	at := p.from
	add := func(to uint64, cause Cause, by *Who, why string) {
		to = min(to, p.to)
		if to <= at {
			return
		}
		q := p
		q.from, q.to, q.cause, q.by, q.why = at, to, cause, by, why
		out = append(out, q)
		at = to
	}
	begin := r.issue
	if r.insert > 0 && (begin == 0 || r.insert < begin) {
		begin = r.insert
	}
	device := w.m.whoDevice(r)
	what := w.m.requestWords(r)
	if begin > at {
		add(begin, BlockQueue, device, "before its request was queued")
	}
	if r.issue > 0 && r.insert > 0 && r.issue > at {
		by := w.m.others(r, r.insert, r.issue)
		if by == nil {
			by = device
		}
		add(r.issue, BlockQueue, by, what+" waited in the queue of "+device.Device)
	}
	if until, by := w.m.inFront(r); by != nil {
		add(until, BlockQueue, by, what+" behind requests that "+device.Device+" had got before")
	}
	add(p.to, BlockDevice, device, what)
	return out
}

// whoDevice names a request's device.
func (m *model) whoDevice(r *request) *Who {
	name := m.device(r.dev)
	return &Who{Kind: KindDevice, Name: name, Device: name}
}

var operations = map[uint32]string{0: "read", 1: "write", 2: "flush", 3: "discard", 5: "secure erase", 9: "write of zeroes"}

func operation(flags uint32) string {
	if op := operations[flags&reqOpMask]; op != "" {
		return op
	}
	return "request"
}

func (m *model) requestWords(r *request) string {
	op := operation(r.flags)
	if r.bytes == 0 {
		return op
	}
	return fmt.Sprintf("%s of %s", op, bytesText(uint64(r.bytes)))
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

// inFront finds the requests of others that the device had got before r and
// completed while r was with it: until when, and whose they were.
func (m *model) inFront(r *request) (until uint64, by *Who) {
	sums := map[int]uint64{}
	best := 0
	for _, o := range m.requests {
		if o == r || o.dev != r.dev || o.issue == 0 || o.issue >= r.issue || o.tid == r.tid ||
			o.complete <= r.issue || o.complete > r.complete {
			continue
		}
		until = max(until, o.complete)
		sums[o.tid] += uint64(max(o.bytes, 512))
		if best == 0 || sums[o.tid] > sums[best] {
			best = o.tid
		}
	}
	if best == 0 {
		return 0, nil
	}
	return until, m.whoOwns(best)
}

// others is whose requests of the same device were under way in a stretch,
// those with most bytes.
func (m *model) others(r *request, from, to uint64) *Who {
	sums := map[int]uint64{}
	best := 0
	count := func(o *request) {
		begin := o.issue
		if begin == 0 {
			begin = o.insert
		}
		if o == r || o.dev != r.dev || o.tid == r.tid || begin == 0 || begin >= to || (o.complete > 0 && o.complete <= from) {
			return
		}
		sums[o.tid] += uint64(max(o.bytes, 512))
		if best == 0 || sums[o.tid] > sums[best] || sums[o.tid] == sums[best] && o.tid < best {
			best = o.tid
		}
	}
	for _, o := range m.requests {
		count(o)
	}
	if best == 0 {
		for _, o := range m.inFlight {
			count(o)
		}
	}
	if best == 0 {
		return nil
	}
	return m.whoOwns(best)
}

// whoOwns is the task that asked for a request.
func (m *model) whoOwns(tid int) *Who {
	w := m.whoTask(tid)
	if w.Comm == "" {
		for _, r := range m.requests {
			if r.tid == tid {
				w.Comm = r.comm.String()
				w.Name = fmt.Sprintf("%s %d", w.Comm, tid)
				break
			}
		}
	}
	return w
}

// openRequest is a request of a task that has not completed.
func (m *model) openRequest(tid int, at uint64) *request {
	var found *request
	for _, r := range m.inFlight {
		if r.tid == tid && (found == nil || r.rq < found.rq) && max(r.insert, r.issue) < at+maxCompletion {
			found = r
		}
	}
	return found
}

// requestAt finds the request that completed at a moment, of a task.
func (m *model) requestAt(start, end uint64, tid int) *request {
	var best *request
	for _, r := range m.requests {
		if r.complete == end && (best == nil || r.tid == tid && best.tid != tid) {
			best = r
		}
	}
	if best != nil {
		return best
	}
	for _, r := range m.inFlight { // a timeout: it is still under way
		if r.insert == start || r.issue == start {
			return r
		}
	}
	return nil
}
