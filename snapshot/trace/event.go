package trace

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Type is the kind of an event. Values up to FileLockRequest are types of records.
type Type uint16

// Kinds of events.
const (
	SchedSwitch    Type = abi.RecSwitch
	SchedWaking    Type = abi.RecWaking
	SchedWakeupNew Type = abi.RecWakeupNew
	SchedMigrate   Type = abi.RecMigrate
	IRQEntry       Type = abi.RecIrqEntry
	IRQExit        Type = abi.RecIrqExit
	SoftirqEntry   Type = abi.RecSoftirqEntry
	SoftirqExit    Type = abi.RecSoftirqExit
	HrtimerEntry   Type = abi.RecHrtimerEntry
	HrtimerExit    Type = abi.RecHrtimerExit
	BlockInsert    Type = abi.RecBlockInsert
	BlockIssue     Type = abi.RecBlockIssue
	BlockComplete  Type = abi.RecBlockComplete
	WorkStart      Type = abi.RecWorkStart
	WorkEnd        Type = abi.RecWorkEnd
	ProcessFork    Type = abi.RecFork
	ProcessExec    Type = abi.RecExec
	ProcessExit    Type = abi.RecExit
	SyscallEntry   Type = abi.RecSyscallEntry
	SyscallExit    Type = abi.RecSyscallExit

	WorkQueued       Type = abi.RecWorkQueue
	TimerEntry       Type = abi.RecTimerEntry
	TimerExit        Type = abi.RecTimerExit
	FaultUser        Type = abi.RecFaultUser
	FaultKernel      Type = abi.RecFaultKernel
	ReclaimBegin     Type = abi.RecReclaimBegin
	ReclaimEnd       Type = abi.RecReclaimEnd
	CompactionBegin  Type = abi.RecCompactionBegin
	CompactionEnd    Type = abi.RecCompactionEnd
	LockBegin        Type = abi.RecLockBegin
	LockEnd          Type = abi.RecLockEnd
	CPUIdle          Type = abi.RecCpuIdle
	CPUFrequency     Type = abi.RecCpuFrequency
	NetQueue         Type = abi.RecNetQueue
	NetReceive       Type = abi.RecNetReceive
	NapiPoll         Type = abi.RecNapiPoll
	CgroupThrottle   Type = abi.RecThrottle
	CgroupUnthrottle Type = abi.RecUnthrottle
	KVMEntry         Type = abi.RecKvmEntry
	KVMExit          Type = abi.RecKvmExit
	Steal            Type = abi.RecSteal
	Interrupts       Type = abi.RecInterrupts
	WaitStack        Type = abi.RecWait
	Sample           Type = abi.RecSample
	RunStack         Type = abi.RecRun
	FileLockRequest  Type = abi.RecFileLock

	// Not records of the kernel: what there was when the trace began, as far as
	// it is known.
	DumpStart  Type = 56
	DumpTask   Type = 57
	DumpFile   Type = 58
	DumpDevice Type = 59
	DumpEnd    Type = 60

	// Nor these: where an outlier began and ended.
	OutlierEntry Type = 62
	OutlierExit  Type = 63
)

// String returns the event's name in CTF, which is LTTng's. A system call's
// own name is in Syscall.Name.
func (t Type) String() string {
	if c := classOf(t); c != nil {
		return c.name
	}
	return fmt.Sprintf("unknown_%d", uint16(t))
}

// ErrUnknown is wrapped by Record.Decode for bytes that are no record.
var ErrUnknown = errors.New("unknown record")

// Comm is a task's name: at most 16 bytes, zero-padded. The kernel does not
// promise UTF-8.
type Comm [abi.TaskCommLen]byte

// String returns the name up to its first zero byte.
func (c Comm) String() string {
	if i := bytes.IndexByte(c[:], 0); i >= 0 {
		return string(c[:i])
	}
	return string(c[:])
}

// MakeComm cuts a name to what fits.
func MakeComm(s string) (c Comm) {
	copy(c[:], cutNUL(s))
	return c
}

