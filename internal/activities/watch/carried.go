package watch

import "github.com/tailcam/tailcam/bpf/abi"

// Carried returns the activity that a thread carried all the time from one moment to another,
// in nanoseconds of CLOCK_MONOTONIC; nil: none, or it is not certain. The slot of a thread has
// two tokens: what it carries, and what it carried before. tid is as the process sees it.
func (w *Watcher) Carried(pid, tid int, from, to uint64) (r *Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.opts.Now()
	for _, f := range w.processes {
		if f.process.PID() != pid {
			continue
		}
		f.process.Read(func(m *Maps) {
			if !m.Valid() {
				return
			}
			t := m.threadOf(tid)
			h, ok := t.carried(from, to)
			if !ok || h.Token < m.first() || int(h.Token-m.first()) >= m.Tokens {
				return
			}
			token, account, ok := m.both(h.Token)
			if ok && token.used() == h.Generation {
				r = w.newRecord(f, h.Token, &token, now)
				r.account(&token, account)
				r.Live = token.Generation == h.Generation
			}
		})
		if r != nil {
			break
		}
	}
	return r
}

// Follows reports whether a process has opened.
func (w *Watcher) Follows(pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.processes {
		if f.process.PID() == pid {
			return true
		}
	}
	return false
}

// carried is the half that holds for all of that time.
func (t *Thread) carried(from, to uint64) (Half, bool) {
	now, past := t.Half[0], t.Half[1]
	switch {
	case t.TID == 0:
	case now.SinceNS <= from:
		return now, now.Token != 0
	case past.SinceNS <= from && now.SinceNS >= to:
		return past, past.Token != 0
	}
	return Half{}, false
}

// threadOf finds the slot of a thread, near its home.
func (m *Maps) threadOf(tid int) Thread {
	shift := 32
	for n := m.Threads; n > 1; n /= 2 {
		shift--
	}
	home := int(uint32(tid) * abi.ActivityHash >> shift)
	for i := range abi.ActivityThreadWindow {
		if t := m.thread((home + i) & (m.Threads - 1)); t.TID == tid {
			return t
		}
	}
	return Thread{}
}
