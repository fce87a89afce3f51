package explain

import "fmt"

// patternAdvice advises by pattern: every one has something to say.
var patternAdvice = map[Pattern]func(w *walker, r *Result) string{
	PriorityInversion: (*walker).adviseInversion,
	PreemptedHolder: func(w *walker, _ *Result) string {
		if w.found.confidence == Guess {
			return fmt.Sprintf("If %s holds what it spins for, that waits behind %s%s: a lock that sleeps costs no CPU meanwhile, or give the holder a priority that goes before it.",
				w.found.holder.Name, w.found.by.Name, priorityText(w.found.by))
		}
		return fmt.Sprintf("%s holds the lock and cannot run: check what it waits behind, %s%s.", w.found.holder.Name, w.found.by.Name, priorityText(w.found.by))
	},
	InterpreterLock: func(w *walker, _ *Result) string {
		return fmt.Sprintf("%s kept the interpreter: move its work to another process (multiprocessing) or into code that releases the lock; sys.setswitchinterval says how often others may ask.", w.found.by.Name)
	},
	LockConvoy: func(*walker, *Result) string {
		return "Many take turns at one lock: do less under it, or split it; no single holder is slow."
	},
	ExhaustedPool: func(w *walker, _ *Result) string {
		return fmt.Sprintf("All %s were at work: a larger pool, or shorter requests.", w.found.what)
	},
	RetryLoop: func(_ *walker, r *Result) string {
		if r.Blame.Cause == Locked && r.Blame.By.Kind == KindTask {
			return fmt.Sprintf("Have %s do less while it holds the lock; a call that waits (F_SETLKW, flock without LOCK_NB) ends when that is free, and not at the next try.", r.Blame.By.Name)
		}
		return "It asks again and again instead of waiting for an event: find what it waits for by the stack of its sleeps, and have it woken."
	},
	ThunderingHerd: func(*walker, *Result) string {
		return "Wake one instead of all: pthread_cond_signal, FUTEX_WAKE of 1, EPOLLEXCLUSIVE, or a queue for each."
	},
	CheckpointStorm: func(w *walker, _ *Result) string {
		return fmt.Sprintf("Have %s spread its writes over more time (in PostgreSQL checkpoint_completion_target and max_wal_size), or keep it on a disk of its own.", w.found.by.Name)
	},
	WritebackStorm: func(w *walker, _ *Result) string {
		return fmt.Sprintf("Have less dirty at once: vm.dirty_background_bytes%s, vm.dirty_bytes%s; as long as these are 0, vm.dirty_background_ratio%s and vm.dirty_ratio%s count.",
			w.m.now("vm.dirty_background_bytes"), w.m.now("vm.dirty_bytes"), w.m.now("vm.dirty_background_ratio"), w.m.now("vm.dirty_ratio"))
	},
	BulkIO: func(w *walker, r *Result) string {
		if r.Blame.ofQueue() {
			return w.adviseFullQueue(&advised{Part: &r.Blame, who: &r.Task, own: true})
		}
		return fmt.Sprintf("Limit what %s writes or reads%s, or keep the two on different disks.", w.found.by.Name, w.ioLimit(w.found.by))
	},
	ReclaimStorm: func(w *walker, r *Result) string {
		return w.adviseReclaim(&advised{Part: &Part{By: reclaimed(r)}})
	},
	NoisyNeighbour: (*walker).adviseNeighbour,
	IdleWakeup:     (*walker).adviseIdle,
	FrequencyDelay: func(w *walker, _ *Result) string {
		return fmt.Sprintf("Set cpufreq/scaling_governor%s to performance, or raise cpufreq/scaling_min_freq%s of those CPUs; where they are hot or short of power, neither helps.",
			w.m.now("cpufreq/scaling_governor"), w.m.now("cpufreq/scaling_min_freq"))
	},
	CPUSaturation: func(w *walker, r *Result) string {
		if f, ok := w.m.taskInfo(r.Task.TID); ok && f.CPUs != nil && len(f.CPUs) < len(w.m.cpus) {
			return fmt.Sprintf("%s may use %d of %d CPUs, and there is more to run on those than they can: let it use others (taskset -cp, cpuset.cpus).", r.Task.Name, len(f.CPUs), len(w.m.cpus))
		}
		return fmt.Sprintf("There is more to run than the CPUs can: fewer threads or more CPUs%s; a lower nice value only makes others wait.", w.m.now("cpu/online"))
	},
}

// adviseInversion: a priority-inheriting mutex lends the priority of real-time tasks only
// (__waiter_prio in kernel/locking/rtmutex.c), and is one of programs.
func (w *walker) adviseInversion(r *Result) string {
	holder := w.found.holder.Name
	if w.slowPrio() < realTime && r.Blame.Wait == waits[waitMutex].name {
		return fmt.Sprintf("%s holds the lock and waits behind %s: a priority-inheriting mutex (PTHREAD_PRIO_INHERIT) lets it go first.", holder, w.found.by.Name)
	}
	return fmt.Sprintf("%s holds the lock and waits behind %s%s: give the holder a priority that goes before it (chrt, renice).",
		holder, w.found.by.Name, priorityText(w.found.by))
}

// slowPrio is the slow task's kernel priority when it began to wait.
func (w *walker) slowPrio() int {
	t := w.m.tasks[w.outlier.TID]
	if t == nil {
		return 120
	}
	if i := t.segmentAt(w.outlier.Start); i < len(t.segments) {
		return t.prioIn(&t.segments[i])
	}
	return t.prio
}

// reclaimed is what was short of memory.
func reclaimed(r *Result) *Who {
	for _, list := range [][]Part{r.Parts, r.Roots} {
		for i := range list {
			if list[i].Cause == Reclaim && list[i].By != nil {
				return list[i].By
			}
		}
	}
	return &Who{Kind: KindMemory}
}

func (w *walker) adviseNeighbour(r *Result) string {
	f, _ := w.m.taskInfo(r.Task.TID)
	other := w.found.by.Cgroup
	if r.Blame.Cause == BlockQueue {
		limit, weight := w.m.own(other, "io.max"), w.m.own(other, "io.weight")
		return fmt.Sprintf("Limit cgroup %s: io.max%s, io.weight%s.", other, limit.now(), weight.now())
	}
	own := f.quotaCgroup()
	quota := w.m.own(other, "cpu.max", "cpu.cfs_quota_us")
	theirs, mine := w.m.own(other, "cpu.weight", "cpu.shares"), w.m.own(own, "cpu.weight", "cpu.shares")
	return fmt.Sprintf("Limit cgroup %s with %s%s, or give it a smaller %s%s than %s has%s.", other, quota.name, quota.now(), theirs.name, theirs.now(), own, mine.now())
}

func (w *walker) adviseIdle(*Result) string {
	if d := w.m.setting("cpuidle/current_driver"); d == "" || d == "none" || d == "haltpoll" {
		return "This machine has no driver for the hardware's idle states, as most virtual ones: the host wakes its CPUs; the group power in recorder.events shows idle states."
	}
	return fmt.Sprintf("Forbid deep idle states (/dev/cpu_dma_latency, cpupower idle-set -D) or set cpufreq/scaling_governor%s to performance.", w.m.now("cpufreq/scaling_governor"))
}
