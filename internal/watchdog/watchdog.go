// Package watchdog finds parts of the daemon that have work and get nothing of it done.
//
// Checks without progress are counted, not time: when the process or its machine stood
// still, each part gets its chance before it counts as hung. A part that waits for
// something outside of tailcam, such as a disk, is not hung, as a restart would find
// the same disk.
package watchdog

// Patience is how many checks in a row a part may have work and make no progress.
const Patience = 4

// State is what a part is doing.
type State struct {
	Done  uint64 // changes whenever something was done
	Idle  bool   // there is nothing to do
	Waits string // for what outside of tailcam; empty: for nothing
	Work  string // what there is to do, for the log
}

// Part is a part of the daemon. State is called once per check, and must not take a
// lock that the part may hang with.
type Part struct {
	Name  string
	State func() State
}

// Finding is a part that hangs, or waits for something outside.
type Finding struct {
	Part string
	State
	Checks int // without progress
}

// Watchdog checks parts. It is not safe for concurrent use.
type Watchdog struct {
	parts []watched
}

type watched struct {
	Part
	done   uint64
	checks int // without progress
}

// New returns a watchdog of these parts.
func New(parts []Part) *Watchdog {
	w := &Watchdog{}
	for _, p := range parts {
		w.parts = append(w.parts, watched{Part: p})
	}
	return w
}

// Check looks at each part once. hung lists those that have made no progress in the last
// Patience checks, and waits those that make none because of something outside.
func (w *Watchdog) Check() (hung, waits []Finding) {
	for i := range w.parts {
		p := &w.parts[i]
		s := p.State()
		if s.Idle || s.Done != p.done {
			p.done, p.checks = s.Done, 0
			continue
		}
		p.checks++
		f := Finding{Part: p.Name, State: s, Checks: p.checks}
		switch {
		case s.Waits != "":
			p.checks = 0
			waits = append(waits, f)
		case p.checks >= Patience:
			hung = append(hung, f)
		}
	}
	return hung, waits
}
