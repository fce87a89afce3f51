// Package events holds what tailcam reports: outliers, their stacks, and what
// becomes known of them later. It is data only, and reads no kernel.
package events

import (
	"time"

	"github.com/tailcam/tailcam/rules"
)

// Cause says which limit an outlier passed.
type Cause string

// Causes, in the order of the kernel side's (enum outlier_cause).
const (
	CauseThreshold    Cause = "threshold"     // the delay at exit is at or above the threshold
	CauseTimeout      Cause = "timeout"       // the work is still pending at the age of the timeout
	CauseAfterTimeout Cause = "after_timeout" // the exit of work that has timed out before
)

// CauseTrigger is no limit's: a trigger asked about the time before it. TrackTrigger
// takes the place of the tracker then.
const (
	CauseTrigger Cause  = "trigger"
	TrackTrigger string = "trigger"
)

// Task identifies the task that was slow.
type Task struct {
	PID       int    `json:"pid"` // process (thread group) id
	TID       int    `json:"tid"`
	Comm      string `json:"comm"`
	UID       int    `json:"uid"`
	Kernel    bool   `json:"kernel,omitempty"`    // a kernel thread
	Cgroup    string `json:"cgroup,omitempty"`    // cgroup v2 path
	Container string `json:"container,omitempty"` // container id found in the cgroup path
	Cmdline   string `json:"cmdline,omitempty"`
	Title     string `json:"title,omitempty"` // what its process calls itself, if that is not Comm
	Place
}

// Place is where a task runs, as far as its cgroup and the container runtimes tell.
type Place struct {
	Unit          string            `json:"unit,omitempty"`           // systemd unit
	Runtime       string            `json:"runtime,omitempty"`        // docker, containerd, cri-o, podman, lxc, systemd-nspawn
	ContainerName string            `json:"container_name,omitempty"` // in Kubernetes: within the pod
	Image         string            `json:"image,omitempty"`          // of the container, with its tag
	Pod           string            `json:"pod,omitempty"`
	Namespace     string            `json:"namespace,omitempty"` // of the pod
	PodUID        string            `json:"pod_uid,omitempty"`
	Workload      map[string]string `json:"workload,omitempty"` // labels of the pod or container, as configured
}

// Peer is another task that an outlier names.
type Peer struct {
	PID  int    `json:"pid"`
	TID  int    `json:"tid"`
	Comm string `json:"comm"`
	*Identity
}

// Identity is what user space knows of a peer: as in Task.
type Identity struct {
	Title     string `json:"title,omitempty"`
	Cgroup    string `json:"cgroup,omitempty"`
	Container string `json:"container,omitempty"`
	Place
}

// Name is what the task is called: the title of its process, which other threads than the
// first have behind their own names, or its own name. Anybody may have chosen it.
func (t *Task) Name() string { return displayName(t.Comm, t.Title, t.PID == t.TID) }

// Name is what the task is called: see Task.Name.
func (p *Peer) Name() string {
	if p.Identity == nil {
		return p.Comm
	}
	return displayName(p.Comm, p.Title, p.PID == p.TID)
}

// Is reports whether it is that task.
func (p *Peer) Is(t *Task) bool { return p.PID == t.PID && p.TID == t.TID && p.Comm == t.Comm }

func displayName(comm, title string, first bool) string {
	switch {
	case title == "":
		return comm
	case first || comm == "":
		return title
	}
	return comm + " of " + title
}

// Usual is what delays like an outlier's were like, before it and with it: of its rule, if that
// has a histogram of its own, or else of its tracker.
type Usual struct {
	Of       string `json:"of"` // rule or tracker
	Count    uint64 `json:"count"`
	MedianNS int64  `json:"median_ns"`
	P99NS    int64  `json:"p99_ns"`
}

// Waker is who made the slow task runnable.
type Waker struct {
	Peer
	// Context is empty if the task itself did. Otherwise an interrupt did, while
	// it ran on that task's CPU: "irq 24", "softirq NET_RX" or "timer". Known
	// only while the recorder records the groups irq and timer.
	Context string `json:"context,omitempty"`
	// TraceID and SpanID are those that its program has published for it, when it woke the
	// task after a sleep that was an outlier; both or none.
	TraceID string `json:"trace_id,omitempty"`
	SpanID  string `json:"span_id,omitempty"`
}

// OnCPU is the task that ran instead for most of a wait.
type OnCPU struct {
	Peer
	CPU   int   `json:"cpu"`    // where
	RanNS int64 `json:"ran_ns"` // how long it ran within the wait
	// TraceID and SpanID are those that its program has published for it, when it last left the
	// CPU in the wait, after a millisecond or more; both or none.
	TraceID string `json:"trace_id,omitempty"`
	SpanID  string `json:"span_id,omitempty"`
}