// Event is one decoded event. It owns its memory.
type Event struct {
	Time uint64 // nanoseconds of CLOCK_MONOTONIC
	CPU  int
	Type Type
	TID  int // of the current task, 0: idle; markers: of the slow task
	// Body is a value (not a pointer) of Switch, Wake, Migrate, IRQ, Softirq,
	// Hrtimer, Block, Work, Fork, Exec, Exit, Syscall, WorkQueue, Timer, Fault,
	// Reclaim, Compaction, Lock, Idle, Frequency, Net, Napi, Throttle, KVM,
	// Stolen, ShortRuns, Stack, TaskState, FileState, DeviceState or Marker; nil for DumpStart and
	// DumpEnd.
	Body any
}

// Switch is SchedSwitch; the task that leaves is Event.TID.
type Switch struct {
	PrevComm, NextComm Comm
	NextTID, NextPID   int
	PrevPrio, NextPrio int    // kernel priority: 120 is nice 0, below 100 real time
	PrevState          uint32 // as the kernel gives it; 0: still runnable
	Preempted          bool
	Call               int   // the system call that the leaving task blocks in, CallNone, CallException or CallFutex
	Futex              Futex // with CallFutex
	IOWait             bool  // it waits for I/O
	Frozen             bool  // a cgroup freezer stops it
	Throttled          bool  // its cgroup has used up its CPU quota on this CPU
}

// Values of Switch.Call that are no system call.
const (
	CallNone      = -1 // not known: a kernel thread, or a task that did not block
	CallException = -2 // in an exception, such as a page fault
	CallFutex     = -3 // in futex, whatever number it has on the machine; Futex tells more
)

// Futex is what a task that blocks in futex has asked for.
type Futex uint16

// What Futex.Op returns.
const (
	FutexWait        = abi.FutexIsWait
	FutexWaitBitset  = abi.FutexIsBitset
	FutexLockPI      = abi.FutexIsLockPi
	FutexWaitRequeue = abi.FutexIsRequeue
)

// FutexOther is what Futex.Value returns for all values from there on.
const FutexOther = abi.FutexValueOther

// MakeFutex is for tests and traces that do not come from the kernel side.
func MakeFutex(op int, value uint32, shared, timed bool) Futex {
	f := Futex(abi.FutexWaits | op&abi.FutexKind | int(min(value, FutexOther))<<abi.FutexValueShift)
	if shared {
		f |= abi.FutexShared
	}
	if timed {
		f |= abi.FutexTimed
	}
	return f
}

// What Futex has beside enum futex_wait: the place, plus one.
const (
	futexPlaceShift = 8
	futexPlaceMask  = 0x3f
)

// At is for tests as MakeFutex is: f at a place, from 0 to 31, or -1.
func (f Futex) At(place int) Futex {
	return f&^(futexPlaceMask<<futexPlaceShift) | Futex(place+1)<<futexPlaceShift
}

// Known reports whether the others tell anything.
func (f Futex) Known() bool { return f&abi.FutexWaits != 0 }

// Op is FutexWait, FutexWaitBitset, FutexLockPI or FutexWaitRequeue.
func (f Futex) Op() int { return int(f & abi.FutexKind) }

// Shared reports whether other processes may wake it (no FUTEX_PRIVATE_FLAG).
func (f Futex) Shared() bool { return f&abi.FutexShared != 0 }

// Timed reports whether the wait has a time limit.
func (f Futex) Timed() bool { return f&abi.FutexTimed != 0 }

// Value is what the futex was expected to hold, at most FutexOther.
func (f Futex) Value() int { return int(f&(abi.FutexWaits-1)) >> abi.FutexValueShift }

// Place is the same of all who wait for one futex of a process, and of one in 32 others; -1 where
// it is not known: it is of FutexWait that is not shared.
func (f Futex) Place() int { return int(f>>futexPlaceShift&futexPlaceMask) - 1 }

// Wake is SchedWaking or SchedWakeupNew; the waker is Event.TID.
type Wake struct {
	Comm      Comm
	TID, PID  int
	Prio      int // kernel priority
	TargetCPU int
	Context   uint32 // what ran on top of the waker, as Runs gives it, and why, as Signal and Thaw; 0: nothing that is known
}

// Runs takes Context apart: what ran on top of the waker was what IRQEntry, SoftirqEntry or
// HrtimerEntry begins, of an irq or with a vector; number -1: it is not known which.
// 0: the waker itself woke the task, as far as is known.
func (w *Wake) Runs() (kind Type, number int) {
	if number = int(w.Context & abi.WakerNumber); number == abi.WakerNumber {
		number = -1
	}
	switch w.Context &^ (abi.WakerNumber | abi.WakerSignal | abi.WakerThaw) {
	case abi.WakerSoftirq:
		if number >= 0 {
			number &^= abi.WakerLocal | abi.WakerRemote
		}
		return SoftirqEntry, number
	case abi.WakerIrq:
		return IRQEntry, number
	case abi.WakerHrtimer:
		return HrtimerEntry, -1
	}
	return 0, -1
}

