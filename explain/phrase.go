package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/internal/linux"
)

// phrase describes the time of one cause.
func (w *walker) phrase(g *group, pieces []piece) string {
	first, d := &g.parts[0], duration(g.ns)
	if (g.cause == Preempted || g.cause == Runnable || g.cause == Misplaced) && first.By != nil && first.By.Kind == KindTask {
		s := d + " behind " + taskNames(g)
		switch {
		case g.cause == Misplaced:
			s += ", " + longest(pieces, first).why
		case g.cause == Runnable && longest(pieces, first).why != "":
			s += ", " + longest(pieces, first).why
		case g.cause == Runnable && g.byOne():
			s += w.equalText(first.By)
		}
		return s
	}
	name := ""
	if first.By != nil {
		name = describe(first.By)
	}
	p := *longest(pieces, first)
	if o := w.outlier; (o.Track == "irq" || o.Track == "softirq" && !o.Raised) && first.By != nil && first.By.Name == o.Name {
		return d + " in it"
	}
	if o := w.outlier; p.why == "in "+o.Syscall && (o.Track == "syscall" || o.Track == "offcpu") {
		p.why = "" // already in the subject
	}
	switch g.cause {
	case RunningUser:
		return d + " running"
	case RunningKernel:
		return d + " running in the kernel"
	case Running:
		return d + " running"
	case Preempted, Misplaced:
		return d + " waiting to run behind " + name
	case Runnable:
		return d + " waiting for an idle CPU to wake up"
	case Throttled:
		return d + " throttled, as " + name + " had used up its CPU quota"
	case IRQ:
		if p.state == "blocked" {
			return d + " until " + name
		}
		return d + " interrupted by " + name
	case Softirq:
		if p.state == "blocked" {
			return d + " until " + name
		}
		return d + " interrupted by " + name
	case StolenTime:
		return d + " stolen by the hypervisor"
	case BlockQueue:
		if first.By.Kind == KindTask {
			return d + " behind requests of " + name + ": " + p.why
		}
		return d + " queued for " + name + " (" + p.why + ")"
	case BlockDevice:
		return d + " waiting for " + name + inParens(p.why)
	case Locked:
		if first.By.Kind == KindUnknown {
			return d + " waiting for " + waits[p.wait].words + " (" + p.why + ")"
		}
		return d + " waiting for " + waits[p.wait].words + " that " + name + " held"
	case Task:
		if first.By.Kind == KindUnknown {
			return d + " waiting " + waits[p.wait].words + " (" + p.why + ")"
		}
		return d + " " + taskWords(p.wait, name, p.why)
	case Timer:
		return d + timerWords(p.wait, p.why)
	case ProtocolTimer:
		return d + " until " + protocolWords(p.wait, first.By.Name) + g.protocolToo() + inParens(p.why)
	case Limited:
		return d + " held up by " + limitWords(p.wait, name) + inParens(p.why)
	case Network:
		return d + " waiting" + withSpace(p.why) + " for " + name + heldWords(p.wait)
	case Reclaim:
		return d + " reclaiming memory for " + name
	case Compaction:
		return d + " compacting memory"
	case PageFault:
		return d + " waiting for pages from " + name
	case WorkQueue:
		return d + " waiting for " + name + inParens(p.why)
	case Journal:
		return d + " waiting for the journal of its file system, " + name
	case Stopped:
		return d + " stopped by " + name + inParens(p.why)
	}
	return d + " unexplained: " + first.Reason
}

// equalText says why a task had the CPU that has the kernel priority of the slow one.
func (w *walker) equalText(by *Who) string {
	mine, _ := w.m.taskInfo(w.outlier.TID)
	switch {
	case mine.Policy == policyIdle && by.Policy != policyIdle && by.Policy != "":
		return ", which goes before SCHED_IDLE"
	case mine.Policy != policyIdle && by.Policy == policyIdle:
		return "" // it was in the kernel, or had just begun
	}
	if theirs, _ := w.m.taskInfo(by.TID); by.Prio >= realTime && w.m.autogrouped(&mine, &theirs) {
		return ", which is of another session: nice values do not count between them"
	}
	if by.Prio != w.slowPrio() {
		return ""
	}
	return ", which has the same priority"
}

// protocolToo says what another timer of TCP did, if there was one of another kind.
func (g *group) protocolToo() string {
	for i := range g.parts[1:] {
		if p := &g.parts[1+i]; p.Wait != g.parts[0].Wait {
			return " and until " + protocolWords(waitOf(p.Wait), p.By.Name)
		}
	}
	return ""
}

// byOne reports whether one culprit is named for all of a group.
func (g *group) byOne() bool {
	by := g.byCulprit()
	return len(by) == 1 || by[0].NS > g.ns*6/10
}

// byCulprit returns the parts with those of one task together, as one may have several waits.
func (g *group) byCulprit() []Part {
	out := make([]Part, 0, len(g.parts))
	for i := range g.parts {
		p := &g.parts[i]
		j := slices.IndexFunc(out, func(o Part) bool { return p.By != nil && o.By != nil && p.By.TID != 0 && p.By.TID == o.By.TID })
		if j < 0 {
			out = append(out, *p)
			continue
		}
		out[j].NS += p.NS
	}
	slices.SortStableFunc(out, func(a, b Part) int { return cmp.Compare(b.NS, a.NS) })
	return out
}

// taskNames names the tasks that had the CPU.
func taskNames(g *group) string {
	parts := g.byCulprit()
	first := &parts[0]
	if g.byOne() {
		return describe(first.By)
	}
	if len(parts) == 2 {
		return describe(first.By) + " and " + describe(parts[1].By)
	}
	tasks, names := map[int]bool{}, map[string]bool{}
	for i := range parts {
		tasks[parts[i].By.TID] = true
		names[parts[i].By.Comm] = true
	}
	if name := commonName(names); name != "" {
		return fmt.Sprintf("%d tasks named %s (%s took %s)", len(tasks), name, describe(first.By), duration(first.NS))
	}
	return fmt.Sprintf("%d tasks (%s took %s, %s %s)", len(tasks), describe(first.By), duration(first.NS), describe(parts[1].By), duration(parts[1].NS))
}

// commonName is what tasks of these names are called together: worker-* for worker-1 and
// worker-2; "": they have nothing in common.
func commonName(names map[string]bool) string {
	family := ""
	for name := range names {
		f := linux.Family(name)
		if f == "" || family != "" && f != family {
			return ""
		}
		family = f
	}
	if len(names) == 1 {
		for name := range names {
			return name
		}
	}
	if family != "" {
		family += "*"
	}
	return family
}

// longest returns the longest piece of a part.
func longest(pieces []piece, part *Part) *piece {
	key := part.key()
	best := &piece{}
	for i := range pieces {
		if p := &pieces[i]; p.key() == key && p.to-p.from > best.to-best.from {
			best = p
		}
	}
	return best
}

func withSpace(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}

func inParens(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
