package catalog

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// Explain explains the outliers of the snapshot in dir anew, from its trace, in
// the order of snapshot.json. It needs no privileges and no daemon.
func Explain(dir string) (*explain.Report, *snapshot.Meta, error) {
	m, err := snapshot.ReadMeta(dir)
	if err != nil {
		return nil, nil, err
	}
	names, err := snapshot.ReadNames(dir)
	if err != nil {
		return nil, nil, err
	}
	path, err := snapshot.TracePath(dir)
	if err != nil {
		return nil, nil, err
	}
	r, err := ExplainTrace(path, m, names)
	return r, m, err
}

// ExplainTrace explains the outliers of m from the trace in dir. It may run on
// any goroutine; a trace file that is truncated meanwhile makes it panic.
func ExplainTrace(dir string, m *snapshot.Meta, n *snapshot.Names) (*explain.Report, error) {
	t, err := trace.Read(dir)
	if err != nil {
		return nil, err
	}
	defer t.Close() //nolint:errcheck // only read from
	return ExplainEvents(t, m, func() *snapshot.Names { return n }, nil)
}

// ExplainEvents explains the outliers of m from the events of their trace. It may run on
// any goroutine, and asks for names after all events; before, it asks timer for the functions of
// timers, which has the answer. Nil: it asks for names then.
func ExplainEvents(t *trace.Reader, m *snapshot.Meta, names func() *snapshot.Names, timer func(address uint64) string) (*explain.Report, error) {
	outliers := make([]explain.Outlier, len(m.Outliers))
	for i := range m.Outliers {
		outliers[i] = explainOutlier(&m.Outliers[i])
	}
	named := explainNames(names)
	named.Timer = timer
	named.Covered = map[int][]explain.Interval{}
	for i := range m.Coverage {
		named.Covered[m.Coverage[i].CPU] = withoutShed(coveredIntervals(&m.Coverage[i]), m.Shed)
	}
	return explain.Explain(t, outliers, named)
}

// withoutShed cuts the times without context switches out of a CPU's history: who ran
// then is not known.
func withoutShed(list []explain.Interval, shed []snapshot.ShedPart) []explain.Interval {
	for i := range shed {
		p := &shed[i]
		if p.Part != "group sched" {
			continue
		}
		var rest []explain.Interval
		for _, c := range list {
			if p.ToMonoNS <= c.From || p.FromMonoNS >= c.To {
				rest = append(rest, c)
				continue
			}
			if c.From < p.FromMonoNS {
				rest = append(rest, explain.Interval{From: c.From, To: p.FromMonoNS})
			}
			if p.ToMonoNS < c.To {
				rest = append(rest, explain.Interval{From: p.ToMonoNS, To: c.To})
			}
		}
		list = rest
	}
	return list
}

// coveredIntervals lists the intervals between the gaps of a CPU's history.
func coveredIntervals(c *snapshot.CPUCoverage) []explain.Interval {
	at, end := c.FromMonoNS, c.ToMonoNS
	if n := len(c.Gaps); n > 0 {
		if c.Gaps[0].ToMonoNS <= c.FromMonoNS {
			at = 0 // there is more before the gap
		}
		if c.Gaps[n-1].FromMonoNS >= c.ToMonoNS {
			end = math.MaxInt64
		}
	}
	var out []explain.Interval
	for _, g := range c.Gaps {
		out = append(out, explain.Interval{From: at, To: g.FromMonoNS})
		at = g.ToMonoNS
	}
	return append(out, explain.Interval{From: at, To: end})
}

// explainOutlier converts an outlier for package explain.
func explainOutlier(o *events.Outlier) explain.Outlier {
	out := explain.Outlier{
		Rule: o.Rule, Track: o.Track, Cause: string(o.Cause), Start: o.StartMono, End: o.EndMono,
		TID: o.Task.TID, PID: o.Task.PID, Comm: o.Task.Comm, CPU: o.CPU,
	}
	out.Stacks, out.User = explainStacks(o), o.Stacks.User
	out.Labels = explainLabels(o.Labels)
	explainKey(&out, o)
	explainPublished(&out, o)
	if o.Activity != nil {
		out.Token = o.Activity.Token
	}
	if o.Track == "activity" && o.Activity != nil {
		out.Account = o.Activity.Account
	}
	out.Call = trace.CallNone
	if o.Cause == events.CauseTrigger && (o.State == "interruptible" || o.State == "uninterruptible") {
		out.Asleep = true
		if o.Syscall != nil {
			out.Call = o.Syscall.NR
		}
	}
	if o.Syscall != nil {
		out.Syscall = o.Syscall.Name
	}
	if o.Block != nil {
		out.Device, out.Sector = o.Block.Device, o.Block.Sector
	}
	if w := o.Work; w != nil {
		out.Name, out.Queue, out.Waiting = w.Function, w.Queue, w.Phase == "wait"
	}
	if i := o.IRQ; i != nil {
		out.CPU, out.Name, out.Raised = i.CPU, i.Name, i.Phase == "raise"
		if i.IRQ != nil {
			out.IRQ = *i.IRQ
		} else {
			out.Name = strings.ToUpper(i.Vector)
		}
	}
	return out
}

