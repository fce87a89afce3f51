package explain

import "strings"

// Cause is what time was spent on.
type Cause string

// Causes.
const (
	RunningUser   Cause = "running_user"
	RunningKernel Cause = "running_kernel"
	Running       Cause = "running"   // on a CPU, user or kernel unknown
	Preempted     Cause = "preempted" // runnable, behind a task of higher priority
	Runnable      Cause = "runnable"  // runnable, behind tasks of equal priority
	Misplaced     Cause = "misplaced" // the same, while another CPU was idle
	Throttled     Cause = "throttled" // its cgroup's CPU quota is used up
	IRQ           Cause = "irq"
	Softirq       Cause = "softirq"
	StolenTime    Cause = "stolen" // by the hypervisor
	BlockQueue    Cause = "block_queue"
	BlockDevice   Cause = "block_device"
	Locked        Cause = "lock"
	Task          Cause = "task" // another task: pipe, socket, wait
	Timer         Cause = "timer"
	ProtocolTimer Cause = "protocol_timer" // a timer of TCP
	Limited       Cause = "limit"          // of memory or I/O, by which the kernel delays a task
	Network       Cause = "network"
	Reclaim       Cause = "reclaim"
	Compaction    Cause = "compaction"
	PageFault     Cause = "page_fault"
	WorkQueue     Cause = "workqueue"
	Journal       Cause = "journal"
	Stopped       Cause = "stopped"
	Unexplained   Cause = "unexplained"
)

// Version is the version of explain.json. Fields are only ever added.
const Version = 1

// Report is explain.json: one Result per outlier, in the same order.
type Report struct {
	Version  int      `json:"version"`
	Notes    []string `json:"notes,omitempty"`
	Outliers []Result `json:"outliers"`
}

// Result explains one outlier. Parts add up to DelayNS.
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
	// Confidence of the verdict: of the least sure that it names. Absent if all is
	// unexplained.
	Confidence Confidence `json:"confidence,omitempty"`
	// Pattern names the shape of the latency, if it has a known one; PatternWhy is the
	// evidence, a sentence.
	Pattern    Pattern `json:"pattern,omitempty"`
	PatternWhy string  `json:"pattern_why,omitempty"`
	// Behalf is for whom the slow task was at work itself.
	Behalf *Behalf `json:"behalf,omitempty"`
	// Activity is the request that the slow task worked for, if a token says so.
	Activity *Activity `json:"activity,omitempty"`
	// Without is how long it might have taken without those who were most in its way.
	Without *Without `json:"without,omitempty"`
	// Before is how long the same work took a moment ago, and what differs now.
	Before *Before `json:"before,omitempty"`
	// Blame is the largest part of the dominant cause. It may be small if many tasks
	// contributed.
	Blame Part `json:"blame"`
	// Chain continues from Blame to the end of the critical path: what each culprit in
	// turn mostly did. It is empty if Blame is the end.
	Chain []Part `json:"chain,omitempty"`
	// Parts are what the slow task did or waited for, largest first.
	Parts []Part `json:"parts"`
	// Roots attribute the same time to the ends of the critical path: a wait for a task
	// is replaced by what that task did. They add up to DelayNS as well.
	Roots []Part `json:"roots"`
	Path  []Step `json:"path"`
}

