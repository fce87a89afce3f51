package term

import (
	"fmt"
	"strings"

	"github.com/tailcam/tailcam/tracker/events"
)

// chainWhat says where a chain began and how far it went.
func chainWhat(c *events.ChainInfo) string {
	s := "from " + Clean(c.Origin)
	switch c.End {
	case "run":
		s += " until it ran"
	case "user":
		s += " until it returned to user space"
	case "block":
		s += " until it slept again"
	}
	return s
}

// chain prints the stages, one a line. Durations are exact, so that they add up
// to the delay to the nanosecond.
func (d details) chain(o *events.Outlier) {
	if o.Chain == nil {
		return
	}
	width := len(exact(o.DelayNS))
	label := "stages"
	for i := range o.Chain.Stages {
		s := &o.Chain.Stages[i]
		style := Dim
		if s.NS >= o.DelayNS/2 {
			style = Bold
		}
		d.add(label, fmt.Sprintf("%s  %s  %s", d.c.Paint(style, fmt.Sprintf("%*sµs", width, exact(s.NS))), stage(s),
			d.c.Paint(Dim, fmt.Sprintf("cpu %d", s.CPU))))
		label = ""
	}
	if len(o.Chain.Stages) > 0 {
		d.add("", fmt.Sprintf("%*sµs  in all", width, exact(o.DelayNS)))
	}
	if o.Chain.Cut {
		d.add("cut", "it had more branches or stages than are followed; the last stage holds what is missing")
	}
}

// exact writes nanoseconds as microseconds, all digits of them.
func exact(ns int64) string { return fmt.Sprintf("%d.%03d", ns/1000, ns%1000) }

func stage(s *events.ChainStage) string {
	who := Clean(s.Stage)
	if s.Task != nil {
		who = peer(*s.Task)
	}
	switch s.Stage {
	case "irq", "softirq":
		return strings.TrimSpace(s.Stage + " " + Clean(s.What))
	case "raise":
		return "softirq " + Clean(s.What) + " is raised, and waits to run"
	case "wakeup":
		return who + " is woken, and waits for a CPU"
	case "run":
		return who + " runs"
	case "user":
		return who + " is back in user space"
	case "preempted":
		return who + " is preempted"
	case "lock":
		return who + " waits for a lock of the kernel"
	}
	return who
}