// explainPublished adds what programs have published for the threads of an outlier: for the slow one
// where it cannot have changed that meanwhile, as it was in the kernel.
func explainPublished(out *explain.Outlier, o *events.Outlier) {
	switch o.Track {
	case "syscall", "offcpu", "wakeup":
	default:
		return
	}
	out.TraceID, out.SpanID = o.TraceID, o.SpanID
	if w := o.Waker; w != nil && w.TraceID != "" && o.Track == "offcpu" {
		at := o.EndMono - min(uint64(max(o.RunnableNS, 0)), o.EndMono)
		out.Waker = &explain.Published{TID: w.TID, TraceID: w.TraceID, SpanID: w.SpanID, From: o.StartMono, At: at}
	}
	if c := o.OnCPU; c != nil && c.TraceID != "" {
		out.OnCPU = &explain.Published{TID: c.TID, TraceID: c.TraceID, SpanID: c.SpanID}
	}
}

// explainKey tells whether the outlier's task did the work, or only passed its exit: pairs
// and spans may have a key that is not a thread.
func explainKey(out *explain.Outlier, o *events.Outlier) {
	switch {
	case o.Track == "span" && o.Span != nil:
		if b := o.Span.Begin; b.TID != o.Task.TID {
			out.Began = strings.TrimSpace(fmt.Sprintf("%s %d", b.Name(), b.TID))
			return
		}
		out.Loose = true
	case o.Track == "pair" && len(o.Key) > 0:
		if tid, ok := o.Key["tid"]; ok && tid == uint64(o.Task.TID) {
			return
		}
		if pid, ok := o.Key["pid"]; ok && pid == uint64(o.Task.PID) && o.EntryTask == nil {
			out.Loose = true
			return
		}
		out.Key = o.Key
	}
}

// explainLabels returns labels as text.
func explainLabels(labels map[string]any) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	out := make(map[string]string, len(labels))
	for name, v := range labels {
		switch v := v.(type) {
		case float64: // read from JSON
			out[name] = strconv.FormatFloat(v, 'f', -1, 64)
		case uint64: // the same number, also where JSON has rounded it
			out[name] = strconv.FormatFloat(float64(v), 'f', -1, 64)
		default:
			out[name] = fmt.Sprint(v)
		}
	}
	return out
}

// explainStacks returns the stacks of an outlier whose time is known.
func explainStacks(o *events.Outlier) []explain.Stack {
	var list []explain.Stack
	add := func(at uint64, frames []events.Frame, waker bool) {
		if len(frames) > 0 {
			list = append(list, explain.Stack{At: at, Frames: frames, Waker: waker})
		}
	}
	switch {
	case o.Cause == events.CauseTimeout:
		add(o.EndMono, o.Stacks.Kernel, false)
	case o.Track == "wakeup":
		add(o.StartMono, o.Stacks.Kernel, false)
		add(o.StartMono, o.Stacks.Waker, true)
	case o.Track == "offcpu":
		add(o.StartMono, o.Stacks.Kernel, false)
		add(o.EndMono-min(uint64(max(o.RunnableNS, 0)), o.EndMono), o.Stacks.Waker, true)
	}
	for _, p := range o.Stacks.Progress {
		add(o.StartMono+uint64(max(p.AgeNS, 0)), p.Kernel, false)
	}
	return list
}

// explainNames looks names up in tasks.json, once the first one is needed.
func explainNames(names func() *snapshot.Names) explain.Names {
	known := sync.OnceValue(func() *knownNames { return indexNames(names()) })
	return explain.Names{
		Sockets: func(pid int) (explain.Sockets, bool) {
			s, ok := known().sockets[pid]
			return s, ok
		},
		Listener: func(tid, port int) int {
			i := slices.IndexFunc(known().Listeners, func(l snapshot.Listener) bool { return l.TID == tid && l.Port == port })
			if i < 0 {
				return 0
			}
			return known().Listeners[i].PID
		},
		Activities: func() []explain.Carried { return explainActivities(known().Activities) },
		Moments:    func() []explain.Moment { return explainContexts(known().Contexts) },
		Setting:    func(name string) string { return known().Settings[name] },
		Limit:      func(cgroup, name string) string { return known().limits[cgroup][name] },
		Tasks:      func() []int { return slices.Sorted(maps.Keys(known().tasks)) },
		Syscall:    rules.SyscallName,
		Function: func(address uint64) string {
			name, _, _ := strings.Cut(known().Functions[fmt.Sprintf("%#x", address)], " ")
			return name
		},
		Code:   func(pid int, address uint64) string { return known().Code[snapshot.CodeKey(pid, address)] },
		Device: func(dev uint32) string { return known().Devices[fmt.Sprintf("%d:%d", dev>>20, dev&0xfffff)] },
		Task: func(tid int) (explain.TaskInfo, bool) {
			t := known().tasks[tid]
			if t == nil {
				return explain.TaskInfo{}, false
			}
			return explain.TaskInfo{
				PID: t.PID, PPID: t.PPID, Session: t.Session, Comm: t.Comm, Title: t.Title, Exited: t.Exited, Cgroup: t.Cgroup, Policy: t.Policy, RTPriority: t.RTPriority, Kernel: t.Kernel, CPUs: t.CPUs, Anonymous: t.Anonymous,
				CPUCgroup: t.CPUCgroup, MemoryCgroup: t.MemoryCgroup, IOCgroup: t.IOCgroup,
				Place: explain.Place{
					Unit: t.Unit, Container: t.Container, ContainerName: t.ContainerName, Image: t.Image, Pod: t.Pod, Namespace: t.Namespace,
				},
			}, true
		},
	}
}

