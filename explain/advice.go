package explain

import (
	"fmt"
	"strings"
)

// advice returns what to check or change: by the pattern, otherwise by what took at least
// half of the time, as near to the end of the chain as there is something to advise.
func (w *walker) advice(r *Result) string {
	if r.DelayNS <= 0 {
		return ""
	}
	if f := patternAdvice[r.Pattern]; f != nil {
		return printable(f(w, r))
	}
	site := ""
	if r.Blame.NS*2 >= r.DelayNS {
		if waitOf(r.Blame.Wait) == waitSafepoint && r.Blame.By != nil {
			return printable(adviseSafepoint(&r.Blame))
		}
		site = printable(siteAdvice(r))
	}
	for i := len(r.Chain) - 1; i >= -1; i-- {
		a := advised{Part: &r.Blame, who: &r.Task, own: true}
		if i >= 0 {
			a = advised{Part: &r.Chain[i], who: r.Blame.By, lock: &r.Blame}
		}
		if i > 0 {
			a.who, a.lock = r.Chain[i-1].By, &r.Chain[i-1]
		}
		if i >= 0 && a.who != nil && a.who.Kind == KindDevice {
			a.who = w.m.whoTask(w.chained[i].pieces[0].task) // its worker
		}
		if i+1 < len(r.Chain) {
			a.below = &r.Chain[i+1]
		}
		f := causeAdvice[a.Cause]
		if a.NS*2 < r.DelayNS || f == nil || a.By == nil && a.Cause != Unexplained || i >= 0 && !followed(r, i) {
			continue
		}
		isRunning := a.Cause == Running || a.Cause == RunningUser || a.Cause == RunningKernel
		holds := i >= 0 && r.Blame.Cause == Locked // who has the lock is known
		if (isRunning && !holds || i < 0 && a.Cause == BlockDevice) && site != "" {
			return site // it says more than that there is something to see, or that the disk took long
		}
		if s := f(w, &a); s != "" {
			return printable(s)
		}
	}
	return site
}

// followed reports whether each culprit before a link of the chain waits for it: a link that
// another cause led to says nothing about the slow task.
func followed(r *Result, link int) bool {
	for i := range link {
		if p := &r.Chain[i]; p.By == nil || p.By.Kind != KindTask && p.Cause != BlockDevice {
			return false
		}
	}
	return r.Blame.By != nil && (r.Blame.By.Kind == KindTask || r.Blame.By.For != nil || r.Blame.Cause == BlockDevice)
}

// advised is a part that advice is about.
type advised struct {
	*Part
	who   *Who  // who waited so
	lock  *Part // why the one before waited for who; nil: who is the slow task
	below *Part // what the culprit did meanwhile; nil: not known
	own   bool
}

// held reports whether who had a lock that another task waited for.
func (a *advised) held() bool { return a.lock != nil && a.lock.Cause == Locked }

// causeAdvice advises by cause. What is not listed has nothing that the trace could name.
var causeAdvice = map[Cause]func(w *walker, a *advised) string{
	RunningUser:   (*walker).adviseRunning,
	RunningKernel: (*walker).adviseRunning,
	Running:       (*walker).adviseRunning,
	Preempted:     (*walker).advisePreempted,
	Runnable:      (*walker).adviseRunnable,
	Misplaced:     (*walker).adviseMisplaced,
	Throttled:     (*walker).adviseQuota,
	IRQ:           (*walker).adviseInterrupt,
	Softirq:       (*walker).adviseInterrupt,
	StolenTime: func(*walker, *advised) string {
		return "The hypervisor gave this CPU to other guests: ask the operator of the host."
	},
	BlockQueue:  (*walker).adviseQueue,
	BlockDevice: (*walker).adviseDevice,
	Timer:       (*walker).adviseTimer,
	Reclaim:     (*walker).adviseReclaim,
	Compaction:  (*walker).adviseCompaction,
	PageFault:   (*walker).advisePages,
	WorkQueue:   (*walker).adviseWork,
	Limited:     (*walker).adviseLimit,

	ProtocolTimer: (*walker).adviseProtocol,
	Journal: func(_ *walker, a *advised) string {
		if a.By.For == nil {
			return ""
		}
		return fmt.Sprintf("%s shares the file system's journal: keep the two on different file systems.", a.By.For.Name)
	},
	Stopped: func(_ *walker, a *advised) string {
		if a.By.Kind != KindCgroup {
			return ""
		}
		return fmt.Sprintf("Check what freezes %s: cgroup.freeze, or freezer.state of cgroup v1.", describe(a.By))
	},
	Unexplained: (*walker).adviseUnexplained,
}

