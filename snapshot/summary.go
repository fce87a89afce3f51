package snapshot

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/tailcam/tailcam/tracker/events"
)

// headline says in one sentence who waited how long for what.
func headline(o *events.Outlier) string {
	who := taskName(o.Task.Comm, o.Task.PID, o.Task.TID)
	d := time.Duration(o.DelayNS)
	switch {
	case o.Track == "wakeup":
		return fmt.Sprintf("%s was ready to run and waited %s for a CPU", who, d)
	case o.Track == "offcpu":
		state := ""
		if o.State != "" {
			state = " (" + o.State + ")"
		}
		return fmt.Sprintf("%s was off the CPU for %s%s", who, d, state)
	case o.Track == "syscall" && o.Syscall != nil:
		return fmt.Sprintf("%s spent %s in %s", who, d, printable(o.Syscall.Name))
	case o.Track == "block" && o.Block != nil:
		return fmt.Sprintf("a %s of %d bytes at sector %d of %s took %s; asked for by %s",
			printable(o.Block.Op), o.Block.Bytes, o.Block.Sector, printable(o.Block.Device), d, who)
	}
	if s := o.Span; s != nil {
		return fmt.Sprintf("span %s took %s; begun by %s", printable(s.Key), d, taskName(s.Begin.Comm, s.Begin.PID, s.Begin.TID))
	}
	if c := o.Chain; c != nil {
		return fmt.Sprintf("%s took %s from %s to %s", who, d, printable(c.Origin), chainEnds[c.End])
	}
	if i := o.IRQ; i != nil {
		switch {
		case i.IRQ != nil:
			return fmt.Sprintf("the handler %s of irq %d kept CPU %d from %s for %s", printable(i.Name), *i.IRQ, i.CPU, who, d)
		case i.Phase == "raise" && o.Cause == events.CauseTimeout:
			return fmt.Sprintf("softirq %s on CPU %d was raised %s ago, and has not run yet", printable(i.Vector), i.CPU, d)
		case i.Phase == "raise":
			return fmt.Sprintf("softirq %s on CPU %d was raised %s before it ran, on top of %s", printable(i.Vector), i.CPU, d, who)
		}
		return fmt.Sprintf("softirq %s ran for %s on CPU %d, on top of %s", printable(i.Vector), d, i.CPU, who)
	}
	if o.Track == "pair" {
		return fmt.Sprintf("%s: %s from entry to exit took %s", who, printable(o.Rule), d)
	}
	return fmt.Sprintf("%s: %s took %s", who, printable(o.Track), d)
}

func factLines(o *events.Outlier) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	add("rule %s: %s %s, limit %s", printable(o.Rule), o.Cause, time.Duration(o.DelayNS), time.Duration(o.ThresholdNS))
	add("entry on CPU %d at %d ns, exit on CPU %d at %d ns of CLOCK_MONOTONIC", o.EntryCPU, o.StartMono, o.CPU, o.EndMono)
	if o.Task.Cmdline != "" {
		add("command line: %s", printable(o.Task.Cmdline))
	}
	if o.Task.Container != "" {
		add("container: %s", printable(o.Task.Container))
	} else if o.Task.Cgroup != "" {
		add("cgroup: %s", printable(o.Task.Cgroup))
	}
	if o.Preempted {
		add("the wait began with a preemption: the task was running and had to make way")
	}
	if o.RunnableNS > 0 {
		add("%s of it was spent waiting for a CPU", time.Duration(o.RunnableNS))
	}
	if o.WaitCPU != nil {
		add("it waited longest on CPU %d", *o.WaitCPU)
	}
	if o.Waker != nil {
		who := taskName(o.Waker.Comm, o.Waker.PID, o.Waker.TID)
		if o.Waker.Context != "" {
			who = fmt.Sprintf("%s, which interrupted %s", printable(o.Waker.Context), who)
		}
		add("woken by %s", who)
	}
	if o.OnCPU != nil {
		add("meanwhile %s ran for %s on CPU %d", taskName(o.OnCPU.Comm, o.OnCPU.PID, o.OnCPU.TID),
			time.Duration(o.OnCPU.RanNS), o.OnCPU.CPU)
	}
	if c := o.Chain; c != nil {
		out = append(out, chainLines(c)...)
	}
	if s := o.Syscall; s != nil {
		if s.Ret != nil {
			add("system call %s (%d) returned %d", printable(s.Name), s.NR, *s.Ret)
		} else {
			add("in system call %s (%d)", printable(s.Name), s.NR)
		}
	}
	if b := o.Block; b != nil {
		add("queued %s before it was issued, flags %s, requeued %d times", time.Duration(b.QueueNS), printable(b.Flags), b.Requeues)
		if b.Error != 0 {
			add("it failed: blk_status_t %d", b.Error)
		}
	}
	if o.Suppressed > 0 {
		add("%d snapshots of this rule were limited since its last one", o.Suppressed)
	}
	return out
}

