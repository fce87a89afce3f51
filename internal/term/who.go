package term

import (
	"fmt"
	"strings"

	"github.com/tailcam/tailcam/explain"
)

// Who names a culprit: comm[tid], irq 24, softirq NET_RX, loop0.
func Who(w *explain.Who) string {
	if w == nil {
		return "unknown"
	}
	name := Clean(w.Name)
	switch w.Kind {
	case explain.KindTask:
		return Task(w)
	case explain.KindIRQ:
		return prefixed("irq", name)
	case explain.KindSoftirq:
		return prefixed("softirq", name)
	case explain.KindTimer:
		return prefixed("timer", name)
	case explain.KindCgroup:
		return prefixed("cgroup", name)
	case explain.KindSelf:
		return "itself"
	}
	if name == "" {
		return Clean(w.Kind)
	}
	return name
}

// Task names a task.
func Task(w *explain.Who) string {
	name := w.Called()
	if name == "" {
		name = "task"
		if w.TID == 0 && w.Name != "" {
			return Clean(w.Name)
		}
	}
	return fmt.Sprintf("%s[%d]", Clean(name), w.TID)
}

// prefixed says what kind of thing a name is of, unless the name does.
func prefixed(kind, name string) string {
	switch {
	case name == "":
		return kind
	case strings.HasPrefix(name, kind):
		return name
	}
	return kind + " " + name
}

// Rank says what gives a task its place in the queue: SCHED_FIFO 50, nice 5; ""
// where that is as usual, or not known.
func Rank(w *explain.Who) string {
	switch {
	case w != nil && w.Kind == explain.KindTask && w.Policy == "SCHED_IDLE":
		return "SCHED_IDLE" // its nice value means nothing
	case w == nil || w.Kind != explain.KindTask || w.Prio == 120 || w.Prio == 0 && w.Policy == "":
		return ""
	case w.Prio < 0:
		return "SCHED_DEADLINE"
	case w.Prio < 100:
		policy := Clean(w.Policy)
		if policy == "" || policy == "SCHED_OTHER" {
			policy = "real-time"
		}
		return fmt.Sprintf("%s %d", policy, 99-w.Prio)
	}
	return fmt.Sprintf("nice %d", w.Prio-120)
}

// CauseWords is a cause as people say it.
func CauseWords(c explain.Cause) string {
	if words := causeWords[c]; words != "" {
		return words
	}
	return strings.ReplaceAll(Clean(string(c)), "_", " ")
}

var causeWords = map[explain.Cause]string{
	explain.RunningUser: "running in user space", explain.RunningKernel: "running in the kernel",
	explain.Preempted: "preempted", explain.Runnable: "in the queue", explain.Misplaced: "wrong CPU",
	explain.Throttled: "throttled", explain.IRQ: "interrupted", explain.Softirq: "softirq",
	explain.StolenTime: "stolen", explain.BlockQueue: "disk queue", explain.BlockDevice: "disk",
	explain.Task: "another task", explain.Reclaim: "memory reclaim", explain.Compaction: "memory compaction",
	explain.WorkQueue: "work queue", explain.Journal: "journal commit",
	explain.ProtocolTimer: "protocol timer", explain.Limited: "held up by a limit",
}

// Blame joins a cause and a culprit: preempted by rt-hog[99], disk: sda.
func Blame(c explain.Cause, w *explain.Who) string {
	words := CauseWords(c)
	if w == nil {
		return words
	}
	who := Who(w)
	if strings.HasPrefix(who, words) {
		return who // softirq NET_RX
	}
	switch c {
	case explain.Preempted, explain.IRQ, explain.StolenTime, explain.Softirq:
		return words + " by " + who
	case explain.Runnable, explain.Misplaced, explain.BlockQueue:
		return words + " behind " + who
	}
	return words + ": " + who
}

// CauseStyle is the colour of a cause, the same in every picture.
func CauseStyle(c explain.Cause) Style {
	switch c {
	case explain.Running, explain.RunningUser, explain.RunningKernel:
		return Green
	case explain.Preempted, explain.StolenTime:
		return Red
	case explain.Runnable, explain.Misplaced, explain.Throttled, explain.Limited:
		return Yellow
	case explain.IRQ, explain.Softirq, explain.Reclaim, explain.Compaction, explain.PageFault:
		return Magenta
	case explain.BlockQueue, explain.BlockDevice, explain.Journal, explain.Network, explain.ProtocolTimer:
		return Blue
	case explain.Locked, explain.Task, explain.WorkQueue:
		return Cyan
	}
	return Dim
}
