// Package rules turns YAML into validated rules. It is pure Go: it knows what
// a rule means, not how the kernel side carries it out.
package rules

import (
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/linux"
)

// Track names the kind of work that a rule watches.
type Track string

// The trackers. The order of Tracks is the order of the kernel side's tables.
const (
	Wakeup  Track = "wakeup"  // runnable to running
	OffCPU  Track = "offcpu"  // blocked to running
	Syscall Track = "syscall" // system call entry to exit
	Block   Track = "block"   // block request issue to complete
	IRQ     Track = "irq"     // interrupt handler entry to exit
	Softirq Track = "softirq" // softirq raise to run, or its run
	Pair    Track = "pair"    // any two events that the rule declares
	Chain   Track = "chain"   // one piece of work over several stages
	Span    Track = "span"    // begin to end, as user space says
)

// Tracks lists every tracker that rules may name.
var Tracks = []Track{Wakeup, OffCPU, Syscall, Block, IRQ, Softirq, Pair, Chain, Span}

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

// State is what a blocked task waits in.
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

// Phase is a part of a softirq's way.
type Phase string

// Phases of a softirq.
const (
	Raise Phase = "raise" // from when it was raised until it runs
	Run   Phase = "run"   // its run
)

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
	// ProgressStacks are where a slow system call was each time it left its CPU.
	ProgressStacks Stack = "progress"
)

// Position is a place in a rule file, one-based.
type Position struct {
	File         string `json:"file"`
	Line, Column int
}

// Match holds the conditions of one `when`. An empty list is no condition; all
// conditions must hold; the entries of one list are alternatives.
type Match struct {
	Comm, NotComm       []string // globs over the task's name
	PID, NotPID         []uint32 // process (thread group) ids
	TID, NotTID         []uint32 // thread ids
	UID, NotUID         []uint32
	Cgroup, NotCgroup   []string // globs over the cgroup v2 path; ** crosses slashes
	Syscall, NotSyscall []int    // numbers of this machine; syscall: the call; offcpu: the call it slept in
	Device, NotDevice   []string // globs over disk names (vda, nvme0n1)
	Sector              *Sectors // block: of the disk, where the request begins
	Op                  []Op
	State               []State
	Thread              []Thread
	Preempted           *bool // wakeup: only waits that began (true) or did not begin (false) with a preemption
	IRQ, NotIRQ         []uint32
	Name, NotName       []string // globs over the name of an interrupt handler
	Vector, NotVector   []Vector
	Phase               []Phase
	CPU, NotCPU         []uint32 // of the exit; pending work: where its task is, or the request was issued
	From                []Origin // chain: where it began; set by the rule's from
	Ends                []End    // chain: where it ends; set by the rule's to
	Key, NotKey         []string // span: globs over its key
}

// Sectors is a range of a disk's sectors of 512 bytes, both ends included.
type Sectors struct{ First, Last uint64 }

// Override replaces the threshold, the timeout, or both where its conditions hold.
type Override struct {
	When      Match
	Threshold time.Duration // 0: the rule's; Adaptive: that of now, 0: none yet
	Adaptive  *Adaptive     // how the threshold follows the load; nil: it does not
	Timeout   time.Duration // 0: the rule's
}

// SnapshotPolicy says what a snapshot of a rule holds and how often one may be taken.
type SnapshotPolicy struct {
	Enabled bool
	Before  time.Duration // history kept before the entry; 0: all that the recorder holds
	After   time.Duration // recorded on after the exit
	Every   time.Duration // at most one snapshot each …
	Burst   int           // … after this many at once
}

// When an action runs.
const (
	OnSnapshot = "snapshot" // after each snapshot of the rule
	OnOutlier  = "outlier"  // after each outlier of the rule
)

// Action is an operator's executable.
type Action struct {
	Run     []string
	Timeout time.Duration // the whole process group is killed after it
	User    string        // empty: the daemon's actions.user
	On      string        // OnSnapshot or OnOutlier
}

// Rule is one validated entry of a rule file, defaults filled in.
type Rule struct {
	Name      string
	Track     Track
	Threshold time.Duration // 0: none, only the timeout fires; Adaptive: that of now
	Adaptive  *Adaptive     // how the threshold follows the load; nil: it does not
	Histogram *Histogram    // of all delays that the rule is about; nil: none
	Timeout   time.Duration // age at which pending work is an outlier; 0: none
	Repeat    time.Duration // fire again each … while it is still pending; 0: once
	Ratchet   bool          // only what is worse than all before fires
	Paused    bool          // fires nothing; set while tailcam runs, not in files
	Pair      *PairSpec     // track pair: its hooks and key; nil: another track
	When      Match
	Overrides []Override
	Stacks    []Stack
	Snapshot  SnapshotPolicy
	Actions   []Action
	Pos       Position
}
