package explain

import "github.com/tailcam/tailcam/snapshot/trace"

// ingestTask handles what a task does: system calls, locks, memory, guests.
func (m *model) ingestTask(ev *trace.Event, c *cpu) {
	if b, ok := ev.Body.(trace.Throttle); ok {
		m.ingestThrottle(ev, &b)
		return
	}
	if b, ok := ev.Body.(trace.Stolen); ok {
		m.ingestSteal(ev, c, &b)
		return
	}
	if ev.TID == 0 {
		return
	}
	t := m.task(ev.TID)
	switch b := ev.Body.(type) {
	case trace.Syscall:
		m.clearFrames(c, ev.Time, nil)
		t.pid = b.PID
		if n := m.thread(t); n != nil {
			n.ingestCall(t.tid, ev, &b)
		}
		t.calls = m.ingestCall(t.calls, ev.Time, ev.Type == trace.SyscallEntry, call{nr: int(b.NR), name: b.Name})
	case trace.KVM:
		t.guests = m.ingestCall(t.guests, ev.Time, ev.Type == trace.KVMEntry, call{})
	case trace.Stack:
		m.ingestStack(t, c, ev, &b)
	case trace.Lock:
		if len(c.frames) == 0 {
			m.ingestLock(t, ev, &b)
		}
	case trace.FileLock:
		m.ingestFileLock(t, ev.Time, &b)
	case trace.Reclaim:
		m.ingestMemoryWait(t, ev.Time, ev.Type == trace.ReclaimBegin, memoryWait{cause: Reclaim, memcg: b.Memcg})
	case trace.Compaction:
		m.ingestMemoryWait(t, ev.Time, ev.Type == trace.CompactionBegin, memoryWait{cause: Compaction})
	}
}

// ingestCall adds an entry or exit to a list of calls. An exit without an entry began
// before the trace.
func (m *model) ingestCall(list []call, at uint64, begins bool, x call) []call {
	n := len(list)
	open := n > 0 && list[n-1].to == forever
	switch {
	case begins && open:
		list[n-1].to = at // its exit is missing
		fallthrough
	case begins:
		x.from, x.to = at, forever
	case open:
		list[n-1].to = at
		if at <= m.from {
			m.kept--
			list = list[:n-1]
		}
		return list
	case n > 0 || at <= m.from:
		return list
	default:
		x.from, x.to = 0, at
	}
	if m.reserve() {
		list = append(list, x)
	}
	return list
}

func (m *model) ingestLock(t *task, ev *trace.Event, b *trace.Lock) {
	n := len(t.lockWaits)
	open := n > 0 && t.lockWaits[n-1].to == forever
	if ev.Type == trace.LockBegin {
		if open {
			t.lockWaits[n-1].to = ev.Time
		}
		if m.reserve() {
			t.lockWaits = append(t.lockWaits, lockWait{from: ev.Time, to: forever, owner: b.OwnerTID, flags: b.Flags, lock: b.Lock})
		}
		return
	}
	if open {
		t.lockWaits[n-1].to = ev.Time
		if ev.Time <= m.from {
			t.lockWaits = t.lockWaits[:n-1]
			m.kept--
		}
	}
}

func (m *model) ingestMemoryWait(t *task, at uint64, begins bool, e memoryWait) {
	n := len(t.memoryWaits)
	open := n > 0 && t.memoryWaits[n-1].to == forever
	switch {
	case begins && open: // nested
	case begins:
		if e.from, e.to = at, forever; m.reserve() {
			t.memoryWaits = append(t.memoryWaits, e)
		}
	case open && t.memoryWaits[n-1].cause == e.cause:
		t.memoryWaits[n-1].to = at
		if at <= m.from {
			t.memoryWaits = t.memoryWaits[:n-1]
			m.kept--
		}
	case n == 0 && at > m.from && m.reserve():
		e.to = at
		t.memoryWaits = append(t.memoryWaits, e)
	}
}

func (m *model) ingestThrottle(ev *trace.Event, b *trace.Throttle) {
	if b.CPU < 0 || b.CPU >= maxCPUs {
		return
	}
	c := m.cpu(b.CPU)
	if ev.Type == trace.CgroupThrottle {
		if m.reserve() {
			c.quota = append(c.quota, quota{from: ev.Time, to: forever, cgroup: b.Cgroup})
		}
		return
	}
	for i := len(c.quota) - 1; i >= max(0, len(c.quota)-maxQuotas); i-- {
		// A switch does not say which cgroup is throttled: the first unthrottle ends
		// it.
		if q := &c.quota[i]; q.to == forever && (q.cgroup == 0 || q.cgroup == b.Cgroup) {
			q.to = ev.Time
		}
	}
}
