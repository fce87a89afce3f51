package explain

import (
	"fmt"
	"strings"
)

// link is an element of the chain: the culprits with the same cause, largest part first.
type link struct {
	group
	cut    bool
	pieces []piece // that it sums up
}

// part returns the link as its largest part.
func (l *link) part() Part {
	p := l.parts[0]
	p.Cut = l.cut
	if n := l.culprits(); n > 1 {
		p.Culprits, p.GroupNS = n, l.ns
	}
	return p
}

// culprits counts the different ones.
func (l *link) culprits() int {
	seen := map[whoKey]bool{}
	for i := range l.parts {
		if by := l.parts[i].By; by != nil {
			seen[whoKey{kind: by.Kind, name: by.Name, id: by.TID}] = true
		}
	}
	return len(seen)
}

// chain follows the largest part down: what its culprit mostly did, what that one
// waited for, and so on.
func chain(pieces []piece, blame *Part) []link {
	var out []link
	key := blame.key()
	for range maxDepth {
		var below []piece
		var cut, all uint64
		for i := range pieces {
			if p := &pieces[i]; p.key() == key {
				below = append(below, p.below...)
				if all += p.to - p.from; p.cut {
					cut += p.to - p.from
				}
			}
		}
		if n := len(out); n > 0 && cut > 0 && cut*2 >= all {
			out[n-1].cut = true
		}
		groups := groupByCause(sumParts(below, false))
		if len(groups) == 0 {
			break
		}
		out = append(out, link{group: groups[0], pieces: below})
		pieces, key = below, groups[0].parts[0].key()
	}
	return out
}

// maxLinks is how many elements of a chain are told one by one.
const maxLinks = 4

// links describes the chain behind the first group of a verdict.
func (w *walker) links(r *Result, first *group) string {
	var b strings.Builder
	last := len(w.chained) - 1
	for i := range w.chained {
		l, before := &w.chained[i], first
		if i > 0 {
			before = &w.chained[i-1].group
		}
		switch {
		case i >= maxLinks && i < last && last > maxLinks:
			if i == maxLinks {
				b.WriteString(", " + more(w.chained[maxLinks:]))
			}
			continue
		case i == last && last > maxLinks:
			b.WriteString(", the last of which " + l.words() + l.siteText() + l.behalf() + l.activity() + l.evicted())
		case !before.cause.encloses():
			b.WriteString(", " + w.relative(l, before) + " " + l.words() + l.siteText() + l.behalf() + l.activity() + l.evicted())
		case l.parts[0].By != before.parts[0].By: // otherwise it says the same again
			b.WriteString(", where it " + l.words() + l.siteText() + l.behalf() + l.activity() + l.evicted())
		}
		if l.cut {
			fmt.Fprintf(&b, " (what is deeper than %d levels is not followed)", maxDepth)
		}
	}
	return b.String()
}

// relative is how a sentence goes on with what a culprit did: a disk does nothing but by a
// worker, and a thread may have gone on for another one of its process.
func (w *walker) relative(l *link, before *group) string {
	by := before.parts[0].By
	switch {
	case len(l.pieces) == 0:
	case before.cause == BlockDevice:
		return "whose worker " + w.m.whoTask(l.pieces[0].task).Name
	case by != nil && by.Kind == KindTask && before.byOne():
		if did := l.mostly(); did != by.TID && w.m.pidOf(did) == by.PID {
			return "whose thread " + w.m.whoTask(did).Name
		}
	}
	return "which"
}

// mostly is the task that took most of the time of a link.
func (l *link) mostly() (tid int) {
	ns := map[int]uint64{}
	for i := range l.pieces {
		if p := &l.pieces[i]; p.cause == l.cause {
			ns[p.task] += p.to - p.from
			if n := ns[p.task]; n > ns[tid] || n == ns[tid] && p.task < tid {
				tid = p.task
			}
		}
	}
	return tid
}

// encloses reports whether a cause is something that a task does itself, in which it may
// wait: what is below it is the same task's.
func (c Cause) encloses() bool { return c == Reclaim || c == Compaction || c == PageFault }

// more describes all links but the last in short: how many there are, and how long each
// was in the way of the one before.
func more(rest []link) string {
	noun := "holders"
	var least, most int64
	for i := range rest[:len(rest)-1] {
		l := &rest[i]
		own := l.ns
		if next := &rest[i+1]; next.cause == Locked || next.cause == Task {
			own -= min(next.ns, own)
		}
		if i == 0 || own < least {
			least = own
		}
		most = max(most, own)
		switch by := l.parts[0].By; {
		case by == nil || by.Kind != KindTask:
			noun = "links"
		case l.cause != Locked && noun == "holders":
			noun = "tasks"
		}
	}
	each := duration(most)
	if least*5 < most*4 {
		each = duration(least) + " to " + each
	}
	return fmt.Sprintf("… and %d more %s, %s each", len(rest)-1, noun, each)
}

