package explain

import (
	"cmp"
	"fmt"
	"strings"
)

// advice returns what to check or change, if one culprit took at least half of the
// time.
func (w *walker) advice(r *Result) string {
	if r.Blame.NS*2 < r.DelayNS || r.DelayNS == 0 {
		return ""
	}
	return printable(cmp.Or(w.advise(r), siteAdvice(r)))
}

func (w *walker) advise(r *Result) string {
	b, who := &r.Blame, r.Task.Name
	name := ""
	if b.By != nil {
		name = b.By.Name
	}
	switch b.Cause {
	case Preempted:
		switch {
		case b.By.Kind != KindTask:
			return ""
		case b.By.Prio < 100:
			return fmt.Sprintf("Check whether %s must run that long at a real-time priority, or keep the two apart (cpuset, taskset).", name)
		}
		return fmt.Sprintf("Check the nice values of %s and %s, or give the second one a larger cpu.weight.", name, who)
	case Misplaced:
		return fmt.Sprintf("Check what pins %s to CPU %d: taskset -cp %d, and cpuset.cpus of its cgroup.", who, w.longestWaitCPU(), r.Task.TID)
	case Throttled:
		return fmt.Sprintf("Raise cpu.max of %s, or check nr_throttled in its cpu.stat.", describe(b.By))
	case StolenTime:
		return "The hypervisor gave this CPU to other guests: ask the operator of the host."
	case Softirq:
		if name == "NET_RX" || name == "NET_TX" {
			return fmt.Sprintf("Spread the packets over more CPUs (RPS, irq affinity), or keep %s off this one.", who)
		}
	case BlockQueue:
		if b.By.Kind == KindTask {
			return fmt.Sprintf("Limit what %s writes or reads (io.max, io.weight), or keep the two on different disks.", name)
		}
	case Locked:
		return lockAdvice(r)
	case Reclaim:
		if b.By.Kind == KindCgroup {
			return fmt.Sprintf("Raise memory.high or memory.max of %s, or check what uses it.", describe(b.By))
		}
		return "The machine is short of memory: check what uses it (memory.current of its cgroups)."
	case Journal:
		if b.By.For != nil {
			return fmt.Sprintf("%s shares the file system's journal: keep the two on different file systems.", b.By.For.Name)
		}
	case WorkQueue:
		if b.By.Kind == KindWork && strings.Contains(longestWhy(r, b), "behind other work") {
			return fmt.Sprintf("The work queue runs one item at a time: check why %s takes so long.", name)
		}
	case Unexplained:
		return unexplainedAdvice(b.Reason)
	}
	return ""
}

// lockAdvice depends on what the holder of the lock did: the last one, if holders wait for
// each other.
func lockAdvice(r *Result) string {
	lock := &r.Blame
	if len(r.Chain) == 0 || lock.By.Kind != KindTask {
		return ""
	}
	last := &r.Chain[len(r.Chain)-1]
	for i := range r.Chain[:len(r.Chain)-1] {
		l := &r.Chain[i]
		if l.Cause != Locked || l.By.Kind != KindTask {
			return "" // whom the holder waits for does not hold the lock
		}
		lock = l
	}
	if last.NS*2 < r.DelayNS {
		return ""
	}
	holder := lock.By.Name
	switch last.Cause {
	case Preempted, Runnable, Misplaced:
		if last.By == nil || last.By.Kind != KindTask {
			return ""
		}
		if lock.Wait == waits[waitMutex].name {
			return fmt.Sprintf("Priority inversion: %s holds the lock and cannot run; a priority-inheriting mutex lets it go first.", holder)
		}
		return fmt.Sprintf("%s holds the lock and cannot run: check what it waits behind.", holder)
	case Timer:
		return fmt.Sprintf("%s sleeps while it holds the lock: check where.", holder)
	case BlockDevice, BlockQueue:
		return fmt.Sprintf("%s waits for a disk while it holds the lock.", holder)
	}
	return ""
}

func longestWhy(r *Result, b *Part) string {
	var most uint64
	why := ""
	for i := range r.Path {
		s := &r.Path[i]
		if s.Depth == 0 && s.Cause == b.Cause && s.By == b.By && s.ToMonoNS-s.FromMonoNS > most {
			most, why = s.ToMonoNS-s.FromMonoNS, s.Why
		}
	}
	return why
}

func unexplainedAdvice(reason string) string {
	switch {
	case strings.Contains(reason, "history is too short"), strings.Contains(reason, "overwritten"):
		return "Raise recorder.size."
	case strings.Contains(reason, "event group"):
		return "Add the group to recorder.events."
	}
	return ""
}