// Frame is one symbolized stack frame, printed as "symbol+0xoff (module)".
type Frame = string

// Stacks are symbolized, innermost frame first.
type Stacks struct {
	Kernel []Frame `json:"kernel,omitempty"`
	User   []Frame `json:"user,omitempty"`
	// Approximate: the task ran on before its user stack was read, so that some of
	// it may be of a later moment.
	Approximate bool `json:"approximate,omitempty"`
	// UserMissing is why User has the innermost frame alone, or ends early.
	UserMissing string  `json:"user_missing,omitempty"`
	Waker       []Frame `json:"waker,omitempty"`
	// Progress is where a slow system call was each time it left its CPU, oldest
	// first. Of many, the first and the last ones are kept.
	Progress []Progress `json:"progress,omitempty"`
	// Sources are known where there is debug information; nil otherwise.
	Sources *Sources `json:"sources,omitempty"`
}

// Progress is where a system call was at one moment.
type Progress struct {
	AgeNS  int64   `json:"age_ns"` // since its entry
	State  string  `json:"state"`  // it left its CPU in: as Outlier.State; runnable if it was preempted
	Kernel []Frame `json:"kernel"`
}

// SyscallInfo describes the call that was slow, or slept in.
type SyscallInfo struct {
	NR   int    `json:"nr"`
	Name string `json:"name"`
	ABI  string `json:"abi,omitempty"` // whose table NR and Name are of: i386, arm; absent: the machine's own
	Ret  *int64 `json:"ret,omitempty"` // absent while it is not known
}

// Label is the call's name, with the table that it is of unless that is the machine's own.
func (s *SyscallInfo) Label() string {
	if s.ABI == "" {
		return s.Name
	}
	return s.Name + " (" + s.ABI + ")"
}

// BlockInfo describes the request that was slow.
type BlockInfo struct {
	Device   string `json:"device"`
	Sector   uint64 `json:"sector"` // of 512 bytes
	Bytes    uint32 `json:"bytes"`
	Op       string `json:"op"`    // read, write, flush, discard, other
	Flags    string `json:"flags"` // as blktrace writes them: WFSM …
	QueueNS  int64  `json:"queue_ns"`
	Requeues uint32 `json:"requeues,omitempty"`
	Error    int32  `json:"error,omitempty"` // blk_status_t
}

// IRQInfo describes the interrupt handler or softirq that was slow. The task of
// such an outlier is the one that was interrupted, or the thread that ran the
// softirq, and its stacks say where.
type IRQInfo struct {
	IRQ    *int   `json:"irq,omitempty"`    // irq
	Name   string `json:"name,omitempty"`   // irq: of the handler, at most 31 bytes of it
	Vector string `json:"vector,omitempty"` // softirq: hi, timer, net_tx, net_rx …
	Phase  string `json:"phase,omitempty"`  // softirq: raise (until it ran) or run
	CPU    int    `json:"cpu"`
}

// WorkInfo describes the work item that was slow. The task of such an outlier is
// the worker that ran it; an item that waits has none yet.
type WorkInfo struct {
	Queue    string `json:"queue,omitempty"`   // empty: it was not seen being queued
	Function string `json:"function"`          // symbol; its address while the symbol is unknown
	Phase    string `json:"phase"`             // wait (queued until it ran) or run
	WaitNS   *int64 `json:"wait_ns,omitempty"` // run: how long it had waited; absent: unknown
	QueuedBy *Waker `json:"queued_by,omitempty"`
	Address  uint64 `json:"-"` // of Function
}

// ChainInfo is the way of a chain, from its origin to its end.
type ChainInfo struct {
	Origin string       `json:"origin"` // "irq 24 virtio0-req.0", "softirq NET_RX", "timer"
	End    string       `json:"end"`    // run, user, block
	Stages []ChainStage `json:"stages"` // what they took adds up to the delay
	Cut    bool         `json:"cut"`    // there was more than could be followed: a branch, or stages between the last two
}

// ChainStage is a part of the way.
type ChainStage struct {
	// Stage is irq, timer, raise (a softirq waits to run), softirq, wakeup (the
	// task waits for a CPU), run, user (it runs, and has returned to user space
	// once), preempted, or lock (real-time kernels: it sleeps for a lock of the kernel).
	Stage string `json:"stage"`
	What  string `json:"what,omitempty"` // of an irq its number and handler, of a softirq its name
	CPU   int    `json:"cpu"`            // where it began
	AtNS  int64  `json:"at_ns"`          // when it began, since the origin
	NS    int64  `json:"ns"`             // how long it took
	Task  *Peer  `json:"task,omitempty"`
}