// maxTold is how many outliers explain.txt explains at length; of more it has the verdicts.
const maxTold = 16

// writeText writes explain.txt: the verdicts first, then what led to them, then
// what the outliers themselves say.
func writeText(w io.Writer, m *Meta, e *Explanation) error {
	var b strings.Builder
	notes := m.Notes
	if m.ShortHistory && len(notes) > 0 { // whatever follows may be wrong
		fmt.Fprintf(&b, "note: %s\n\n", printable(notes[0]))
		notes = notes[1:]
	}
	fmt.Fprintf(&b, "%s on %s (%s, %s), %s\n", m.ID, printable(m.Host.Name), printable(m.Host.Kernel), m.Host.Arch, printable(m.Reason))
	for i := range e.Outliers {
		text := e.Outliers[i].Text
		if verdict, _, _ := strings.Cut(text, "\n"); i >= maxTold {
			text = verdict + "\n"
		}
		fmt.Fprintf(&b, "\n%s", text)
	}
	for _, n := range notes {
		fmt.Fprintf(&b, "\nnote: %s\n", printable(n))
	}
	for i := range m.Outliers {
		o := &m.Outliers[i]
		fmt.Fprintf(&b, "\n%s  %s\n", o.Time.UTC().Format(time.RFC3339Nano), headline(o))
		for _, l := range factLines(o) {
			fmt.Fprintf(&b, "  %s\n", l)
		}
		stackText(&b, "kernel stack", o.Stacks.Kernel, o.Stacks.KernelSources())
		stackText(&b, "user stack", o.Stacks.User, o.Stacks.UserSources())
		stackText(&b, "the waker's kernel stack", o.Stacks.Waker, o.Stacks.WakerSources())
	}
	if len(m.Outliers) == 0 {
		b.WriteString("\nno outlier: taken by hand\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func stackText(b *strings.Builder, title string, frames []events.Frame, sources []events.Source) {
	if len(frames) == 0 {
		return
	}
	fmt.Fprintf(b, "  %s, innermost first:\n", title)
	for _, line := range events.StackLines(frames, sources) {
		fmt.Fprintf(b, "    %s\n", printable(line))
	}
}

func taskName(comm string, pid, tid int) string {
	if pid == tid {
		return fmt.Sprintf("%s (pid %d)", printable(comm), pid)
	}
	return fmt.Sprintf("%s (pid %d, thread %d)", printable(comm), pid, tid)
}

// printable keeps a hostile task name or command line from moving the cursor
// of the terminal that shows it.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// chainEnds says where a chain ended.
var chainEnds = map[string]string{"run": "its CPU", "user": "its return to user space", "block": "its next sleep"}

// chainLines are the stages of a chain, which add up to its delay.
func chainLines(c *events.ChainInfo) []string {
	var out []string
	for _, s := range c.Stages {
		line := fmt.Sprintf("%d ns after the origin, for %s on CPU %d: %s", s.AtNS, time.Duration(s.NS), s.CPU, printable(s.Stage))
		if s.What != "" {
			line += " " + printable(s.What)
		}
		if s.Task != nil {
			line += " of " + taskName(s.Task.Comm, s.Task.PID, s.Task.TID)
		}
		out = append(out, line)
	}
	if c.Cut {
		out = append(out, "it had more branches or stages than are followed")
	}
	return out
}