// words describes a link, as what its task did.
func (l *link) words() string {
	first := &l.parts[0]
	name := ""
	if first.By != nil {
		name = describe(first.By)
	}
	if f := linkWords[l.cause]; f != nil {
		return f(l, duration(l.ns), name)
	}
	return "spent " + duration(l.ns) + " on " + name
}

// linkWords has words for every cause.
var linkWords = map[Cause]func(l *link, d, name string) string{
	RunningUser:   func(_ *link, d, _ string) string { return "ran for " + d },
	RunningKernel: func(_ *link, d, _ string) string { return "ran for " + d + " in the kernel" },
	Running:       func(_ *link, d, _ string) string { return "ran for " + d },
	Preempted:     behind,
	Runnable:      behind,
	Misplaced: func(l *link, d, name string) string {
		return behind(l, d, name) + ", while another CPU was idle"
	},
	Throttled: func(_ *link, d, name string) string {
		return "was throttled for " + d + ", as " + name + " had used up its CPU quota"
	},
	IRQ:        func(_ *link, d, name string) string { return "spent " + d + " on " + name },
	Softirq:    func(_ *link, d, name string) string { return "spent " + d + " on " + name },
	StolenTime: func(_ *link, d, _ string) string { return "lost its CPU to the hypervisor for " + d },
	BlockQueue: func(l *link, d, name string) string {
		if l.parts[0].By.Kind == KindTask {
			s := "waited " + d + " for a disk behind requests of " + taskNames(&l.group)
			if l.parts[0].ofQueue() {
				s += ", for " + waits[waitOf(l.parts[0].Wait)].words
			}
			return s
		}
		return "waited " + d + " in the queue of " + name
	},
	BlockDevice: func(_ *link, d, name string) string { return "waited " + d + " for " + name },
	Locked: func(l *link, d, _ string) string {
		what := waits[waitOf(l.parts[0].Wait)].words
		if l.parts[0].By.Kind == KindUnknown {
			return "waited " + d + " for " + what + ", whose holder is not known"
		}
		return "waited " + d + " for " + what + " that " + taskNames(&l.group) + " held"
	},
	Task: func(l *link, d, _ string) string {
		return "spent " + d + " " + taskWords(waitOf(l.parts[0].Wait), taskNames(&l.group), "")
	},
	Timer: func(l *link, d, _ string) string {
		switch waitOf(l.parts[0].Wait) {
		case waitTimeLimit:
			return "slept " + d + " until a timer, its own time limit"
		case waitAlarm:
			return "waited " + d + " until a timer of its process sent a signal"
		case waitTimerFD:
			return "waited " + d + " until the timer of a timerfd"
		}
		return "slept " + d + " until a timer"
	},
	ProtocolTimer: func(l *link, d, _ string) string {
		return "waited " + d + " until " + protocolWords(waitOf(l.parts[0].Wait), l.parts[0].By.Name)
	},
	Limited: func(l *link, d, name string) string {
		return "was held up for " + d + " by " + limitWords(waitOf(l.parts[0].Wait), name)
	},
	Network: func(l *link, d, name string) string {
		return "waited " + d + " for a packet from " + name + heldWords(waitOf(l.parts[0].Wait))
	},
	Reclaim:    func(_ *link, d, name string) string { return "spent " + d + " reclaiming memory for " + name },
	Compaction: func(_ *link, d, _ string) string { return "spent " + d + " compacting memory" },
	PageFault:  func(_ *link, d, name string) string { return "waited " + d + " for pages from " + name },
	WorkQueue:  func(_ *link, d, name string) string { return "waited " + d + " for " + name + " in a work queue" },
	Journal: func(_ *link, d, name string) string {
		return "waited " + d + " for the journal of its file system, " + name
	},
	Stopped: func(_ *link, d, name string) string { return "was stopped for " + d + " by " + name },
	Unexplained: func(l *link, d, _ string) string {
		return "spent " + d + " unexplained (" + l.parts[0].Reason + ")"
	},
}

// behind describes a wait for a CPU.
func behind(l *link, d, _ string) string {
	if by := l.parts[0].By; by != nil && by.Kind == KindTask {
		return "waited " + d + " to run behind " + taskNames(&l.group)
	}
	return "waited " + d + " to run"
}

// taskWords describes a wait for another task.
func taskWords(k wait, name, why string) string {
	switch k {
	case waitAny:
		return "waiting" + withSpace(why) + " for " + name
	case waitJoin:
		return "waiting for " + name + " to end"
	case waitStart:
		return "waiting until " + name + " started it"
	case waitNoAnswer:
		return "waiting" + withSpace(why) + " until its own time limit for an answer of " + name
	case waitBarrier:
		return "waiting at a barrier until " + name + " came"
	case waitSemaphore:
		return "waiting on a semaphore until " + name + " posted it"
	case waitCondition, waitNotify, waitFutex:
		return "waiting " + waits[k].words + " until " + name + " woke it"
	case waitParked:
		return "parked in a queue until " + name + " woke it"
	case waitSafepoint:
		return "stopped at a safepoint until " + name + " let it go on"
	}
	return "waiting for " + waits[k].words + " of " + name
}
