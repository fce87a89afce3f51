package term

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

// timeFormat is local time, as precise as a person compares it with a log.
const timeFormat = "2006-01-02 15:04:05.000"

// Time writes a moment in local time.
func Time(t time.Time) string { return t.Local().Format(timeFormat) }

// DelayStyle grows louder with how far a delay lies above its threshold.
func DelayStyle(delayNS, thresholdNS int64) Style {
	switch {
	case thresholdNS <= 0, delayNS < 2*thresholdNS:
		return Green
	case delayNS < 10*thresholdNS:
		return Yellow
	}
	return BoldRed
}

// PrintOutlier writes one outlier: a line that says what happened, then what is known
// about it, indented; its stacks only if asked for.
func PrintOutlier(c *Console, o *events.Outlier, stacks bool) {
	printOutlier(c, Time(o.Time), o, stacks)
}

// WriteOutlier writes an outlier as PrintOutlier does, with its stacks, for a
// file: without colours, and with its exact time in UTC.
func WriteOutlier(w io.Writer, o *events.Outlier) error {
	c := New(w, &Options{})
	printOutlier(c, o.Time.UTC().Format(time.RFC3339Nano), o, true)
	return c.Err()
}

func printOutlier(c *Console, when string, o *events.Outlier, stacks bool) {
	c.Printf("%s  %s  %s  %s  %s\n",
		c.Paint(Dim, when),
		padded(c, Cyan, Clean(o.Rule), 12),
		c.Paint(DelayStyle(o.DelayNS, o.ThresholdNS), fmt.Sprintf("%7s", Duration(o.DelayNS))),
		padded(c, Bold, subject(o), 22),
		what(o)+ending(o))

	d := details{c: c}
	if e := o.Explained; e != nil {
		d.add("verdict", Clean(e.Verdict))
		if stacks {
			d.add("advice", Clean(e.Advice))
		}
	}
	for i := range o.Actions {
		d.add("action", Clean(path.Base(o.Actions[i].Program)+": "+o.Actions[i].Text))
	}
	d.add("threshold", threshold(o))
	d.add("usual", Usual(o))
	d.process(o)
	d.wait(o)
	d.call(o)
	d.block(o.Block)
	d.chain(o)
	d.pair(o)
	if o.Span != nil && !o.Span.Begin.Is(&o.Task) {
		d.add("started by", Peer(o.Span.Begin))
	}
	d.activity(o)
	if o.TraceID != "" {
		d.add("trace", Clean(o.TraceID)+", span "+Clean(o.SpanID))
	}
	for _, key := range slices.Sorted(maps.Keys(o.Attributes)) {
		d.add("attribute", Clean(key)+": "+Clean(o.Attributes[key]))
	}
	if o.Cause != events.CauseTrigger { // that has none
		d.add("cpu", cpus(o))
	}
	if o.Snapshot != nil {
		d.add("snapshot", Clean(*o.Snapshot))
	}
	if o.Partial {
		d.add("partial", "symbols and process details are still being looked up")
	}
	if o.Suppressed > 0 {
		d.add("suppressed", Count(o.Suppressed)+plural(o.Suppressed, " snapshot")+" of this rule since its last one")
	}
	if stacks {
		d.stack("kernel", o.Stacks.Kernel, o.Stacks.KernelSources())
		d.user(&o.Stacks)
		d.stack("waker", o.Stacks.Waker, o.Stacks.WakerSources())
		for _, p := range o.Stacks.Progress {
			d.stack("at "+Duration(p.AgeNS), p.Kernel, nil)
		}
	}
}

// subject names the task that was slow, or what stands for it.
func subject(o *events.Outlier) string {
	switch {
	case o.Work != nil && o.Task.TID == 0:
		return "no worker"
	case o.Trigger != nil && o.Task.TID == 0:
		return "no target"
	case o.Block != nil && o.Task.TID == 0 && o.Task.Comm == "": // askers are shed
		return "unknown task"
	case o.IRQ != nil && o.Task.TID == 0 && o.Task.Comm == "": // nobody knows who runs there
		return fmt.Sprintf("cpu %d", o.CPU)
	case o.IRQ != nil && o.Task.TID == 0:
		return fmt.Sprintf("idle cpu %d", o.CPU)
	}
	return fmt.Sprintf("%s[%d]", Clean(o.Task.Name()), o.Task.TID)
}

