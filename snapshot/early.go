package snapshot

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// early is a lookup of names that begins with the first reading of the recorder, while the
// window of a snapshot goes on: its history mentions nearly all that the snapshot does.
type early struct {
	done  chan struct{} // closed when the others are set
	asked trace.References
	names Names
}

// wantsEarly reports whether names are still to be looked up early for a window. Real-time
// snapshots look up names on their own thread.
func (m *Manager) wantsEarly(w *window) bool {
	return w.early == nil && m.opts.Names != nil && m.opts.RTPriority == 0
}

// lookUpEarly begins the lookups of windows that have none.
func (m *Manager) lookUpEarly(windows []*window) {
	for _, w := range windows {
		if !m.wantsEarly(w) {
			continue
		}
		e := &early{done: make(chan struct{})}
		w.early = e
		m.mu.Lock()
		from, first := w.request.from, involved(w.request.outliers)
		m.mu.Unlock()
		cpus := m.history.since(from)
		go func() {
			defer close(e.done)
			_ = m.opts.Guard.Do(guard.TraceNames, func() error { // logs its errors
				asked := trace.FindReferences(cpus, m.opts.SyscallName)
				asked.First = first
				e.names = m.opts.Names(asked)
				e.asked = asked // not if it panicked: then all are asked for again
				return nil
			})
		}()
	}
}

// since returns what has been read of each CPU from a time on, without copying it: records
// do not change.
func (t *history) since(from uint64) (cpus []trace.CPU) {
	for cpu, ct := range t.cpus {
		for _, c := range ct.chunks {
			if c.to >= from {
				cpus = append(cpus, trace.CPU{CPU: cpu, Records: c.records})
			}
		}
	}
	return cpus
}

// rest is what is still to be looked up of refs: what was not asked for, and tasks that were
// not found, perhaps for lack of time.
func (e *early) rest(refs *trace.References) trace.References {
	found := make(map[int]bool, len(e.names.Tasks))
	for i := range e.names.Tasks {
		found[e.names.Tasks[i].TID] = true
	}
	rest := refs.Without(&e.asked)
	rest.TIDs = slices.DeleteFunc(slices.Clone(refs.TIDs), func(tid int) bool { return found[tid] })
	return rest
}

// merge adds names that were looked up later.
func (n *Names) merge(more *Names) {
	n.Tasks = append(n.Tasks, more.Tasks...)
	slices.SortStableFunc(n.Tasks, func(a, b NamedTask) int { return cmp.Compare(a.TID, b.TID) })
	n.Tasks = slices.CompactFunc(n.Tasks, func(a, b NamedTask) bool { return a.TID == b.TID })
	n.Sockets, n.Listeners = append(n.Sockets, more.Sockets...), append(n.Listeners, more.Listeners...)
	n.Files = append(n.Files, more.Files...)
	slices.SortStableFunc(n.Files, func(a, b trace.FileState) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.FD, b.FD))
	})
	for _, m := range []struct{ into, from *map[string]string }{
		{&n.Functions, &more.Functions}, {&n.Devices, &more.Devices}, {&n.Settings, &more.Settings}, {&n.Code, &more.Code},
	} {
		if *m.into == nil {
			*m.into = map[string]string{}
		}
		maps.Copy(*m.into, *m.from)
	}
	for _, g := range more.Limits {
		if !slices.ContainsFunc(n.Limits, func(l CgroupLimits) bool { return l.Cgroup == g.Cgroup }) {
			n.Limits = append(n.Limits, g)
		}
	}
}
