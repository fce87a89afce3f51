package explain

import (
	"cmp"
	"fmt"
	"sort"
	"strings"
	"unicode"
)

// verdict says in one sentence where the time went.
func (w *walker) verdict(r *Result, pieces []piece) string {
	var b strings.Builder
	b.WriteString(w.head(r))
	groups := grouped(r.Parts)
	for i := range groups {
		g := &groups[i]
		if i >= 3 || i > 0 && g.ns < r.DelayNS/10 {
			break
		}
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(w.phrase(g, pieces))
		if i == 0 && g.parts[0].Cause == r.Blame.Cause && g.parts[0].By == r.Blame.By {
			for j := range r.Chain {
				b.WriteString(", which " + w.link(&r.Chain[j]))
			}
		}
	}
	if wk := w.wokenBy(); wk != nil {
		b.WriteString(", woken by " + title(wk))
	}
	b.WriteString(".")
	return printable(b.String())
}

// head says what was slow, and how slow.
func (w *walker) head(r *Result) string {
	o, d := w.outlier, duration(r.DelayNS)
	who := r.Task.Name
	still := o.Cause == "timeout"
	has := func(past, present string) string {
		if still {
			return present
		}
		return past
	}
	switch o.Track {
	case "wakeup":
		return fmt.Sprintf("%s %s %s to run on CPU %d", who, has("waited", "has waited"), d, w.waitCPU())
	case "offcpu":
		s := fmt.Sprintf("%s %s off the CPU for %s", who, has("was", "has been"), d)
		if o.Syscall != "" {
			s += " in " + o.Syscall
		}
		return s
	case "syscall":
		return fmt.Sprintf("%s %s %s in %s", who, has("spent", "has spent"), d, cmp.Or(o.Syscall, "a system call"))
	case "block":
		what, device := "request", o.Device
		if q := w.m.requestOf(o); q != nil {
			what, who = w.m.requestWords(q), w.m.whoOwner(q).Name
		}
		return fmt.Sprintf("a %s by %s %s %s on %s", what, who, has("took", "has taken"), d, device)
	case "irq":
		return fmt.Sprintf("the handler %s of irq %d kept CPU %d from %s for %s", o.Name, o.IRQ, o.CPU, who, d)
	case "softirq":
		if o.Raised {
			return fmt.Sprintf("softirq %s on CPU %d waited %s to run", o.Name, o.CPU, d)
		}
		return fmt.Sprintf("softirq %s kept CPU %d from %s for %s", o.Name, o.CPU, who, d)
	}
	return fmt.Sprintf("%s of %s %s %s", o.Rule, who, has("took", "has taken"), d)
}

// waitCPU is where the task waited longest to run.
func (w *walker) waitCPU() int {
	best, most := w.outlier.CPU, uint64(0)
	w.ready(func(s *segment, from, to uint64) {
		if to-from > most {
			best, most = int(s.cpu), to-from
		}
	})
	return best
}

// ready visits the stretches in which the slow task waited for a CPU.
func (w *walker) ready(visit func(s *segment, from, to uint64)) {
	t := w.m.tasks[w.outlier.TID]
	if t == nil {
		return
	}
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].to > w.outlier.Start })
	for ; i < len(t.segments) && t.segments[i].from < w.outlier.End; i++ {
		if s := &t.segments[i]; s.state == runnable {
			visit(s, max(s.from, w.outlier.Start), min(s.to, w.outlier.End))
		}
	}
}

// wokenBy is who made a task runnable that then waited for a CPU.
func (w *walker) wokenBy() *Who {
	var by *Who
	if w.outlier.Track == "wakeup" {
		w.ready(func(s *segment, _, _ uint64) {
			if by == nil && s.wake != nil {
				by = w.m.whoWoke(s.wake)
			}
		})
	}
	return by
}

// group is all parts of one cause.
type group struct {
	cause Cause
	ns    int64
	parts []Part
}

// grouped puts parts of one cause together, the largest group first.
func grouped(parts []Part) []group {
	var out []group
	at := map[Cause]int{}
	for i := range parts {
		n, ok := at[parts[i].Cause]
		if !ok {
			n = len(out)
			at[parts[i].Cause] = n
			out = append(out, group{cause: parts[i].Cause})
		}
		out[n].ns += parts[i].NS
		out[n].parts = append(out[n].parts, parts[i])
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].ns > out[j].ns })
	return out
}

// phrase says what one cause took.
func (w *walker) phrase(g *group, pieces []piece) string {
	first, d := &g.parts[0], duration(g.ns)
	if (g.cause == Preempted || g.cause == Runnable || g.cause == Misplaced) && first.By != nil && first.By.Kind == KindTask {
		s := d + " behind " + crowd(g)
		switch {
		case g.cause == Misplaced:
			s += ", " + longest(pieces, first).why
		case g.cause == Runnable && len(g.parts) == 1:
			s += ", which has the same priority"
		}
		return s
	}
	name := ""
	if first.By != nil {
		name = title(first.By)
	}
	p := longest(pieces, first)
	switch g.cause {
	case RunningUser:
		return d + " running"
	case RunningKernel:
		return d + " running in the kernel"
	case Running:
		return d + " running"
	case Runnable:
		return d + " waiting for an idle CPU to take it up"
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
		return d + " waiting for " + name + " (" + p.why + ")"
	case Locked:
		if first.By.Kind == KindUnknown {
			return d + " waiting for a lock (" + p.why + ")"
		}
		return d + " waiting for a lock that " + name + " held"
	case Task:
		return d + " waiting" + spaced(p.why) + " for " + name
	case Timer:
		return d + " asleep until a timer" + inParens(p.why)
	case Network:
		return d + " waiting for " + name + inParens(p.why)
	case Reclaim:
		return d + " getting back memory for " + name
	case Compaction:
		return d + " making room for large pages of memory"
	case PageFault:
		return d + " for pages that were not in memory, from " + name
	case WorkQueue:
		return d + " waiting for " + name + inParens(p.why)
	case Journal:
		return d + " waiting for the journal of its file system, " + name
	case Stopped:
		return d + " stopped by " + name + inParens(p.why)
	}
	return d + " unexplained: " + first.Reason
}

