package explain

// completionWakeLimit is the maximum time between a request's completion in a task and
// a wake-up attributed to it.
const completionWakeLimit = 100_000

// requestDone reports whether a wake-up may be due to a request that has just completed.
func (c *cpu) requestDone(at uint64) bool {
	return c.lastRequest != nil && at-c.lastRequestAt < completionWakeLimit
}

// endsRequests reports whether block requests complete in such a context: where timers
// expire, and where packets are received, other things happen.
func (x *context) endsRequests() bool {
	if x.kind == KindSoftirq {
		return x.number != softirqNetRX && x.number != softirqTimer && x.number != softirqHrtimer
	}
	return x.kind != KindTimer
}

// endsRequests reports whether block requests complete in a task: in work items and in threads
// of the kernel, but those that do I/O of their own.
func (m *model) endsRequests(t *task) bool {
	return t.work != nil || m.kernelThread(t.tid) && kernelWait(t.comm.String()) == ""
}

// othersWakeLimit is the same for the requests of other programs.
const othersWakeLimit = 20_000

// concerns reports whether a task, in its last segment, may have waited for a request that has
// just completed: for one that it may wait for, or for a page that another program reads, of which
// it is told at once.
func (m *model) concerns(w *wake, at uint64, t *task, s *segment) bool {
	return m.mayWaitFor(w.request, t, s) || at-w.request.complete < othersWakeLimit
}

// mayWaitFor reports whether a task, in a segment, waits for such requests: of its own process, or
// uninterruptibly for what the kernel submitted.
func (m *model) mayWaitFor(r *request, t *task, s *segment) bool {
	by := m.tasks[r.tid]
	switch {
	case by == nil || by.tid == t.tid || by.pid != 0 && by.pid == t.pid:
		return true
	case s != nil && s.bits&taskUninterruptible != 0 && m.kernelThread(by.tid):
		return true
	}
	return false
}
