package explain

import (
	"fmt"
	"strings"
)

// verdict puts a result into words.
type verdict struct {
	m      *model
	o      *Outlier
	r      *Result
	pieces []piece
}

func taskWords(comm string, tid int) string { return fmt.Sprintf("%s %d", printable(comm), tid) }

func irqName(n int) string { return fmt.Sprintf("irq %d", n) }

// duration writes nanoseconds as people do.
func duration(ns int64) string {
	switch {
	case ns >= 10e9:
		return fmt.Sprintf("%.1f s", float64(ns)/1e9)
	case ns >= 1e9:
		return fmt.Sprintf("%.2f s", float64(ns)/1e9)
	case ns >= 1e6:
		return fmt.Sprintf("%.1f ms", float64(ns)/1e6)
	case ns >= 1e3:
		return fmt.Sprintf("%.0f us", float64(ns)/1e3)
	}
	return fmt.Sprintf("%d ns", ns)
}

// printable keeps a hostile name from moving the cursor of a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// mostOf is from which share on a part is named beside the largest one.
const mostOf = 10

func (v *verdict) sentence() string {
	head := v.head()
	if len(v.r.Parts) == 0 {
		return head + "."
	}
	said := []string{v.part(&v.r.Parts[0])}
	if v.r.Root != nil {
		said[0] += v.deeper(v.r.Root)
	}
	for i := 1; i < len(v.r.Parts) && len(said) < 3; i++ {
		if p := &v.r.Parts[i]; p.NS*mostOf >= v.r.DelayNS {
			said = append(said, v.part(p))
		}
	}
	text := head + ": " + strings.Join(said, ", ")
	if by := v.woken(); by != "" {
		text += "; woken by " + by
	}
	return text + "."
}

// head says who was slow and at what.
func (v *verdict) head() string {
	who, long := v.name(&v.r.Task), duration(v.r.DelayNS)
	switch v.o.Track {
	case "wakeup":
		return fmt.Sprintf("%s waited %s to run on CPU %d", who, long, v.o.CPU)
	case "offcpu":
		return fmt.Sprintf("%s was off the CPU for %s", who, long)
	case "syscall":
		name := v.o.Syscall
		if name == "" {
			name = "a system call"
		}
		return fmt.Sprintf("%s spent %s in %s", who, long, name)
	case "block":
		return fmt.Sprintf("a block request of %s took %s", who, long)
	case "irq":
		return fmt.Sprintf("the handler of irq %d kept CPU %d for %s", v.o.IRQ, v.o.CPU, long)
	case "softirq":
		if v.o.Raised {
			return fmt.Sprintf("softirq %s on CPU %d ran %s after it was raised", v.o.Vector, v.o.CPU, long)
		}
		return fmt.Sprintf("softirq %s ran for %s on CPU %d", v.o.Vector, long, v.o.CPU)
	}
	return fmt.Sprintf("%s took %s in rule %s", who, long, v.o.Rule)
}

func (v *verdict) name(w *Who) string {
	if w == nil {
		return "nobody known"
	}
	switch w.Kind {
	case KindTask:
		s := taskWords(w.Comm, w.TID)
		if w.Comm == "" {
			s = fmt.Sprintf("task %d", w.TID)
		}
		return s
	case KindSoftirq:
		return "softirq " + w.Name
	case KindIRQ:
		if strings.HasPrefix(w.Name, "irq ") {
			return w.Name
		}
		return "irq " + printable(w.Name)
	case KindTimer:
		if w.Name == "timer" {
			return "a timer"
		}
		return "timer " + w.Name
	}
	return printable(w.Name)
}

// rank is a task's name with what gives it its place in the queue.
func (v *verdict) rank(w *Who) string {
	s := v.name(w)
	if w == nil || w.Kind != KindTask {
		return s
	}
	policy := w.Policy
	f, _ := v.m.fact(w.TID)
	switch {
	case w.Prio < 0:
		return s + " (SCHED_DEADLINE)"
	case w.Prio < 100:
		if policy == "" || policy == "SCHED_OTHER" {
			policy = "real-time"
		}
		n := f.RTPriority
		if n == 0 {
			n = 99 - w.Prio
		}
		return fmt.Sprintf("%s (%s %d)", s, policy, n)
	case w.Prio != 120:
		return fmt.Sprintf("%s (nice %d)", s, w.Prio-120)
	}
	return s
}

// part is one part as a phrase.
func (v *verdict) part(p *Part) string {
	ns, by := duration(p.NS), v.name(p.By)
	if p.NS == v.r.DelayNS {
		ns = "all of it"
	}
	switch p.Cause {
	case Preempted:
		return ns + " behind " + v.rank(p.By)
	case Runnable:
		if p.By != nil && p.By.Kind == KindSelf {
			return ns + " until the CPU took it up"
		}
		return ns + " in the queue behind " + v.rank(p.By) + v.crowd()
	case Misplaced:
		return ns + " behind " + v.rank(p.By) + " " + v.whyOf(p)
	case Throttled:
		return ns + " throttled, as the CPU quota of " + by + " was used up"
	case IRQ, Softirq:
		return ns + " while " + by + " ran"
	case StolenTime:
		return ns + " stolen by the hypervisor"
	case Running, RunningKernel, RunningUser:
		where := map[Cause]string{Running: "", RunningKernel: " in the kernel", RunningUser: " in user space"}[p.Cause]
		return ns + " running" + where
	case BlockQueue:
		if p.By != nil && p.By.Kind == KindTask {
			return ns + " behind the requests of " + by + v.whyTail(p)
		}
		return ns + " in the queue of " + by
	case BlockDevice:
		return fmt.Sprintf("%s for %s to complete %s", ns, by, v.requestOf(p))
	case Locked:
		return ns + " waiting for a lock held by " + v.rank(p.By)
	case Task:
		return ns + " waiting for " + by + v.whyTail(p)
	case Timer:
		return ns + " until " + by + " expired" + v.whyTail(p)
	case Network:
		return ns + " waiting for the network" + v.whyTail(p)
	case Reclaim:
		return ns + " reclaiming memory"
	case Compaction:
		return ns + " compacting memory"
	case PageFault:
		return ns + " for a page to come from " + by
	case WorkQueue:
		return ns + " waiting for a work queue behind " + by
	case Journal:
		return ns + " waiting for the journal commit of " + by
	case Stopped:
		return ns + " stopped; let go on by " + by
	}
	return ns + " unexplained (" + p.Reason + ")"
}

