package explain

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode"
)

// verdict summarizes in one sentence where the time went.
func (w *walker) verdict(r *Result, pieces []piece) string {
	var b strings.Builder
	b.WriteString(r.Pattern.prefix() + w.subject(r) + w.ownLabels() + r.Behalf.text(r.DelayNS) + r.Activity.text(r.DelayNS))
	approximate := false
	for i, g := range named(r) {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(w.phrase(&g, pieces) + g.siteText() + g.behalf() + g.activity() + g.evicted())
		approximate = approximate || slices.ContainsFunc(g.parts, func(p Part) bool { return p.Approximate })
		if i == 0 && g.parts[0].Cause == r.Blame.Cause && g.parts[0].By == r.Blame.By {
			b.WriteString(w.links(r, &g))
		}
	}
	if wk := w.wokenBy(); wk != nil {
		b.WriteString(", woken by " + describe(wk))
	}
	if approximate {
		b.WriteString(" (approximate: softirqs were sampled)")
	}
	if r.Confidence == Guess {
		why := weakest(r).Evidence
		if w.found != nil && w.found.confidence == Guess {
			why = w.found.why
		}
		b.WriteString(" (a guess: " + why + ")")
	}
	b.WriteString(".")
	return printable(b.String())
}

// ownLabels are those of the outlier, if it has some.
func (w *walker) ownLabels() string { return inParens(labelText(w.outlier.Labels)) }

// named returns the groups of parts that a verdict names: three at most, each of a tenth of
// the time or more.
func named(r *Result) []group {
	groups := groupByCause(r.Parts)
	for i := range groups {
		if i >= 3 || i > 0 && groups[i].ns < r.DelayNS/10 {
			return groups[:i]
		}
	}
	return groups
}

// weakest returns the least sure part that a verdict names, or nil: all is unexplained.
func weakest(r *Result) *Part {
	var found *Part
	see := func(p *Part) {
		if p.Confidence != "" && (found == nil || p.Confidence.rank() > found.Confidence.rank()) {
			found = p
		}
	}
	for _, g := range named(r) {
		see(&g.parts[0])
	}
	for i := range r.Chain {
		see(&r.Chain[i])
	}
	return found
}

// confidence returns how sure a verdict is.
func confidence(r *Result) Confidence {
	if p := weakest(r); p != nil {
		return p.Confidence
	}
	return ""
}

// subject describes what was slow, and how slow.
func (w *walker) subject(r *Result) string {
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
		return fmt.Sprintf("%s %s %s to run on CPU %d", who, has("waited", "has waited"), d, w.longestWaitCPU())
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
			what, who = w.m.requestText(q), w.m.whoOwner(q).Name
		}
		return fmt.Sprintf("a %s by %s %s %s on %s", what, who, has("took", "has taken"), d, device)
	case "irq":
		return fmt.Sprintf("the handler %s of irq %d kept CPU %d from %s for %s", o.Name, o.IRQ, o.CPU, who, d)
	case "workqueue":
		work := "work " + o.Name
		if o.Queue != "" {
			work += " of queue " + o.Queue
		}
		switch {
		case o.Waiting && still && o.TID == 0:
			return fmt.Sprintf("%s has waited %s, and no worker has taken it", work, d)
		case o.Waiting:
			return fmt.Sprintf("%s waited %s for %s", work, d, who)
		}
		return fmt.Sprintf("%s %s %s in %s", work, has("took", "has taken"), d, who)
	case "softirq":
		if o.Raised {
			return fmt.Sprintf("softirq %s on CPU %d waited %s to run", o.Name, o.CPU, d)
		}
		return fmt.Sprintf("softirq %s kept CPU %d from %s for %s", o.Name, o.CPU, who, d)
	}
	if o.Track == "activity" && o.Account != "" && w.threads > 1 {
		return fmt.Sprintf("%s. Through %d threads, at last %s", o.Account, w.threads, who)
	}
	if o.Track == "activity" && o.Account != "" {
		return fmt.Sprintf("%s. In %s", o.Account, who)
	}
	if o.Cause == "trigger" && o.TID == 0 {
		return fmt.Sprintf("rule %s saved the last %s", o.Rule, d)
	}
	if o.Cause == "trigger" {
		return fmt.Sprintf("the last %s of %s", d, who)
	}
	switch {
	case o.Key != nil:
		return fmt.Sprintf("%s (%s) %s %s", o.Rule, keyText(o.Key), has("took", "has taken"), d)
	case o.Began != "":
		return fmt.Sprintf("%s %s %s", o.Rule, has("took", "has taken"), d)
	}
	return fmt.Sprintf("%s of %s %s %s", o.Rule, who, has("took", "has taken"), d)
}

// longestWaitCPU returns the CPU on which the task waited longest to run.
func (w *walker) longestWaitCPU() int {
	best, most := w.outlier.CPU, uint64(0)
	w.visitRunnable(func(s *segment, from, to uint64) {
		if to-from > most {
			best, most = int(s.cpu), to-from
		}
	})
	return best
}

// visitRunnable visits the runnable intervals of the slow task.
func (w *walker) visitRunnable(visit func(s *segment, from, to uint64)) {
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

// wokenBy returns the waker in a wakeup outlier, or nil.
func (w *walker) wokenBy() *Who {
	var by *Who
	if w.outlier.Track == "wakeup" {
		w.visitRunnable(func(s *segment, _, _ uint64) {
			if by == nil && s.wake != nil {
				by = w.m.whoWoke(s.wake)
			}
		})
	}
	return by
}

// group is the parts with the same cause.
type group struct {
	cause Cause
	ns    int64
	parts []Part
}

// groupByCause groups parts by cause, largest group first.
func groupByCause(parts []Part) []group {
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

// describe returns a culprit as part of a sentence.
func describe(w *Who) string {
	s := w.Name
	switch s {
	case shortInterrupts, someInterrupt, someSoftirq:
		return s
	}
	switch w.Kind {
	case KindTask:
		if w.Pod != "" || w.ContainerName != "" {
			s += " in " + w.where()
		}
		s += priorityText(w)
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
			return "cgroup " + s + inParens(w.Limit)
		}
	case KindWork:
		s = "work " + s
	case KindSelf:
		return "itself"
	}
	if w.For != nil {
		switch w.Kind {
		case KindNetwork:
			s += ", from " + describe(w.For)
		case KindWork:
			s += ", queued by " + describe(w.For)
		default:
			s += ", on behalf of " + describe(w.For)
		}
	}
	return s
}

// priorityText describes an unusual priority.
func priorityText(w *Who) string {
	switch {
	case w.Prio < 0:
		return " (SCHED_DEADLINE)"
	case w.Prio > 0 && w.Prio < 100:
		if w.Policy == "" || w.Policy == "SCHED_OTHER" {
			return fmt.Sprintf(" (real-time priority %d)", 99-w.Prio)
		}
		return fmt.Sprintf(" (%s %d)", w.Policy, 99-w.Prio)
	case w.Policy == policyIdle:
		return " (SCHED_IDLE)" // its nice value means nothing
	case w.Prio >= 100 && w.Prio != 120:
		return fmt.Sprintf(" (nice %d)", w.Prio-120)
	}
	return ""
}

// duration formats nanoseconds for people.
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

// printable replaces control characters in names, which may be hostile.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
