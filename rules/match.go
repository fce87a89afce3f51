package rules

import "slices"

// Facts describe one piece of work. What does not apply to a tracker is empty;
// Syscall is then -1.
type Facts struct {
	Comm     string
	PID, UID uint32
	TID      uint32
	Place
	Syscall   int
	Device    string // disk name
	Sector    uint64
	Op        Op
	State     State
	Kernel    bool // a kernel thread
	Preempted bool
	IRQ, CPU  uint32
	Name      string // of an interrupt handler or a work queue
	Function  string // of a work item: symbol of the kernel
	Vector    Vector
	Phase     Phase
	Key       string // of a span
	// chain: its origins (an interrupt whose handler runs a timer is both), its end, its softirqs
	From    []Origin
	End     End
	Through []Vector
}

// Matches reports whether all conditions hold. The kernel side evaluates most of
// them itself, in the same way.
func (m *Match) Matches(f *Facts) bool {
	thread := UserThread
	if f.Kernel {
		thread = KernelThread
	}
	return anyGlob(GlobMatch, m.Comm, m.NotComm, f.Comm) &&
		m.matchesPlace(&f.Place) &&
		anyGlob(GlobMatch, m.Device, m.NotDevice, f.Device) &&
		isOneOf(m.PID, m.NotPID, f.PID) &&
		isOneOf(m.TID, m.NotTID, f.TID) &&
		isOneOf(m.UID, m.NotUID, f.UID) &&
		isOneOf(m.Syscall, m.NotSyscall, f.Syscall) &&
		(m.Sector == nil || f.Sector >= m.Sector.First && f.Sector <= m.Sector.Last) &&
		isOneOf(m.Op, nil, f.Op) &&
		isOneOf(m.State, nil, f.State) &&
		isOneOf(m.IRQ, m.NotIRQ, f.IRQ) &&
		anyGlob(GlobMatch, m.Name, m.NotName, f.Name) &&
		anyGlob(GlobMatch, m.Queue, m.NotQueue, f.Name) &&
		anyGlob(GlobMatch, m.Function, m.NotFunction, f.Function) &&
		(isOneOf(m.Vector, m.NotVector, f.Vector) || anyOf(m.Vector, f.Through)) &&
		isOneOf(m.Phase, nil, f.Phase) &&
		isOneOf(m.CPU, m.NotCPU, f.CPU) &&
		isOneOf(m.Thread, nil, thread) &&
		(len(m.From) == 0 || anyOf(m.From, f.From)) &&
		isOneOf(m.Ends, nil, f.End) &&
		anyGlob(GlobMatch, m.Key, m.NotKey, f.Key) &&
		(m.Preempted == nil || *m.Preempted == f.Preempted)
}

func (m *Match) matchesPlace(at *Place) bool {
	all, not := m.Places()
	return all.All(at) && !not.Any(at)
}

func anyGlob(match func(pattern, s string) bool, want, not []string, s string) bool {
	hit := func(pattern string) bool { return match(pattern, s) }
	return (len(want) == 0 || slices.ContainsFunc(want, hit)) && !slices.ContainsFunc(not, hit)
}

func isOneOf[T comparable](want, not []T, v T) bool {
	return (len(want) == 0 || slices.Contains(want, v)) && !slices.Contains(not, v)
}

func anyOf[T comparable](want, have []T) bool {
	return slices.ContainsFunc(have, func(v T) bool { return slices.Contains(want, v) })
}
