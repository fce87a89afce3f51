package catalog

import (
	"cmp"

	"github.com/tailcam/tailcam/explain"
)

// KindLimit is the kind of the row of a limit, by whose setting a task was held up.
const KindLimit = "limit"

// limits names limits as administrators set them, by Part.Wait.
var limits = map[string]string{
	"dirty_pages": "vm.dirty_*", "io_max": "io.max", "io_delay": "io.cost or io.latency", "memory_high": "memory.high", "memory_max": "memory.max",
	"rt_runtime": "kernel.sched_rt_runtime_us", "dl_runtime": "sched_runtime of SCHED_DEADLINE", "kernel_delay": "a delay of the kernel",
}

// ofMachine are those that are not of a culprit, as a cgroup or a disk is.
var ofMachine = map[string]bool{"rt_runtime": true, "dl_runtime": true, "kernel_delay": true}

// culprit is Culprit with somebody to turn to: whoever set a timer instead of the timer, and
// the limit instead of what it limits.
func (i *item) culprit(p *Part) (name, kind string) {
	name, kind = Culprit(p)
	limit := limits[p.Wait]
	if p.Cause == explain.Throttled {
		limit = "cpu.max"
	}
	switch {
	case p.Cause == explain.Throttled, p.Cause == explain.Limited && limit != "":
		if p.By == nil || kind == explain.KindUnknown || ofMachine[p.Wait] {
			return limit, KindLimit
		}
		return limit + " of " + name, KindLimit
	case kind != explain.KindTimer, p.Cause == explain.ProtocolTimer:
		return name, kind
	case p.Cause == explain.Timer:
		return i.sleeper(p)
	}
	return "timer interrupts", explain.KindIRQ
}

// sleeper is who slept until a timer, for nine tenths of a root cause at least.
func (i *item) sleeper(p *Part) (name, kind string) {
	same := func(x *Part) bool {
		return x.Cause == p.Cause && x.By != nil && x.By.Kind == p.By.Kind && x.By.Name == p.By.Name && max(x.NS, x.GroupNS) >= p.NS-p.NS/10
	}
	if r := i.result; r != nil {
		for j := range r.Parts {
			if same(&r.Parts[j]) {
				return program(&r.Task)
			}
		}
		before := r.Blame.By
		for j := range r.Chain {
			if same(&r.Chain[j]) && before != nil && before.Kind == explain.KindTask {
				return program(before)
			}
			before = r.Chain[j].By
		}
	}
	return "several sleepers", explain.KindUnknown
}

func program(w *explain.Who) (name, kind string) {
	return Culprit(&Part{By: &explain.Who{Kind: explain.KindTask, Name: w.Name, Comm: w.Comm}})
}

// user is who used a device: whom it worked for, or whose outlier it is.
func (i *item) user(p *Part) string {
	if p.By != nil && p.By.For != nil {
		name, _ := Culprit(&Part{By: p.By.For})
		return name
	}
	return cmp.Or(i.task.Comm, "unknown")
}

// site is the row of where a task waited or worked.
func (i *item) site(p *Part, culprit string) (name, kind, of string) {
	switch p.Cause {
	case explain.Preempted, explain.Runnable, explain.Misplaced, explain.Throttled:
		return string(p.Cause), ByCause, culprit // for a CPU: the kernel's place says nothing
	}
	if p.Site.Function == "" {
		return "no known wait site", explain.KindUnknown, string(p.Cause)
	}
	return cmp.Or(p.Site.Words, p.Site.Function), ByWaitSite, culprit
}