// crowd tells of many others in the same queue.
func (v *verdict) crowd() string {
	n, ns := 0, int64(0)
	for i := range v.r.Parts {
		if p := &v.r.Parts[i]; p.Cause == Runnable && p.By != nil && p.By.Kind == KindTask {
			n++
			ns += p.NS
		}
	}
	if n < 3 {
		return ""
	}
	return fmt.Sprintf(" and %d others, %s together", n-1, duration(ns))
}

// longest is the longest piece of a part.
func (v *verdict) longest(p *Part) *piece {
	var best *piece
	for i := range v.pieces {
		q := &v.pieces[i]
		if q.cause == p.Cause && sameWho(q.by, p.By) && (best == nil || q.to-q.from > best.to-best.from) {
			best = q
		}
	}
	return best
}

func (v *verdict) whyOf(p *Part) string {
	if q := v.longest(p); q != nil {
		return q.why
	}
	return ""
}

func (v *verdict) whyTail(p *Part) string {
	if why := v.whyOf(p); why != "" {
		return ", " + why
	}
	return ""
}

func (v *verdict) requestOf(p *Part) string {
	if q := v.longest(p); q != nil && q.why != "" {
		return "a " + q.why
	}
	return "a request"
}

// deeper says what the task that was waited for did itself.
func (v *verdict) deeper(p *Part) string {
	ns := duration(p.NS)
	switch p.Cause {
	case Preempted:
		return fmt.Sprintf(", which itself was kept off its CPU for %s by %s", ns, v.rank(p.By))
	case Runnable, Misplaced:
		return fmt.Sprintf(", which itself waited %s for a CPU behind %s", ns, v.rank(p.By))
	case Running, RunningKernel, RunningUser:
		return fmt.Sprintf(", which ran for %s (%s)", ns, v.name(p.By))
	case BlockQueue:
		return fmt.Sprintf(", which itself waited %s in the queue of %s", ns, v.name(p.By))
	case BlockDevice:
		return fmt.Sprintf(", which itself waited %s for %s", ns, v.name(p.By))
	case Timer:
		return fmt.Sprintf(", which slept for %s of it", ns)
	case Locked:
		return fmt.Sprintf(", which itself waited %s for a lock held by %s", ns, v.name(p.By))
	case Throttled:
		return fmt.Sprintf(", which itself was throttled for %s", ns)
	case Network:
		return fmt.Sprintf(", which itself waited %s for the network", ns)
	case Unexplained:
		return ""
	}
	return fmt.Sprintf(", which itself spent %s on %s of %s", ns, strings.ReplaceAll(string(p.Cause), "_", " "), v.name(p.By))
}

// woken is what woke the task whose wait to run is explained.
func (v *verdict) woken() string {
	if v.o.Track != "wakeup" {
		return ""
	}
	t := v.m.tasks[v.o.TID]
	if t == nil {
		return ""
	}
	for i := range t.segments {
		if s := &t.segments[i]; s.state == runnable && s.from <= v.o.Start && v.o.Start < s.to && s.wake != nil {
			return v.name(v.m.whoWoke(s.wake))
		}
	}
	return ""
}

// advice says what a person would check, where the evidence supports it.
func (v *verdict) advice() string {
	p := &v.r.Blame
	if v.r.Root != nil && v.r.Root.Cause != Running {
		p = v.r.Root
	}
	if v.r.DelayNS == 0 || p.NS*2 < v.r.DelayNS {
		return ""
	}
	switch p.Cause {
	case Preempted:
		if p.By.Prio < 100 {
			return fmt.Sprintf("Check why %s needs a real-time priority, or keep it off this CPU (taskset, cpuset).", v.name(p.By))
		}
		return fmt.Sprintf("Compare the nice values and the cpu.weight of %s and %s.", v.name(p.By), v.name(&v.r.Task))
	case Misplaced:
		return "Check its CPU affinity and cpuset: another CPU was idle."
	case Throttled:
		return "Raise cpu.max of the cgroup, or spread its work: it used up its quota."
	case BlockQueue:
		if p.By != nil && p.By.Kind == KindTask {
			return fmt.Sprintf("Limit the I/O of %s (io.max, io.weight), or move it to another device.", v.name(p.By))
		}
	case Journal:
		return "Check who else calls fsync on this file system: a commit takes all that is in it along."
	case Unexplained:
		if strings.HasPrefix(p.Reason, "the history") {
			return "Raise recorder.size: the history began after the delay did."
		}
	}
	return ""
}
