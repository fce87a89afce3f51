// Package budget decides what tailcam does without when it costs more than it
// may, and when that comes back. It is arithmetic: Meter turns counters and
// prices into costs, Controller turns costs into decisions, and the caller
// counts, carries out and logs.
package budget

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Window is the time over which cost is averaged, and the interval between decisions.
const Window = 10 * time.Second

// Kind is a kind of work that can be shed.
type Kind string

// Kinds, in the order in which they are shed (see worth).
const (
	Group      Kind = "group"       // a group of recorder.events
	Histograms Kind = "histograms"  // of all delays
	UserStacks Kind = "user stacks" // of outliers
	Wakers     Kind = "wakers"      // who wakes whom: the scheduler itself tells how long tasks wait
	Askers     Kind = "askers"      // who asks for block requests: the kernel itself tells how long they take
	Rule       Kind = "rule"

	// Gates shed them, no Controller.
	SoftirqHooks Kind = "softirq hooks"
	LockHooks    Kind = "lock hooks" // of contended locks of the kernel
)

// Part is what is shed in one step. Name is that of the group or rule, else empty.
type Part struct {
	Kind Kind
	Name string
}

// String names the part as status, log and snapshots do: "group irq".
func (p Part) String() string {
	if p.Name == "" {
		return string(p.Kind)
	}
	return fmt.Sprintf("%s %s", p.Kind, p.Name)
}

// Cost is what a part costs, or would cost if it were not shed.
type Cost struct {
	Part     Part
	CPU      float64 // CPU seconds per second
	Priority int     // of a rule
}

// ProgramCost is what a program costs without what is shed of it.
type ProgramCost struct {
	Name     string
	CPU      float64 // CPU seconds per second
	Measured bool    // its price was measured; false: it is assumed
}

// Sample is one window.
type Sample struct {
	At    time.Duration // on a monotonic clock
	CPUs  int           // online
	Total float64       // CPU seconds per second, all CPUs together: of the programs and, of these,
	Own   float64       // of the daemon
	Help  float64       // of its helpers
	Parts []Cost        // all that can be shed, or is
	// Programs are what was attached, and Length is that of the window.
	Programs []ProgramCost
	Length   time.Duration
	// PriceAge is the time since the prices were measured; CanMeasure: they can be,
	// or else they are assumed for good.
	PriceAge   time.Duration
	CanMeasure bool
}

// Share is the cost as a share of the time of all CPUs.
func (s *Sample) Share() float64 { return s.Total / float64(max(s.CPUs, 1)) }

// Groups in the order of their worth for an explanation. What must be asked for
// and is frequent goes first; within one set the dearest does.
var (
	frequent  = []string{"syscall", "memory", "net", "kvm", "power"}
	essential = []string{"process", "block", "sched"} // in this order, after user stacks
)

// worth orders parts: the least is shed first.
func worth(p Part) int {
	switch p.Kind {
	case Group:
		if slices.Contains(frequent, p.Name) {
			return 0
		}
		if i := slices.Index(essential, p.Name); i >= 0 {
			return 4 + i
		}
		return 1
	case Histograms:
		return 2
	case UserStacks:
		return 3
	case Wakers:
		return 4 + len(essential)
	case Askers:
		return 5 + len(essential)
	}
	return 6 + len(essential)
}

// order sorts parts in the order in which they are shed.
func order(parts []Cost) []Cost {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b Cost) int {
		return cmp.Or(
			cmp.Compare(worth(a.Part), worth(b.Part)),
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(b.CPU, a.CPU),
			cmp.Compare(a.Part.Name, b.Part.Name),
		)
	})
	return parts
}