// Part is the time of an outlier with the same cause and culprit.
type Part struct {
	Cause  Cause  `json:"cause"`
	By     *Who   `json:"by,omitempty"`
	NS     int64  `json:"ns"`
	Count  int    `json:"count"`            // number of intervals
	Reason string `json:"reason,omitempty"` // if unexplained
	// Approximate: a part of it was sampled, every few milliseconds.
	Approximate bool `json:"approximate,omitempty"`
	// Wait is what for, where a cause is of several kinds: mutex, condition …
	Wait string `json:"wait,omitempty"`
	// Confidence is seen, inferred or guess, by the least sure tenth of its time; Evidence
	// is why, if it is not seen.
	Confidence Confidence `json:"confidence,omitempty"`
	Evidence   string     `json:"evidence,omitempty"`
	// In a chain, of several culprits with the same cause: how many they are, and how long
	// for all of them. By is the one that took most.
	Culprits int   `json:"culprits,omitempty"`
	GroupNS  int64 `json:"group_ns,omitempty"`
	// Site is where it waited, or what the task did that ran, for half of it or more.
	Site Site `json:"site,omitzero"`
	// Behalf is for whom the task By was at work while it was waited for, if it is a server,
	// and that was not for one that waited.
	Behalf *Behalf `json:"behalf,omitempty"`
	// Activity is the request that By worked for meanwhile, or that had a work item queued.
	Activity *Activity `json:"activity,omitempty"`
	// Evicted is who had evicted what it waited for to be read again.
	Evicted *Evicted `json:"evicted,omitempty"`
	// Cut: in a chain, its culprit waited for others, which are not followed that deep.
	Cut bool `json:"cut,omitempty"`
}

// Step is an interval of the critical path. Steps of depth 0 belong to the slow task
// and are contiguous; deeper ones explain the step above them.
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
	// Merged: it adds up Count short intervals, and stands beside others that were between
	// and around them: how long is right, when is not.
	Merged     bool       `json:"merged,omitempty"`
	Count      int        `json:"count,omitempty"` // number of intervals, if merged
	Waker      *Who       `json:"waker,omitempty"` // if blocked
	Wait       string     `json:"wait,omitempty"`  // as in Part
	Confidence Confidence `json:"confidence,omitempty"`
	Evidence   string     `json:"evidence,omitempty"`
	Site       Site       `json:"site,omitzero"`      // if blocked: where
	Activity   *Activity  `json:"activity,omitempty"` // that Task worked for
	// Kernel stack of the task or its waker, innermost frame first, if the rule or the
	// recorder's group wait records it.
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

// Place is where a task runs, if known.
type Place struct {
	Unit          string `json:"unit,omitempty"`
	Container     string `json:"container,omitempty"` // id
	ContainerName string `json:"container_name,omitempty"`
	Image         string `json:"image,omitempty"` // of the container, with its tag
	Pod           string `json:"pod,omitempty"`
	Namespace     string `json:"namespace,omitempty"` // of the pod
}

// where is the most telling part, for people; "": none is known.
func (p *Place) where() string {
	switch {
	case p.Pod != "" && p.Namespace != "":
		return "pod " + p.Namespace + "/" + p.Pod
	case p.Pod != "":
		return "pod " + p.Pod
	case p.ContainerName != "":
		return "container " + p.ContainerName
	}
	return p.Unit
}

// Called is what a task is called: the title of its process, which other threads than the
// first have behind their own names, or its own name. Anybody may have chosen it.
func (w *Who) Called() string {
	switch {
	case w.Title == "":
		return w.Comm
	case threadID(w.TID) == w.PID || w.Comm == "" || strings.HasPrefix(w.Title, w.Comm+" of "):
		return w.Title
	}
	return w.Comm + " of " + w.Title
}

// Who is a culprit, a waker or a task. Fields that do not apply are empty.
type Who struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	TID    int    `json:"tid,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Comm   string `json:"comm,omitempty"`
	Title  string `json:"title,omitempty"` // what its process calls itself, if that is not comm
	Prio   int    `json:"prio,omitempty"`  // of the kernel: 120 is nice 0, below 100 real-time
	Policy string `json:"policy,omitempty"`
	Cgroup string `json:"cgroup,omitempty"`
	Place
	Device   string `json:"device,omitempty"`
	Function string `json:"function,omitempty"`
	// Limit is that of a cgroup that was hit, and what it was then: "memory.high 33554432".
	Limit string `json:"limit,omitempty"`
	For   *Who   `json:"for,omitempty"` // kernel thread, work or device: on whose behalf
}