func adviseSafepoint(p *Part) string {
	return fmt.Sprintf("All threads of its Java VM stood still until %s had done what only it may do then: start Java with -Xlog:safepoint*,gc* to see what; a collection of garbage is shorter with a smaller heap or another collector (-XX:+UseZGC).", p.By.Name)
}

func (w *walker) adviseRunning(a *advised) string {
	if a.By.Kind != KindTask || w.m.kernelThread(a.By.TID) {
		return ""
	}
	if w.m.hasEnded(a.By.TID) {
		return fmt.Sprintf("It was CPU time of %s, which has ended: see what such do with perf record -g -a.", a.By.Name)
	}
	if s := w.adviseSpinning(a); s != "" {
		return s
	}
	return fmt.Sprintf("It is CPU time of %s: see what it does with perf record -g -t %d.", a.By.Name, threadID(a.By.TID))
}

// adviseSpinning: what spins in a function of the program may wait for another thread, and nothing
// says for which one: only who ran all that time can be named, if that is one of the process.
func (w *walker) adviseSpinning(a *advised) string {
	t := w.m.tasks[a.By.TID]
	if t == nil || a.Site.Of < 2 || !spinsByName(a.Site.Function) || !strings.Contains(strings.ToLower(a.Site.Function), "lock") {
		return "" // a loop of another kind
	}
	s := fmt.Sprintf("%s is in %s, which by its name waits for another thread's lock and does not sleep: see what those do with perf record -g -a", a.By.Name, a.Site.Function)
	if a.own {
		tid, _ := w.ranBeside(t, w.outlier.Start, w.outlier.End, nil)
		if beside := w.m.tasks[tid]; tid != 0 && beside != nil && beside.pid == t.pid {
			s += fmt.Sprintf("; of its process, %s ran all that time", w.m.whoTask(tid).Name)
		}
	}
	return s + "."
}

func (w *walker) advisePreempted(a *advised) string {
	switch {
	case a.By.Kind != KindTask || w.m.kernelThread(a.By.TID):
		return ""
	case a.By.Prio < realTime:
		return fmt.Sprintf("Check whether %s must run that long at a real-time priority%s, or keep the two apart (cpuset, taskset); kernel.sched_rt_runtime_us%s bounds it, since Linux 6.12 the fair server.",
			a.By.Name, priorityText(a.By), w.m.now("kernel.sched_rt_runtime_us"))
	}
	if s := w.adviseGroups(a); s != "" {
		return s
	}
	return fmt.Sprintf("Check the nice values of %s%s and %s%s%s.", a.By.Name, priorityText(a.By), a.who.Name, priorityText(a.who), w.weights(a))
}

// adviseMisplaced: only if the task may not use the CPU that was idle.
func (w *walker) adviseMisplaced(a *advised) string {
	f, ok := w.m.taskInfo(a.who.TID)
	if !ok || f.CPUs == nil || len(f.CPUs) >= len(w.m.cpus) {
		return ""
	}
	on := ""
	if a.own {
		on = fmt.Sprintf(" to CPU %d", w.longestWaitCPU())
	}
	return fmt.Sprintf("Check what pins %s%s: taskset -cp %d, and cpuset.cpus of its cgroup; it may use %d of %d CPUs.",
		a.who.Name, on, threadID(a.who.TID), len(f.CPUs), len(w.m.cpus))
}

func (w *walker) adviseQuota(a *advised) string {
	return raise(a.By, "cpu.max") + ", or check nr_throttled in its cpu.stat."
}

// raise advises to raise the limit of a cgroup that was hit, or these if that is not known.
func raise(by *Who, otherwise string) string {
	if name, value, ok := strings.Cut(by.Limit, " "); ok {
		return fmt.Sprintf("Raise %s of cgroup %s (now %s)", name, by.Cgroup, value)
	}
	return fmt.Sprintf("Raise %s of %s", otherwise, describe(by))
}

// adviseInterrupt: only of what came on top of the slow task.
func (w *walker) adviseInterrupt(a *advised) string {
	if !a.own {
		return ""
	}
	name := a.By.Name
	switch {
	case a.Cause == Softirq && (name == "NET_RX" || name == "NET_TX"):
		return fmt.Sprintf("Spread the packets over more CPUs (RPS, irq affinity), or keep %s off this one; net.core.netdev_budget_usecs%s bounds one run.",
			a.who.Name, w.m.now("net.core.netdev_budget_usecs"))
	case a.Cause == IRQ && a.By.Kind == KindIRQ && name != shortInterrupts && name != someInterrupt && w.onTop:
		return fmt.Sprintf("Let another CPU serve interrupt %s (smp_affinity in /proc/irq), or keep %s off this one.", name, a.who.Name)
	}
	return ""
}

