// Package breakdown says in words what the account of an activity holds. It takes values by
// their names, as clients, JSON and the command line have them.
package breakdown

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/text"
)

// Values are those of an account by their names; those that are 0 may be missing.
type Values map[string]uint64

// Names of the values that make up the time in which threads worked for an activity. They
// add up to Wall.
const (
	Wall        = "wall_ns"
	CPU         = "cpu_ns"
	Runnable    = "runnable_ns"
	Blocked     = "blocked_ns"
	Unexplained = "unexplained_ns"
)

// Part is a part of the wall time.
type Part struct {
	Value string // its name
	Words string // after a duration
	Short string // of a column
}

// Parts are all of them, in the order of tables. They add up to Wall, as those of Blocked
// add up to that.
var Parts = []Part{
	{CPU, "on CPU", "CPU"},
	{Runnable, "waiting for a CPU", "RUNNABLE"},
	{"blocked_disk_ns", "blocked on disk", "DISK"},
	{"blocked_lock_ns", "blocked on locks", "LOCK"},
	{"blocked_kernel_lock_ns", "blocked on locks of the kernel", "KLOCK"},
	{"blocked_network_ns", "waiting for the network", "NETWORK"},
	{"blocked_task_ns", "waiting for another task", "TASK"},
	{"blocked_timer_ns", "asleep until a timer", "TIMER"},
	{"blocked_fault_ns", "blocked in page faults", "FAULT"},
	{"blocked_reclaim_ns", "blocked in memory reclaim", "RECLAIM"},
	{"blocked_work_ns", "waiting for work items of the kernel", "WORK"},
	{"blocked_other_ns", "blocked otherwise", "OTHER"},
	{Unexplained, "unexplained", "UNEXPLAINED"},
}

// Largest lists the parts that are not 0, the largest first.
func (v Values) Largest() []Part {
	list := slices.DeleteFunc(slices.Clone(Parts), func(p Part) bool { return v[p.Value] == 0 })
	slices.SortStableFunc(list, func(a, b Part) int { return cmp.Compare(v[b.Value], v[a.Value]) })
	return list
}

// Words says where the time of an activity went. elapsed is from its begin to its end, in
// nanoseconds, or until now if it is live.
func Words(name string, elapsed uint64, live bool, v Values) string {
	var b strings.Builder
	took := "took"
	if live {
		took = "has taken"
	}
	fmt.Fprintf(&b, "%s %s %s", cmp.Or(text.Clean(name), "an activity"), took, duration(elapsed))
	if v[Wall] == 0 {
		return b.String() + ", and no thread has carried it"
	}
	sep := ": "
	for _, p := range v.Largest() {
		if p.Value != Unexplained && v[p.Value] >= v[Wall]/100 {
			b.WriteString(sep + duration(v[p.Value]) + " " + p.Words)
			sep = ", "
		}
	}
	switch rest := v[Unexplained]; {
	case rest < v[Wall]/100:
		b.WriteString("; nothing unexplained")
	default:
		b.WriteString("; " + duration(rest) + " unexplained")
	}
	switch wall := v[Wall]; {
	case wall < elapsed-elapsed/50: // also of more than one thread
		b.WriteString("; " + duration(elapsed-wall) + " carried by no thread")
	case wall > elapsed+elapsed/50:
		fmt.Fprintf(&b, "; %s in several threads", duration(wall))
	}
	return b.String()
}

func duration(ns uint64) string { return term.Duration(int64(min(ns, 1<<62))) }

// Difference is how a value differs between two accounts.
type Difference struct {
	Value string `json:"value"`
	A     uint64 `json:"a"`
	B     uint64 `json:"b"`
}

// Delta is B - A.
func (d *Difference) Delta() int64 { return int64(d.B) - int64(d.A) }

// Diff lists the values that differ, those that are parts of the wall time first, by how
// much, and then the others by their names.
func Diff(a, b Values) []Difference {
	var parts, rest []Difference
	names := map[string]bool{}
	for _, v := range []Values{a, b} {
		for name := range v {
			names[name] = true
		}
	}
	for name := range names {
		d := Difference{Value: name, A: a[name], B: b[name]}
		switch {
		case d.A == d.B:
		case IsPart(name):
			parts = append(parts, d)
		default:
			rest = append(rest, d)
		}
	}
	slices.SortFunc(parts, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(abs(y.Delta()), abs(x.Delta())), cmp.Compare(x.Value, y.Value))
	})
	slices.SortFunc(rest, func(x, y Difference) int { return cmp.Compare(x.Value, y.Value) })
	return append(parts, rest...)
}

// IsPart reports whether a value is one of Parts.
func IsPart(name string) bool {
	return slices.ContainsFunc(Parts, func(p Part) bool { return p.Value == name })
}

// PartWords are the words of a part; the name itself of another value.
func PartWords(name string) string {
	for _, p := range Parts {
		if p.Value == name {
			return p.Words
		}
	}
	return name
}

func abs(n int64) int64 { return max(n, -n) }
