package explain

// Cause says what a stretch of an outlier's time went to.
type Cause string

// Causes.
const (
	RunningUser   Cause = "running_user"
	RunningKernel Cause = "running_kernel"
	Running       Cause = "running"   // on a CPU; whether in the kernel is not recorded
	Preempted     Cause = "preempted" // ready, but a task that goes first had the CPU
	Runnable      Cause = "runnable"  // ready, behind tasks of its own rank
	Misplaced     Cause = "misplaced" // the same, while another CPU idled
	Throttled     Cause = "throttled" // its cgroup had used up its CPU quota
	IRQ           Cause = "irq"
	Softirq       Cause = "softirq"
	StolenTime    Cause = "stolen" // by the hypervisor
	BlockQueue    Cause = "block_queue"
	BlockDevice   Cause = "block_device"
	Locked        Cause = "lock"
	Task          Cause = "task" // another task: pipe, socket, wait
	Timer         Cause = "timer"
	Network       Cause = "network"
	Reclaim       Cause = "reclaim"
	Compaction    Cause = "compaction"
	PageFault     Cause = "page_fault"
	WorkQueue     Cause = "workqueue"
	Journal       Cause = "journal"
	Stopped       Cause = "stopped"
	Unexplained   Cause = "unexplained"
)

// Version is the version of explain.json. Fields are only ever added to it.
const Version = 1

// Report is explain.json: one Result for each outlier, in their order.
type Report struct {
	Version  int      `json:"version"`
	Notes    []string `json:"notes,omitempty"`
	Outliers []Result `json:"outliers"`
}

// Result explains one outlier. The nanoseconds of Parts add up to DelayNS.
type Result struct {
	Rule        string `json:"rule"`
	Track       string `json:"track"`
	Cause       string `json:"cause,omitempty"` // threshold, timeout, after_timeout
	DelayNS     int64  `json:"delay_ns"`
	StartMonoNS uint64 `json:"start_mono_ns"`
	EndMonoNS   uint64 `json:"end_mono_ns"`
	Task        Who    `json:"task"`
	Verdict     string `json:"verdict"`
	Advice      string `json:"advice"`
	// Blame is the largest part of the cause that took most. Of many tasks that
	// kept one waiting each may have taken little.
	Blame Part `json:"blame"`
	// Chain leads from Blame on to where the critical path ends: what the
	// culprit of the link before mostly did meanwhile. Empty if Blame is the end.
	Chain []Part `json:"chain,omitempty"`
	// Parts are what the slow task itself did or waited for, largest first.
	Parts []Part `json:"parts"`
	// Roots are the same time by what the critical path ends at: a wait for a
	// task is replaced by what that task did. They add up to DelayNS, too.
	Roots []Part `json:"roots"`
	Path  []Step `json:"path"`
}

// Part is all time of one outlier that went to one cause and one culprit.
type Part struct {
	Cause  Cause  `json:"cause"`
	By     *Who   `json:"by,omitempty"`
	NS     int64  `json:"ns"`
	Count  int    `json:"count"`            // stretches
	Reason string `json:"reason,omitempty"` // of what is unexplained
}

// Step is one stretch of the critical path. Those of depth 0 are the slow
// task's own and leave no gap; deeper ones are what the step above them, which
// covers their time, waited for.
type Step struct {
	FromMonoNS uint64 `json:"from_mono_ns"`
	ToMonoNS   uint64 `json:"to_mono_ns"`
	Task       Who    `json:"task"`
	CPU        int    `json:"cpu"` // -1: none
	Depth      int    `json:"depth"`
	State      string `json:"state"` // running, runnable, blocked, interrupted, unknown
	Cause      Cause  `json:"cause"`
	By         *Who   `json:"by,omitempty"`
	Why        string `json:"why,omitempty"`
	Count      int    `json:"count,omitempty"` // stretches, if several short ones are put together
	Waker      *Who   `json:"waker,omitempty"` // of what was blocked
	// Where the task, or its waker, was in the kernel, as far as a rule has asked
	// for it; the innermost frame first.
	Stack      []string `json:"stack,omitempty"`
	WakerStack []string `json:"waker_stack,omitempty"`
}

// Kinds of Who.
const (
	KindTask       = "task"
	KindIRQ        = "irq"
	KindSoftirq    = "softirq"
	KindTimer      = "timer"
	KindDevice     = "device"
	KindCgroup     = "cgroup"
	KindHypervisor = "hypervisor"
	KindNetwork    = "network"
	KindWork       = "work"
	KindMemory     = "memory"
	KindSelf       = "self"
	KindUnknown    = "unknown"
)

// Who is a culprit, a waker or a task; fields that do not apply are empty.
type Who struct {
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	TID      int    `json:"tid,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Comm     string `json:"comm,omitempty"`
	Prio     int    `json:"prio,omitempty"` // the kernel's: 120 is nice 0, below 100 real time
	Policy   string `json:"policy,omitempty"`
	Cgroup   string `json:"cgroup,omitempty"`
	Device   string `json:"device,omitempty"`
	Function string `json:"function,omitempty"`
	For      *Who   `json:"for,omitempty"` // a kernel thread or a device: whom it worked for
}