// Local reports, of a wake-up by a softirq that received packets, that the waker was in a system
// call meanwhile, as who sends packets on this machine is.
func (w *Wake) Local() bool {
	kind, number := w.Runs()
	return kind == SoftirqEntry && number >= 0 && w.Context&abi.WakerLocal != 0
}

// Signal reports whether the task had a signal to take when it was woken, which mostly was why.
func (w *Wake) Signal() bool { return w.Context&abi.WakerSignal != 0 }

// Thaw reports whether the task was frozen in its sleep until then.
func (w *Wake) Thaw() bool { return w.Context&abi.WakerThaw != 0 }

// Migrate is SchedMigrate.
type Migrate struct {
	Comm             Comm
	TID              int
	Prio             int // kernel priority
	OrigCPU, DestCPU int
}

// IRQ is IRQEntry (with Name) or IRQExit (with Ret).
type IRQ struct {
	IRQ  int
	Ret  int
	Name string
}

// Softirq is SoftirqEntry or SoftirqExit.
type Softirq struct {
	Vec      uint32
	AfterIRQ bool // entry: an interrupt handler had ended just before, and may have raised it
	IRQ      int  // that handler's, if AfterIRQ
}

// Hrtimer is HrtimerEntry or, with the timer's address only, HrtimerExit.
type Hrtimer struct {
	Hrtimer  uint64
	Function uint64
	Now      int64 // nanoseconds of the timer's own clock
}

// Block is BlockInsert, BlockIssue or BlockComplete.
type Block struct {
	RQ     uint64 // address of the request: pairs the three
	Sector uint64 // of 512 bytes
	Dev    uint32 // major << 20 | minor
	Bytes  uint32 // complete: of this completion
	Flags  uint32 // cmd_flags, REQ_OP in the low 8 bits
	Status int    // complete: blk_status_t
	Comm   Comm
}

// Work is WorkStart or WorkEnd.
type Work struct {
	Work, Function uint64
}

// Fork is ProcessFork; the parent is Event.TID.
type Fork struct {
	ParentComm, ChildComm Comm
	ParentPID             int
	ChildTID, ChildPID    int
	Prio                  int // kernel priority
}

// Exec is ProcessExec of Event.TID, Comm being the new name.
type Exec struct {
	Comm   Comm
	PID    int
	OldTID int
	Prio   int // kernel priority
}

// Exit is ProcessExit of Event.TID.
type Exit struct {
	Comm Comm
	PID  int
	Prio int // kernel priority
}

// Syscall is SyscallEntry or SyscallExit (with Ret).
type Syscall struct {
	NR   uint32
	PID  int
	Ret  int64
	Args [abi.SyscallArgs]uint64 // entry: the first five
	Name string                  // as the trace names it; empty from Record.Decode or if unknown
}

// WorkQueue is WorkQueued: work that was put into the work queue Name.
type WorkQueue struct {
	Work, Function uint64
	Name           string
	ReqCPU         int    // asked for
	Context        uint32 // what ran on top of the task that queued it, as Wake.Context
}

// Timer is TimerEntry or, with the timer's address only, TimerExit.
type Timer struct {
	Timer    uint64
	Function uint64
	Now      uint64 // jiffies
	TCP      TCPTimer
}

// Fault is FaultUser or FaultKernel. The end of a page fault is no event.
type Fault struct {
	Address, IP, ErrorCode uint64
}

// Reclaim is ReclaimBegin (with Order) or ReclaimEnd (with Reclaimed).
type Reclaim struct {
	Memcg     bool // for a memory cgroup at its limit, not for the machine
	Order     int
	Reclaimed uint64 // pages
}

// Compaction is CompactionBegin (with Sync) or CompactionEnd (with Status).
type Compaction struct {
	Sync   bool
	Status int // enum compact_result of the kernel
}

// Lock is LockBegin, a task begins to wait for a lock of the kernel, or LockEnd (with Ret).
type Lock struct {
	Lock     uint64 // address
	Flags    uint32 // LCB_F_* of the kernel: 1 spin, 2 read, 4 write, 8 rt, 16 percpu, 32 mutex
	OwnerTID int    // 0: not known
	Ret      int
}