// what says in a few words what took so long.
func what(o *events.Outlier) string {
	switch {
	case o.Block != nil:
		return fmt.Sprintf("%s of %s on %s", Clean(o.Block.Op), Bytes(uint64(o.Block.Bytes)), Clean(o.Block.Device))
	case o.IRQ != nil:
		return interrupt(o)
	case o.Work != nil:
		return work(o)
	case o.Track == "pair":
		return pairWhat(o)
	case o.Span != nil:
		return "span " + Clean(o.Span.Key)
	case o.Track == "activity" && o.Activity != nil:
		return "worked for " + activityName(o.Activity)
	case o.Chain != nil:
		return chainWhat(o.Chain)
	case o.Track == "syscall" && o.Syscall != nil:
		return "in " + Clean(o.Syscall.Label())
	case o.Track == "offcpu":
		s := "slept"
		if o.State != "" {
			s += " " + Clean(o.State)
		}
		if o.Syscall != nil {
			s += " in " + Clean(o.Syscall.Label())
		}
		return s
	case o.Track == "wakeup" && o.Preempted:
		return "was preempted and waited to run again"
	case o.Track == "wakeup":
		return "was woken and waited to run"
	}
	if o.Trigger != nil {
		return "(" + Clean(o.Trigger.Reason) + ")"
	}
	if o.Cause == events.CauseTrigger {
		return "was asked about"
	}
	return Clean(o.Track)
}

// ending says how work ended that had a timeout.
func ending(o *events.Outlier) string {
	switch o.Cause {
	case events.CauseTimeout:
		if o.State == "running" || o.State == "runnable" {
			return ", still pending: " + o.State
		}
		return ", still pending"
	case events.CauseAfterTimeout:
		return ", completed after its timeout"
	default:
		return ""
	}
}

// work says which work item it was. The task before it is its worker.
func work(o *events.Outlier) string {
	w, s := o.Work, "work "+Clean(o.Work.Function)
	if w.Queue != "" {
		s += " of " + Clean(w.Queue)
	}
	verb := [...]string{"waited", "ran"}
	if o.Cause == events.CauseTimeout {
		verb = [...]string{"waits", "runs"}
	}
	if w.Phase == "wait" {
		return s + " " + verb[0] + " for a worker"
	}
	s += " " + verb[1]
	if w.WaitNS != nil {
		s += ", after " + Duration(*w.WaitNS) + " in the queue"
	}
	return s
}

// interrupt says which handler or softirq it was. The task before it is the one
// that was interrupted.
func interrupt(o *events.Outlier) string {
	i := o.IRQ
	switch {
	case i.Phase == "raise" && o.Cause == events.CauseTimeout:
		return "softirq " + Clean(i.Vector) + " waits to run"
	case i.IRQ != nil:
		return fmt.Sprintf("interrupted by irq %d, %s", *i.IRQ, Clean(i.Name))
	case i.Phase == "raise":
		return "ran softirq " + Clean(i.Vector) + " late"
	}
	return "interrupted by softirq " + Clean(i.Vector)
}

func threshold(o *events.Outlier) string {
	s := Setting(o.ThresholdNS)
	if o.Cause == events.CauseTimeout || o.Cause == events.CauseAfterTimeout {
		s = "timeout " + s
	}
	if o.ThresholdNS > 0 {
		s += fmt.Sprintf(" (%.1f times that)", float64(o.DelayNS)/float64(o.ThresholdNS))
	}
	return s
}

// Usual says what such delays usually are; empty if it is not known.
func Usual(o *events.Outlier) string {
	u := o.Usual
	if u == nil || u.Count == 0 {
		return ""
	}
	of := "delays of this rule"
	if u.Of != "rule" {
		of = "delays of track " + Clean(o.Track) + " on this machine"
	}
	s := fmt.Sprintf("%s at the median, %s at the 99th percentile of %s %s", Duration(u.MedianNS), Duration(u.P99NS), Count(u.Count), of)
	if u.MedianNS > 0 && o.DelayNS > u.MedianNS {
		s += fmt.Sprintf("; this is %.0f times the median", float64(o.DelayNS)/float64(u.MedianNS))
	}
	return s
}

func cpus(o *events.Outlier) string {
	s := fmt.Sprint(o.CPU)
	if o.EntryCPU != o.CPU {
		s += fmt.Sprintf(", began on %d", o.EntryCPU)
	}
	if o.WaitCPU != nil && *o.WaitCPU != o.CPU {
		s += fmt.Sprintf(", waited on %d", *o.WaitCPU)
	}
	return s
}

// details prints the indented lines below an outlier's first one.
type details struct{ c *Console }

func (d details) add(label, text string) {
	if text == "" {
		return
	}
	d.c.Printf("    %s  %s\n", padded(d.c, Dim, label, 11), text)
}

func (d details) process(o *events.Outlier) {
	t := o.Task
	switch {
	case t.Kernel:
		d.add("process", "kernel thread")
	case t.Cmdline != "":
		d.add("process", fmt.Sprintf("%d  %s  %s", t.PID, Shorten(Clean(t.Cmdline), 100), d.c.Paint(Dim, fmt.Sprintf("uid %d", t.UID))))
	case t.PID != t.TID || t.UID != 0:
		d.add("process", fmt.Sprintf("%d  %s", t.PID, d.c.Paint(Dim, fmt.Sprintf("uid %d", t.UID))))
	}
	if t.Cgroup != "/" {
		d.add("cgroup", Clean(t.Cgroup))
	}
	d.add("unit", Clean(t.Unit))
	d.add("container", containerText(t.Container, &t.Place))
	d.add("image", Clean(t.Image))
	d.add("pod", Clean(PodName(&t.Place)))
}