// SpanInfo is what a program said of a piece of its work.
type SpanInfo struct {
	Key   string `json:"key"`   // any bytes that its program chose: clean it before it is shown
	Begin Peer   `json:"begin"` // who began it; the outlier's task ended it, or at a timeout began it
}

// ActivityInfo is the activity that was slow, or that the slow thread worked for.
type ActivityInfo struct {
	Token string `json:"token"` // of this activity and no other
	Name  string `json:"name"`  // as Text, any bytes that its program chose: clean them before they are shown
	Text  string `json:"text,omitempty"`
	Value uint64 `json:"value,omitempty"` // the program's number
	// Account says in words where its time went; empty: it is not known.
	Account string `json:"account,omitempty"`
	// Values are those of its account that are not 0, by their names.
	Values map[string]uint64 `json:"values,omitempty"`
	// Threads are those that were seen to carry it, the latest last, as their process sees them.
	Threads []int `json:"threads,omitempty"`
}

// TriggerInfo is what the source of a rule of track trigger noticed. Task is whose time
// before that is explained; its TID is 0 if there is no target.
type TriggerInfo struct {
	Source string `json:"source"` // psi, kmsg, oom, probe, coredump, alert, slo, trace
	Reason string `json:"reason"` // may quote others: clean it before it is shown
	// Peer is the other host's outlier of the same trace, of source trace.
	Peer *PeerOutlier `json:"peer,omitempty"`
}

// PeerOutlier is an outlier of another host, in the words of its daemon: clean them before
// they are shown.
type PeerOutlier struct {
	Host     string `json:"host"`
	ID       string `json:"id"` // of the outlier
	Rule     string `json:"rule"`
	DelayNS  int64  `json:"delay_ns"`
	Snapshot string `json:"snapshot,omitempty"` // id, on that host
}

// Outlier is one event: a rule fired for one key. The JSON form is stable;
// fields are only added.
type Outlier struct {
	// ID is the outlier's own, whoever is told of it and however often. Seq numbers
	// those of one run of the daemon in the order in which it read them.
	ID  string `json:"id,omitempty"`
	Seq uint64 `json:"seq,omitempty"`
	// Partial: published before all was known. Task may lack what /proc tells, and
	// stacks may be addresses. Completed: published before, and whole now.
	Partial   bool `json:"partial,omitempty"`
	Completed bool `json:"completed,omitempty"`

	Time        time.Time         `json:"time"` // of the exit, UTC
	Rule        string            `json:"rule"`
	Track       string            `json:"track"`
	Cause       Cause             `json:"cause"`
	DelayNS     int64             `json:"delay_ns"`
	ThresholdNS int64             `json:"threshold_ns"`
	Key         map[string]uint64 `json:"key"`
	Task        Task              `json:"task"`
	CPU         int               `json:"cpu"`                   // of the exit
	EntryCPU    int               `json:"entry_cpu"`             // of the entry
	WaitCPU     *int              `json:"wait_cpu,omitempty"`    // wakeup: where it waited longest
	Preempted   bool              `json:"preempted,omitempty"`   // wakeup: the wait began with a preemption
	RunnableNS  int64             `json:"runnable_ns,omitempty"` // wakeup, offcpu: spent waiting for a CPU
	// State of the task: interruptible, uninterruptible, other; and at a timeout
	// also running, or runnable if it waits for a CPU. offcpu, and timeouts but block's.
	State        string       `json:"state,omitempty"`
	AfterTimeout bool         `json:"after_timeout,omitempty"` // it had timed out before: cause after_timeout
	Usual        *Usual       `json:"usual,omitempty"`         // only in snapshots
	Waker        *Waker       `json:"waker,omitempty"`
	OnCPU        *OnCPU       `json:"on_cpu,omitempty"` // who ran instead
	Stacks       Stacks       `json:"stacks"`
	Syscall      *SyscallInfo `json:"syscall,omitempty"`
	Block        *BlockInfo   `json:"block,omitempty"`
	IRQ          *IRQInfo     `json:"irq,omitempty"`
	Work         *WorkInfo    `json:"work,omitempty"`
	// Labels are what a declared pair carries, by the names that its rule gives:
	// numbers, or text. EntryTask is who passed the entry, if it is not Task.
	Labels    map[string]any `json:"labels,omitempty"`
	EntryTask *Peer          `json:"entry_task,omitempty"`
	Chain     *ChainInfo     `json:"chain,omitempty"`
	Span      *SpanInfo      `json:"span,omitempty"`
	Activity  *ActivityInfo  `json:"activity,omitempty"`
	// TraceID and SpanID are those that the program of Task has published for it
	// (otel_thread_ctx_v1), or that Activity has, in hexadecimal; both or none. TraceContext knows others, too.
	TraceID string `json:"trace_id,omitempty"`
	SpanID  string `json:"span_id,omitempty"`
	// Attributes are those of activities.attributes that its program has published beside them.
	Attributes map[string]string `json:"attributes,omitempty"`
	Trigger    *TriggerInfo      `json:"trigger,omitempty"`
	Snapshot   *string           `json:"snapshot"`            // id, or null
	Explained  *Explained        `json:"explained,omitempty"` // once its snapshot is complete
	Dir        string            `json:"dir,omitempty"`       // of the snapshot, once that is complete; only in streams
	// Actions are the results of actions that were given this outlier, of those that ended.
	Actions    []ActionResult `json:"actions,omitempty"`
	Suppressed uint64         `json:"suppressed"` // snapshots of this rule limited since its last one
	// Cursor is the place after this one in the daemon's stream of outliers and verdicts:
	// who goes on from there misses nothing that is remembered. Only in streams.
	Cursor string `json:"cursor,omitempty"`

	// StartMono and EndMono are the entry and the exit in nanoseconds of
	// CLOCK_MONOTONIC, the clock of the recorder.
	StartMono uint64 `json:"start_mono_ns"`
	EndMono   uint64 `json:"end_mono_ns"`
	// Finished: published before, and its snapshot is complete now, explained or not; or nobody
	// but the snapshot tells of it, as that was taken by hand.
	Finished bool `json:"-"`
	// WantsSnapshot: the limiter let this one have a snapshot.
	WantsSnapshot bool `json:"-"`
	// KeepUntil is until when its snapshot lasts at least, in nanoseconds of CLOCK_MONOTONIC, so
	// that others can be in it; 0: as its rule says.
	KeepUntil uint64 `json:"-"`
	// Raw holds the addresses of Stacks before they are symbolized.
	Raw RawStacks `json:"-"`
	// User is what its user stack is found by; nil: there is none, or no one wants it.
	User *UserState `json:"-"`
	// Context, if set, brings TraceID, SpanID, and what Attributes are made of.
	Context *Promise[Trace] `json:"-"`
	// Switches, of a timeout, is how often the thread had left its CPU, on which it was not; 0: it ran.
	Switches uint64 `json:"-"`
	// Unstacked: the kernel side could not take the stack; user space must.
	Unstacked bool `json:"-"`
	// Enrichment, if set, tells when Task, Stacks, Labels and Work are complete.
	Enrichment *Enrichment `json:"-"`
	// MatchedRule is the rule that fired, as it was then.
	MatchedRule *rules.Rule `json:"-"`
}

