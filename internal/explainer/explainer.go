// Package explainer explains snapshots: it hands their traces, and what else
// they hold, to package explain. It needs no root and no daemon.
package explainer

import (
	"fmt"
	"math"
	"strings"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// Snapshot explains the outliers of a snapshot's directory, in the order of its
// snapshot.json.
func Snapshot(dir string) (*explain.Report, *snapshot.Meta, error) {
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
	r, err := Trace(path, m, names)
	return r, m, err
}

// Trace explains the outliers of a snapshot by its trace.
func Trace(dir string, m *snapshot.Meta, n *snapshot.Names) (*explain.Report, error) {
	t, err := trace.Read(dir)
	if err != nil {
		return nil, err
	}
	defer t.Close() //nolint:errcheck // only read from
	outliers := make([]explain.Outlier, len(m.Outliers))
	for i := range m.Outliers {
		outliers[i] = outlier(&m.Outliers[i])
	}
	names := names(n)
	names.Covered = map[int][]explain.Stretch{}
	for i := range m.Coverage {
		names.Covered[m.Coverage[i].CPU] = covered(&m.Coverage[i])
	}
	return explain.Explain(t, outliers, names)
}

// covered lists the stretches that gaps leave of a CPU's history.
func covered(c *snapshot.CPUCoverage) []explain.Stretch {
	at, end := c.FromMonoNS, c.ToMonoNS
	if n := len(c.Gaps); n > 0 {
		if c.Gaps[0].ToMonoNS <= c.FromMonoNS {
			at = 0 // there is more before the gap
		}
		if c.Gaps[n-1].FromMonoNS >= c.ToMonoNS {
			end = math.MaxInt64
		}
	}
	var out []explain.Stretch
	for _, g := range c.Gaps {
		out = append(out, explain.Stretch{From: at, To: g.FromMonoNS})
		at = g.ToMonoNS
	}
	return append(out, explain.Stretch{From: at, To: end})
}

// outlier is what package explain must know of one.
func outlier(o *events.Outlier) explain.Outlier {
	out := explain.Outlier{
		Rule: o.Rule, Track: o.Track, Cause: string(o.Cause), Start: o.StartMono, End: o.EndMono,
		TID: o.Task.TID, PID: o.Task.PID, Comm: o.Task.Comm, CPU: o.CPU,
	}
	out.Stacks = stacks(o)
	if o.Syscall != nil {
		out.Syscall = o.Syscall.Name
	}
	if o.Block != nil {
		out.Device, out.Sector = o.Block.Device, o.Block.Sector
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

// stacks says when those of an outlier were taken, as far as that is known.
func stacks(o *events.Outlier) []explain.Stack {
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

// names looks up what tasks.json says.
func names(n *snapshot.Names) explain.Names {
	tasks := make(map[int]*snapshot.NamedTask, len(n.Tasks))
	for i := range n.Tasks {
		tasks[n.Tasks[i].TID] = &n.Tasks[i]
	}
	return explain.Names{
		Syscall: rules.SyscallName,
		Function: func(address uint64) string {
			name, _, _ := strings.Cut(n.Functions[fmt.Sprintf("%#x", address)], " ")
			return name
		},
		Device: func(dev uint32) string { return n.Devices[fmt.Sprintf("%d:%d", dev>>20, dev&0xfffff)] },
		Task: func(tid int) (explain.TaskFact, bool) {
			t := tasks[tid]
			if t == nil {
				return explain.TaskFact{}, false
			}
			return explain.TaskFact{
				PID: t.PID, Comm: t.Comm, Cgroup: t.Cgroup, Policy: t.Policy, RTPriority: t.RTPriority, Kernel: t.Kernel, CPUs: t.CPUs,
				CPUCgroup: t.CPUCgroup, MemoryCgroup: t.MemoryCgroup,
			}, true
		},
	}
}