// containerText is the name and the id of a container.
func containerText(id string, at *events.Place) string {
	s := Clean(id)
	if at.ContainerName != "" {
		s = Clean(at.ContainerName) + "  " + Clean(id)
	}
	if s != "" && at.Runtime != "" {
		s += " (" + Clean(at.Runtime) + ")"
	}
	return s
}

// PodName is a pod with its namespace; "": none. It is not cleaned.
func PodName(at *events.Place) string {
	if at.Pod == "" || at.Namespace == "" {
		return at.Pod
	}
	return at.Namespace + "/" + at.Pod
}

// where says in which pod, container or unit another task runs, if that is elsewhere than
// the slow one.
func where(p events.Peer, slow *events.Task) string {
	w := p.Identity
	switch {
	case w == nil || w.Cgroup == slow.Cgroup:
		return ""
	case w.Pod != "":
		return " in pod " + Clean(PodName(&w.Place))
	case w.ContainerName != "":
		return " in container " + Clean(w.ContainerName)
	case w.Unit != "":
		return " in " + Clean(w.Unit)
	}
	return ""
}

func (d details) wait(o *events.Outlier) {
	if o.Waker != nil {
		d.add("woken by", Waker(o.Waker)+where(o.Waker.Peer, &o.Task)+inTrace(o.Waker.TraceID))
	}
	if o.Work != nil && o.Work.QueuedBy != nil {
		d.add("queued by", Waker(o.Work.QueuedBy))
	}
	if o.OnCPU != nil {
		d.add("ran instead", fmt.Sprintf("%s%s for %s on cpu %d", Peer(o.OnCPU.Peer), where(o.OnCPU.Peer, &o.Task), Duration(o.OnCPU.RanNS), o.OnCPU.CPU)+inTrace(o.OnCPU.TraceID))
	}
	if o.Track == "offcpu" && o.RunnableNS > 0 {
		d.add("runnable", Duration(o.RunnableNS)+" of that, waiting for a CPU")
	}
}

// inTrace says what another task worked for; "": not known.
func inTrace(id string) string {
	if id == "" {
		return ""
	}
	return ", in trace " + Clean(id)
}

// Waker writes who woke a task: another task, or an interrupt on top of one.
func Waker(w *events.Waker) string {
	switch {
	case w.Context == "":
		return Peer(w.Peer)
	case w.TID == 0:
		return Clean(w.Context) + " on an idle CPU"
	default:
		return Clean(w.Context) + " while " + Peer(w.Peer) + " ran"
	}
}

func (d details) call(o *events.Outlier) {
	if o.Syscall == nil {
		return
	}
	nr := strconv.Itoa(o.Syscall.NR)
	if o.Syscall.ABI != "" {
		nr = Clean(o.Syscall.ABI) + " " + nr
	}
	s := fmt.Sprintf("%s (%s)", Clean(o.Syscall.Name), nr)
	if o.Syscall.Ret != nil {
		s += fmt.Sprintf(" = %d", *o.Syscall.Ret)
	}
	d.add("syscall", s)
}

func (d details) block(b *events.BlockInfo) {
	if b == nil {
		return
	}
	s := fmt.Sprintf("%s, sector %d, %s", Clean(b.Device), b.Sector, Bytes(uint64(b.Bytes)))
	if b.Flags != "" {
		s += ", flags " + Clean(b.Flags)
	}
	if b.QueueNS > 0 {
		s += ", queued for " + Duration(b.QueueNS) + " before"
	}
	if b.Requeues > 0 {
		s += fmt.Sprintf(", requeued %d times", b.Requeues)
	}
	if b.Error != 0 {
		s += d.c.Paint(Red, fmt.Sprintf(", failed with status %d", b.Error))
	}
	d.add("request", s)
}

func (d details) stack(label string, frames []events.Frame, sources []events.Source) {
	for i, line := range events.StackLines(frames, sources) {
		if i > 0 {
			label = ""
		}
		d.add(label, Clean(line))
	}
}

func (d details) user(s *events.Stacks) {
	d.stack("user", s.User, s.UserSources())
	if note := s.UserNote(); note != "" {
		d.add("", "("+Clean(note)+")")
	}
}

// Peer names a task.
func Peer(p events.Peer) string {
	if p.TID == 0 {
		return "idle"
	}
	return fmt.Sprintf("%s[%d]", Clean(p.Name()), p.TID)
}

// padded fills a painted text up to a width that the paint does not count in.
func padded(c *Console, s Style, text string, width int) string {
	return c.Paint(s, text) + strings.Repeat(" ", max(0, width-Width(text)))
}

func plural(n uint64, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