// Explained says in short where an outlier's time went. The whole explanation is
// in its snapshot.
type Explained struct {
	Verdict string `json:"verdict"`           // one sentence
	Advice  string `json:"advice,omitempty"`  // what to check or change
	Cause   string `json:"cause"`             // of the largest part: preempted, lock, block_device …
	By      string `json:"by,omitempty"`      // whose fault that was
	ByKind  string `json:"by_kind,omitempty"` // what that is: task, irq, device …
	// ByTask is where that is, if it is a task.
	ByTask *Identity `json:"by_task,omitempty"`
	NS     int64     `json:"ns"` // that part of the delay
	// Confidence of the verdict: seen, inferred or guess; absent if all is unexplained.
	Confidence string `json:"confidence,omitempty"`
	// Pattern is the shape of the latency, if it has a known one: priority_inversion, …
	Pattern string `json:"pattern,omitempty"`
}

// ActionResult is how an action ended.
type ActionResult struct {
	Time     time.Time `json:"time"` // of its start, UTC
	Rule     string    `json:"rule"` // of the outlier
	Snapshot *string   `json:"snapshot"`
	Index    int       `json:"index"`   // as in action-N.log
	Program  string    `json:"program"` // without its arguments
	// Result is succeeded, failed, timed_out, over_limit (of CPU time or memory), limited
	// (its `every` is not over), or not_run (an action before it failed).
	Result       string `json:"result"`
	Text         string `json:"text"` // for people
	TookNS       int64  `json:"took_ns"`
	CPUNS        int64  `json:"cpu_ns,omitempty"` // of everything that it started
	DroppedBytes int64  `json:"dropped_bytes,omitempty"`
}

// RawStacks are return addresses, innermost first.
type RawStacks struct {
	Kernel, User, Waker []uint64
	Progress            []RawProgress
}

// RawProgress is a Progress before it is symbolized.
type RawProgress struct {
	AgeNS  int64
	State  string
	Kernel []uint64
}