// FileLock is FileLockRequest: a task asks for a lock of a file (flock, or fcntl's), or gives it back.
type FileLock struct {
	Inode      uint64
	Dev        uint32
	Ret        int    // 0: done; 1: it waits for it; below: it has it not
	Start, End uint64 // first and last byte; of fcntl
	Flags      uint32 // FL_* of the kernel: 1 fcntl's, 2 flock's, 64 as the file is closed, 128 it may wait, 1024 of an open file
	Type       int    // F_RDLCK, F_WRLCK, F_UNLCK: 0, 1, 2
	PID        int    // process of Event.TID
	HolderPID  int    // a process that has it, of those whose locks are their own; 0: not known
}

// Idle is CPUIdle; State is -1 when the CPU is no longer idle.
type Idle struct {
	State, CPU int
}

// Frequency is CPUFrequency.
type Frequency struct {
	KHz uint32
	CPU int
}

// Net is NetQueue, a packet is handed to a device, or NetReceive, it came from one.
type Net struct {
	SKB     uint64 // address
	Bytes   uint32
	Dev     string
	Context uint32 // NetQueue: not 0 if an interrupt sent it, on top of the task
}

// Napi is NapiPoll.
type Napi struct {
	Work, Budget int // packets
	Dev          string
}

// Throttle is CgroupThrottle or CgroupUnthrottle of one CPU.
type Throttle struct {
	Cgroup uint64
	CPU    int
}

// KVM is KVMEntry or KVMExit (with Reason and IP); Event.TID is the thread of the virtual CPU.
type KVM struct {
	VCPU, Reason uint32
	IP           uint64
}

// Stolen is Steal: the hypervisor took the CPU away for NS nanoseconds
// between Since and the event's time.
type Stolen struct {
	NS    uint64
	Since uint64 // nanoseconds of CLOCK_MONOTONIC
}

// ShortRuns is Interrupts: runs of interrupt handlers or softirqs that were too short to be
// events of their own. If Sampled, softirqs had no events: the interrupt of a timer found the
// CPU in one, and NS is the time since an interrupt before it, in which Count have begun.
type ShortRuns struct {
	Vec     int    // vector of softirqs; -1: interrupt handlers; UnknownVec
	NS      uint64 // they have taken together
	Count   uint32
	Since   uint64 // between that time and the event's; nanoseconds of CLOCK_MONOTONIC
	Sampled bool
	Same    bool // and it is the one of the sample before: it has run all the time
}

// Stack is WaitStack, where Event.TID has waited when it gets a CPU again, Sample, where it is
// while it runs, or RunStack, where it is when it has had its CPU for long.
type Stack struct {
	PID  int
	User bool // in user space, by frame pointers: without them, the innermost frame alone is right
	// Outer: these are further out than those of the event before, of the same time and thread.
	Outer bool
	// Frames are addresses, the innermost first; 0: there are no more.
	Frames [abi.StackFrames]uint64
}

// UnknownVec is ShortRuns.Vec of a softirq of which nothing tells which it is.
const UnknownVec = abi.Softirqs

// TaskState is DumpTask: a task that there was when the trace began.
type TaskState struct {
	TID, PID int
	PPID     int // 0: not known
	Comm     Comm
	Kernel   bool // a kernel thread
	Status   int  // Status…
	CPU      int
}

// Values of TaskState.Status, as LTTng has them.
const (
	StatusRunnable = 2 // waits for a CPU
	StatusWaiting  = 5
	StatusRunning  = 6
)

// FileState is DumpFile: what a file descriptor of a process stands for, from
// that time on.
type FileState struct {
	PID, FD int
	Flags   uint32 // O_… of open(2)
	Name    string
}

// DeviceState is DumpDevice: the name of a disk.
type DeviceState struct {
	Dev  uint32 // major << 20 | minor
	Name string
}

// Marker is OutlierEntry or OutlierExit: an outlier's own start or end.
type Marker struct {
	Rule, Track string
	DelayNS     int64
	PID         int
	Comm        Comm
	Outlier     uint64 // the outlier's number
}

func cutNUL[T string | []byte](s T) T {
	for i := range len(s) {
		if s[i] == 0 {
			return s[:i]
		}
	}
	return s
}