// link says what one of the chain did.
func (w *walker) link(p *Part) string {
	d, name := duration(p.NS), ""
	if p.By != nil {
		name = title(p.By)
	}
	switch p.Cause {
	case RunningUser, Running, RunningKernel:
		return "ran for " + d
	case Preempted:
		return "waited " + d + " to run behind " + name
	case Runnable, Misplaced:
		if p.By.Kind == KindTask {
			return "waited " + d + " to run behind " + name
		}
		return "waited " + d + " to run"
	case Throttled:
		return "was throttled for " + d + ", as " + name + " had used up its CPU quota"
	case IRQ, Softirq:
		return "spent " + d + " on " + name
	case StolenTime:
		return "lost its CPU to the hypervisor for " + d
	case BlockQueue:
		if p.By.Kind == KindTask {
			return "waited " + d + " for a disk behind requests of " + name
		}
		return "waited " + d + " in the queue of " + name
	case BlockDevice:
		return "waited " + d + " for " + name
	case Locked:
		return "waited " + d + " for a lock that " + name + " held"
	case Timer:
		return "slept " + d + " until a timer"
	case Reclaim, Compaction:
		return "spent " + d + " on getting memory for " + name
	case PageFault:
		return "waited " + d + " for pages from " + name
	case Stopped:
		return "was stopped for " + d + " by " + name
	case Unexplained:
		return "did for " + d + " what the trace does not tell (" + p.Reason + ")"
	}
	return "waited " + d + " for " + name
}

// crowd names those that had the CPU.
func crowd(g *group) string {
	first := &g.parts[0]
	if len(g.parts) == 1 || first.NS > g.ns*6/10 {
		return title(first.By)
	}
	if len(g.parts) == 2 {
		return title(first.By) + " and " + title(g.parts[1].By)
	}
	tasks, same := map[int]bool{}, true
	for i := range g.parts {
		tasks[g.parts[i].By.TID] = true
		same = same && g.parts[i].By.Comm == first.By.Comm
	}
	if same && first.By.Comm != "" {
		return fmt.Sprintf("%d tasks named %s (%s took %s)", len(tasks), first.By.Comm, title(first.By), duration(first.NS))
	}
	return fmt.Sprintf("%d tasks (%s took %s, %s %s)", len(tasks), title(first.By), duration(first.NS), title(g.parts[1].By), duration(g.parts[1].NS))
}

// longest finds the longest piece of a part.
func longest(pieces []piece, part *Part) *piece {
	key := partKey{part.Cause, part.By, part.Reason}
	best := &piece{}
	for i := range pieces {
		if p := &pieces[i]; p.key() == key && p.to-p.from > best.to-best.from {
			best = p
		}
	}
	return best
}

func spaced(s string) string {
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

// title names a culprit in a sentence.
func title(w *Who) string {
	s := w.Name
	switch w.Kind {
	case KindTask:
		s += rank(w)
	case KindIRQ:
		return "interrupt " + s
	case KindSoftirq:
		return "softirq " + s
	case KindTimer:
		if s != "timer" {
			return "timer " + s
		}
		return "a timer"
	case KindCgroup:
		if strings.HasPrefix(s, "/") {
			return "cgroup " + s
		}
	case KindWork:
		s = "work " + s
	case KindSelf:
		return "itself"
	}
	if w.For != nil {
		switch w.Kind {
		case KindNetwork:
			s += ", from " + title(w.For)
		case KindWork:
			s += ", queued by " + title(w.For)
		default:
			s += ", at work for " + title(w.For)
		}
	}
	return s
}

// rank says what lets a task go before others.
func rank(w *Who) string {
	switch {
	case w.Prio < 0:
		return " (SCHED_DEADLINE)"
	case w.Prio > 0 && w.Prio < 100:
		if w.Policy == "" || w.Policy == "SCHED_OTHER" {
			return fmt.Sprintf(" (real-time priority %d)", 99-w.Prio)
		}
		return fmt.Sprintf(" (%s %d)", w.Policy, 99-w.Prio)
	case w.Prio >= 100 && w.Prio != 120:
		return fmt.Sprintf(" (nice %d)", w.Prio-120)
	}
	return ""
}

// duration writes nanoseconds for people.
func duration(ns int64) string {
	v := float64(ns)
	switch {
	case ns < 1000:
		return fmt.Sprintf("%d ns", ns)
	case v < 999.5e3:
		return fmt.Sprintf("%.0f us", v/1e3)
	case v < 999.95e6:
		return fmt.Sprintf("%.1f ms", v/1e6)
	}
	return fmt.Sprintf("%.2f s", v/1e9)
}

// printable keeps a hostile name from moving the cursor of a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
