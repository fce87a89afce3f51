package watch

import (
	"slices"
	"sync/atomic"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Shared is what is known of a process that has opened, and not of which of its tokens.
type Shared struct {
	PID int
	UID uint32
	Identity
	MachineNS uint64 // interrupts and softirqs on top of its threads, which are in the CPU time of tokens, too
	Late      uint64 // credits to tokens that had ended
	Values    Values // those from ACTIVITY_SYSCALLS on
}

// none reports whether there is nothing of it.
func (s *Shared) none() bool {
	return s.MachineNS == 0 && s.Late == 0 && !slices.ContainsFunc(s.Values[:], func(n uint64) bool { return n > 0 })
}

func (m *Maps) shared() (s Shared) {
	h := accountsAt[abi.ActivityHeader](m, 0)
	s.MachineNS, s.Late = atomic.LoadUint64(&h.MachineNs), atomic.LoadUint64(&h.Late)
	for i := range h.Unknown {
		s.Values[abi.ActivitySyscalls+i] = atomic.LoadUint64(&h.Unknown[i])
	}
	return s
}

// addShared adds what is known of a process alone. Requires w.mu.
func (w *Watcher) addShared(r *Report, f *followed) {
	s := f.shared()
	if s.none() {
		return
	}
	s.PID, s.UID, s.Identity = f.process.PID(), f.process.UID(), f.identity
	r.Shared = append(r.Shared, s)
}

// SharedOf returns what is known of a process alone that nobody follows; false: nothing.
func SharedOf(p Process) (s Shared, ok bool) {
	p.Read(func(m *Maps) {
		if m.Valid() {
			s = m.shared()
			ok = !s.none()
		}
	})
	return s, ok
}