func (w *walker) adviseQueue(a *advised) string {
	if a.ofQueue() {
		return w.adviseFullQueue(a)
	}
	if a.By.Kind != KindTask {
		return ""
	}
	return fmt.Sprintf("Limit what %s writes or reads%s, or keep the two on different disks.", a.By.Name, w.ioLimit(a.By))
}

// ioLimit names the limits of I/O of a task's cgroup.
func (w *walker) ioLimit(by *Who) string {
	f, _ := w.m.taskInfo(by.TID)
	if f.Cgroup == "" || f.Cgroup == "/" {
		return " (io.max, io.weight)"
	}
	limit, weight := w.m.own(f.Cgroup, "io.max"), w.m.own(f.Cgroup, "io.weight")
	return fmt.Sprintf(" (io.max%s, io.weight%s of its cgroup %s)", limit.now(), weight.now(), f.Cgroup)
}

func (w *walker) adviseDevice(a *advised) string {
	if a.By.Kind != KindDevice {
		return ""
	}
	lock := ""
	if a.held() {
		lock = fmt.Sprintf("%s waits for %s while it holds %s. ", a.who.Name, a.By.Name, strings.TrimSuffix(waits[waitOf(a.lock.Wait)].words, ","))
	}
	if a.below != nil && a.below.By != nil {
		return lock + a.By.Name + a.below.ofWorker()
	}
	return fmt.Sprintf("%s%s itself took that long: %s.", lock, a.By.Name, checkDevice(a.By.Name))
}

// ofWorker says why a disk took long, by what its worker did meanwhile.
func (p *Part) ofWorker() string {
	switch p.Cause {
	case Running, RunningKernel, RunningUser:
		return fmt.Sprintf(" took that long as its worker was at work: see at what with perf record -g -t %d.", threadID(p.By.TID))
	case WorkQueue:
		return " took that long as its work waited for a worker of the kernel."
	}
	return fmt.Sprintf(" took that long as its worker waited for %s: check that.", describe(p.By))
}

// virtualDevices are disks that hand their requests to something else, by the kernel's names for
// them, and what that is.
var virtualDevices = []struct{ prefix, check string }{
	{"loop", "it is a file: check the disk or the server that has it (losetup -l)"},
	{"zram", "it compresses pages in memory, on the CPU"},
	{"dm-", "check the disks below it (lsblk -s), and what it does to the data, such as encryption"},
	{"md", "check the disks below it (lsblk -s), and whether it is rebuilt (/proc/mdstat)"},
	{"nbd", "check its server and the network to that"},
	{"rbd", "check its cluster and the network to that"},
	{"drbd", "check its peer, the network to that, and the disk below it (lsblk -s)"},
	{"vd", "it is the host's: check the limits of the volume (IOPS and bandwidth), or ask the operator of the host"},
	{"xvd", "it is the host's: check the limits of the volume (IOPS and bandwidth), or ask the operator of the host"},
}

// checkDevice says what to check of a disk that took long: only one that may be hardware has
// its own health.
func checkDevice(name string) string {
	for _, v := range virtualDevices {
		rest, ok := strings.CutPrefix(name, v.prefix)
		if digit := rest != "" && rest[0] >= '0' && rest[0] <= '9'; ok && rest != "" && (digit || strings.HasSuffix(v.prefix, "vd")) {
			return v.check
		}
	}
	return "check its health and its limits (SMART, the IOPS of a volume)"
}

// adviseTimer: a sleep is a wish, unless others wait for a lock meanwhile.
func (w *walker) adviseTimer(a *advised) string {
	if !a.held() || a.who.Kind != KindTask {
		return ""
	}
	return fmt.Sprintf("%s sleeps while it holds the lock: check where.", a.who.Name)
}

func (w *walker) adviseWork(a *advised) string {
	if a.By.Kind != KindWork || !a.own || !strings.Contains(w.longestWhy, "behind other work") {
		return ""
	}
	return fmt.Sprintf("A worker does one item after the other: check why %s takes so long.", a.By.Name)
}

func (w *walker) adviseUnexplained(a *advised) string {
	switch {
	case !a.own:
		return ""
	case strings.Contains(a.Reason, reasonShort), strings.Contains(a.Reason, "overwritten"):
		return fmt.Sprintf("Raise recorder.cover to more than %s, within recorder.max_memory, or recorder.size.", duration(int64(w.outlier.End-w.outlier.Start)))
	}
	if _, group, ok := strings.Cut(a.Reason, "event group "); ok {
		group, _, _ = strings.Cut(group, " ")
		return fmt.Sprintf("Add %s to recorder.events.", group)
	}
	return ""
}