// knownNames has names by what they are asked for.
type knownNames struct {
	*snapshot.Names
	tasks   map[int]*snapshot.NamedTask
	limits  map[string]map[string]string
	sockets map[int]explain.Sockets
}

func indexNames(n *snapshot.Names) *knownNames {
	k := &knownNames{
		Names: n, tasks: make(map[int]*snapshot.NamedTask, len(n.Tasks)), limits: make(map[string]map[string]string, len(n.Limits)),
		sockets: make(map[int]explain.Sockets, len(n.Sockets)),
	}
	for i := range n.Tasks {
		k.tasks[n.Tasks[i].TID] = &n.Tasks[i]
	}
	for i := range n.Limits {
		k.limits[n.Limits[i].Cgroup] = n.Limits[i].Limits
	}
	for i := range n.Sockets {
		k.sockets[n.Sockets[i].PID] = explainSockets(&n.Sockets[i])
	}
	return k
}

func explainSockets(s *snapshot.ProcessSockets) explain.Sockets {
	out := explain.Sockets{Listens: s.Listens, Accepted: s.Accepted, Opened: s.Opened, Partial: s.Partial}
	for _, c := range s.Connections {
		out.Connections = append(out.Connections, explain.Connection{Local: c.Local, Remote: c.Remote, Accepted: c.Accepted})
	}
	return out
}

func explainContexts(list []snapshot.PublishedContext) []explain.Moment {
	out := make([]explain.Moment, len(list))
	for i := range list {
		x := &list[i]
		out[i] = explain.Moment{Woken: x.WokenTID, TID: x.TID, At: x.MonoNS, TraceID: x.TraceID, SpanID: x.SpanID}
	}
	return out
}

func explainActivities(list []snapshot.CarriedActivity) []explain.Carried {
	out := make([]explain.Carried, len(list))
	for i := range list {
		a := &list[i]
		out[i].Activity = explain.Activity{Token: a.Token, Name: a.Name, Text: a.Text, TraceID: a.TraceID, SpanID: a.SpanID}
		for _, t := range a.Carried {
			out[i].Times = append(out[i].Times, explain.CarriedTime{TID: t.TID, From: t.FromMonoNS, To: t.ToMonoNS})
		}
		for _, e := range a.Evicted {
			out[i].Evicted = append(out[i].Evicted, explain.EvictedPages{
				TID: e.TID, From: e.FromMonoNS, To: e.ToMonoNS, Pages: e.Pages, ByTID: e.ByTID, At: e.EvictedMonoNS,
			})
		}
	}
	return out
}

// Explanation is a report as the files of a snapshot have it.
func Explanation(report *explain.Report) *snapshot.Explanation {
	e := &snapshot.Explanation{JSON: report, Notes: report.Notes}
	for i := range report.Outliers {
		r := &report.Outliers[i]
		var text strings.Builder
		r.WriteText(&text)
		e.Outliers = append(e.Outliers, snapshot.ExplainedOutlier{Explained: explained(r), Text: text.String()})
	}
	return e
}

// explained is the part of an explanation that goes with the outlier.
func explained(r *explain.Result) *events.Explained {
	e := &events.Explained{Verdict: r.Verdict, Advice: r.Advice, Cause: string(r.Blame.Cause), NS: r.Blame.NS, Confidence: string(r.Confidence), Pattern: string(r.Pattern)}
	if r.Blame.By != nil {
		e.By, e.ByKind = r.Blame.By.Name, r.Blame.By.Kind
		if w := r.Blame.By; w.Kind == explain.KindTask && (w.Cgroup != "" || w.Title != "") {
			e.ByTask = &events.Identity{
				Title: w.Title, Cgroup: w.Cgroup, Container: w.Container,
				Place: events.Place{Unit: w.Unit, ContainerName: w.ContainerName, Image: w.Image, Pod: w.Pod, Namespace: w.Namespace},
			}
		}
	}
	return e
}
