package catalog

import (
	"cmp"
	"strings"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/explain/waitsites"
	"github.com/tailcam/tailcam/tracker/events"
)

// noSnapshot is why time is unexplained that only the daemon remembers.
const noSnapshot = "no snapshot holds it"

// told returns the parts of an outlier without a snapshot, as far as the outlier itself tells:
// its verdict if a snapshot had one that is gone, else who ran instead, who or what woke the
// task, the device, and by its stack where it waited. The rest is unexplained.
func told(o *events.Outlier) []Part {
	t := teller{left: max(o.DelayNS, 0)}
	site := siteOf(o)
	switch e := o.Explained; {
	case e != nil && e.By != "":
		by := &explain.Who{Kind: e.ByKind, Name: e.By}
		if e.ByKind == explain.KindTask {
			by.Comm = withoutID(e.By)
			identify(by, e.ByTask)
		}
		t.add(Part{Cause: explain.Cause(e.Cause), By: by, NS: e.NS})
	case o.Track == "wakeup" || o.Track == "offcpu":
		runnable := t.left
		if o.Track == "offcpu" {
			runnable = min(max(o.RunnableNS, 0), t.left)
		}
		blocked := t.left - runnable
		if c := o.OnCPU; c != nil && c.TID != 0 {
			t.add(Part{Cause: explain.Runnable, By: peer(&c.Peer), NS: min(c.RanNS, runnable)})
		}
		p := wokenBy(o)
		p.NS, p.Site = blocked, site
		t.add(p)
	case o.Block != nil:
		t.add(Part{Cause: explain.BlockDevice, By: &explain.Who{Kind: explain.KindDevice, Name: o.Block.Device, Device: o.Block.Device}, NS: t.left})
	}
	t.add(Part{Cause: explain.Unexplained, Reason: noSnapshot, Site: site, NS: t.left})
	return t.parts
}

// withoutID leaves the thread id out that stands behind the name of a task.
func withoutID(name string) string {
	if i := strings.LastIndexByte(name, ' '); i > 0 && strings.Trim(name[i+1:], "0123456789") == "" {
		return name[:i]
	}
	return name
}

// teller adds up parts, of no more than is left.
type teller struct {
	parts []Part
	left  int64
}

func (t *teller) add(p Part) {
	if p.NS = min(p.NS, t.left); p.NS > 0 {
		p.Count = 1
		t.parts = append(t.parts, p)
		t.left -= p.NS
	}
}

// siteOf finds where the task waited: the stack of a sleep, or of a timeout while it sleeps.
func siteOf(o *events.Outlier) explain.Site {
	if o.Track != "offcpu" && (o.Cause != events.CauseTimeout || o.State != "interruptible" && o.State != "uninterruptible") {
		return explain.Site{}
	}
	m, ok := waitsites.Wait(o.Stacks.Kernel)
	if !ok {
		return explain.Site{}
	}
	return explain.Site{Function: m.Function, Words: m.Words}
}

// wokenBy is what ended the wait of an outlier.
func wokenBy(o *events.Outlier) Part {
	w := o.Waker
	if w == nil {
		return Part{Cause: explain.Unexplained, Reason: noSnapshot}
	}
	kind, name, _ := strings.Cut(w.Context, " ")
	switch {
	case kind == "" && w.TID != 0:
		return Part{Cause: explain.Task, By: peer(&w.Peer)}
	case kind == "timer":
		own := events.Identity{Title: o.Task.Title, Cgroup: o.Task.Cgroup, Container: o.Task.Container, Place: o.Task.Place}
		return Part{Cause: explain.Timer, By: peer(&events.Peer{PID: o.Task.PID, TID: o.Task.TID, Comm: o.Task.Comm, Identity: &own})}
	case kind == "softirq" && strings.HasPrefix(name, "NET_"):
		return Part{Cause: explain.Network, By: &explain.Who{Kind: explain.KindNetwork, Name: "the network"}}
	case kind == "softirq":
		return Part{Cause: explain.Softirq, By: &explain.Who{Kind: explain.KindSoftirq, Name: cmp.Or(name, kind)}}
	case kind == "irq":
		return Part{Cause: explain.IRQ, By: &explain.Who{Kind: explain.KindIRQ, Name: cmp.Or(name, kind)}}
	}
	return Part{Cause: explain.Unexplained, Reason: noSnapshot}
}

func peer(p *events.Peer) *explain.Who {
	w := &explain.Who{Kind: explain.KindTask, Name: p.Name(), TID: p.TID, PID: p.PID, Comm: p.Comm}
	identify(w, p.Identity)
	return w
}

// identify says where a task runs; nil: it is not known.
func identify(w *explain.Who, i *events.Identity) {
	if i != nil {
		w.Title, w.Cgroup = i.Title, i.Cgroup
		w.Place = explain.Place{Unit: i.Unit, Container: i.Container, ContainerName: i.ContainerName, Pod: i.Pod, Namespace: i.Namespace}
	}
}

// cut returns parts of so much time.
func cut(parts []Part, ns int64) []Part {
	t := teller{left: ns}
	for _, p := range parts {
		t.add(p)
	}
	t.add(Part{Cause: explain.Unexplained, Reason: noSnapshot, NS: t.left})
	return t.parts
}
