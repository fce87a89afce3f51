// Package rules parses and validates YAML rule files. It is pure Go and does not
// depend on the kernel side.
package rules

import (
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/linux"
)

// Track is the kind of work that a rule watches.
type Track string

// The trackers. The order of Tracks is the order of the kernel side's tables.
const (
	Wakeup  Track = "wakeup"  // runnable to running
	OffCPU  Track = "offcpu"  // blocked to running
	Syscall Track = "syscall" // system call entry to exit
	Block   Track = "block"   // block request issue to complete
	IRQ     Track = "irq"     // interrupt handler entry to exit
	Softirq Track = "softirq" // softirq raise to run, or run
	Pair    Track = "pair"    // two events declared by the rule
	Chain   Track = "chain"   // one piece of work across several stages
	Span    Track = "span"    // begin to end, marked by user space
	// Workqueue is a work item: queued to run, or run.
	Workqueue Track = "workqueue"
)

// Tracks lists every tracker that rules may name.
var Tracks = []Track{Wakeup, OffCPU, Syscall, Block, IRQ, Softirq, Pair, Chain, Span, Workqueue}

// unbuilt are the trackers that the kernel side does not have yet.
var unbuilt []Track

// Op is the kind of a block request.
type Op string

// Kinds of block requests.
const (
	Read    Op = "read"
	Write   Op = "write"
	Flush   Op = "flush"
	Discard Op = "discard"
	Other   Op = "other"
)

// State is the state of a blocked task.
type State string

// States of a blocked task.
const (
	Interruptible   State = "interruptible"
	Uninterruptible State = "uninterruptible"
	OtherState      State = "other" // stopped, traced, idle kernel threads
)

// Thread tells user tasks from kernel threads.
type Thread string

// Kinds of threads.
const (
	UserThread   Thread = "user"
	KernelThread Thread = "kernel"
)

// Phase is a phase of a softirq or a work item.
type Phase string

// Phases of softirqs and work items.
const (
	Raise Phase = "raise" // softirq: from raise to run
	Wait  Phase = "wait"  // work item: from queue to run
	Run   Phase = "run"   // while it runs
)

// phases are the phases of each tracker, in the order of the kernel side's numbers.
var phases = map[Track][]Phase{Softirq: {Raise, Run}, Workqueue: {Wait, Run}}

// Phases returns the phases of a tracker's work, in the order of the kernel
// side's numbers; nil: it has none.
func Phases(t Track) []Phase { return phases[t] }

// Vector names a softirq.
type Vector string

// Vectors lists the softirqs in the kernel's order, in lower case.
var Vectors = vectors()

func vectors() []Vector {
	all := make([]Vector, 0, len(linux.Softirqs))
	for _, name := range linux.Softirqs {
		all = append(all, Vector(strings.ToLower(name)))
	}
	return all
}

// Stack names a call stack that a rule may ask for.
type Stack string

// Stacks that a rule may ask for.
const (
	KernelStack Stack = "kernel" // of the slow task
	UserStack   Stack = "user"   // of the slow task
	WakerStack  Stack = "waker"  // kernel stack of the task that woke it
	// ProgressStacks are taken each time a slow system call leaves its CPU.
	ProgressStacks Stack = "progress"
)

// Attach is what a syscall rule is attached to.
type Attach string

// What a syscall rule may be attached to.
const (
	// AttachAuto, also "", is the functions of the calls that the rule names. Where
	// the kernel allows none, or not all of so many, the rule is inactive, unless
	// another one pays for AttachAll.
	AttachAuto Attach = "auto"
	// AttachFunction is the same, for rules that must not be left out silently.
	AttachFunction Attach = "function"
	// AttachAll is the entry and the exit of every system call of the machine, each
	// of which pays for it.
	AttachAll Attach = "all"
)

// Position is a one-based position in a rule file.
type Position struct {
	File         string `json:"file"`
	Line, Column int
}

// Match has the conditions of one `when`. All conditions must hold; the entries of
// one list are alternatives; an empty list is no condition.
type Match struct {
	Comm, NotComm     []string // globs on the task's name
	PID, NotPID       []uint32 // process (thread group) ids
	TID, NotTID       []uint32 // thread ids
	UID, NotUID       []uint32
	Cgroup, NotCgroup []string // globs on the cgroup v2 path; ** also matches slashes
	// Globs on the systemd unit, the container's name or id, its pod and that's namespace.
	// What has none matches no glob.
	Unit, NotUnit           []string
	Container, NotContainer []string
	Pod, NotPod             []string
	Namespace, NotNamespace []string
	Syscall, NotSyscall     []int    // numbers of this machine; syscall: the call; offcpu: the call it slept in
	Device, NotDevice       []string // globs on disk names (vda, nvme0n1)
	Sector                  *Sectors // block: first sector of the request
	Op                      []Op
	State                   []State
	Thread                  []Thread
	Preempted               *bool // wakeup: whether the wait began with a preemption
	IRQ, NotIRQ             []uint32
	Name, NotName           []string // globs on the name of an interrupt handler
	Vector, NotVector       []Vector
	Phase                   []Phase
	CPU, NotCPU             []uint32 // of the exit; for pending work, of its task or where the request was issued
	From                    []Origin // chain: origins; set by the rule's from
	Ends                    []End    // chain: ends; set by the rule's to
	Key, NotKey             []string // span: globs on its key
	Queue, NotQueue         []string // workqueue: globs on the name of the queue
	Function                []string // workqueue: globs on the symbol of the work function
	NotFunction             []string
}

// Sectors is a range of a disk's sectors of 512 bytes, both ends included.
type Sectors struct{ First, Last uint64 }

// Override replaces the threshold, the timeout, or both where its conditions hold.
type Override struct {
	When      Match
	Threshold time.Duration // 0: the rule's; Adaptive: the current one, 0: none yet
	Adaptive  *Adaptive     // nil: a fixed threshold
	Timeout   time.Duration // 0: the rule's
}

// BeforeCover is the SnapshotPolicy.Before of rules that do not say it: as long as each CPU's history
// should be in any case, recorder.cover.
const BeforeCover time.Duration = -1

// SnapshotPolicy is the time window and the rate limit of a rule's snapshots.
type SnapshotPolicy struct {
	Enabled bool
	Before  time.Duration // history kept before the entry; 0: all that the recorder holds; BeforeCover
	After   time.Duration // recorded after the exit
	Every   time.Duration // at most one snapshot per …
	Burst   int           // … after this many at once
}

// Rule is one validated entry of a rule file, with defaults filled in.
type Rule struct {
	Name      string
	Track     Track
	Attach    Attach        // track syscall; "": AttachAuto
	Threshold time.Duration // 0: none; Adaptive: the current one
	Adaptive  *Adaptive     // nil: a fixed threshold
	Histogram *Histogram    // of all delays of the rule; nil: none
	Timeout   time.Duration // age at which pending work is an outlier; 0: none
	Repeat    time.Duration // fire again at this interval while still pending; 0: once
	Ratchet   bool          // only a new maximum fires
	Paused    bool          // does not fire; set at run time, not in files
	Priority  int           // 0 to 100; above the budget, rules with the lowest are paused first
	Pair      *PairSpec     // hooks and key of track pair; else nil
	Trigger   *TriggerSpec  // of track trigger; else nil
	When      Match
	Overrides []Override
	Stacks    []Stack
	Snapshot  SnapshotPolicy
	Actions   []Action
	// ActionLimits are of all Actions together that one snapshot or outlier starts; nil: none.
	ActionLimits *ActionBounds
	Pos          Position
}
