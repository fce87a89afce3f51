// Code generated from the headers of bpf/abi by bpf/abi/gen; DO NOT EDIT.
//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64 || wasm

package abi

import (
	"structs"
	"unsafe"
)

// enum activity_limits, activity.h.
const (
	ActivityAbi             = 1
	ActivityProcesses       = 1024
	ActivitySharedBytes     = 128
	ActivityAccountBytes    = 512
	ActivityThreadWindow    = 8
	ActivityDefaultThreads  = 256
	ActivityMaxThreads      = 4096
	ActivityDefaultTokens   = 1024
	ActivityMaxTokens       = 0x20000
	ActivityNameLen         = 32
	ActivityTextLen         = 16
	ActivityWords           = 63
	ActivityAttributes      = 256
	ActivityTokenAttributes = 4
	ActivityKeyLen          = 32
	ActivityAttributeLen    = 92
)

// enum activity_hash, activity.h.
const (
	ActivityHash = 0x9e3779b1
)

// enum activity_flags, activity.h.
const (
	ActivityInherit  = 1
	ActivityDeclared = 2
)

// enum activity_group, activity.h.
const (
	ActivityGroupScheduler  = 1
	ActivityGroupBlock      = 2
	ActivityGroupPagecache  = 4
	ActivityGroupNetwork    = 8
	ActivityGroupMemory     = 16
	ActivityGroupWorkqueues = 32
	ActivityGroupSyscalls   = 64
	ActivityGroupHardware   = 128
	ActivityGroupInterrupts = 256
	ActivityGroupLocks      = 512
)

// enum activity_value, activity.h.
const (
	ActivityCpuNs               = 0
	ActivityCpuKernelNs         = 1
	ActivityRunnableNs          = 2
	ActivityRunnablePreemptedNs = 3
	ActivityRunnableWokenNs     = 4
	ActivityRunnableThrottledNs = 5
	ActivityBlockedNs           = 6
	ActivityBlockedDiskNs       = 7
	ActivityBlockedLockNs       = 8
	ActivityBlockedNetworkNs    = 9
	ActivityBlockedTaskNs       = 10
	ActivityBlockedTimerNs      = 11
	ActivityBlockedFaultNs      = 12
	ActivityBlockedReclaimNs    = 13
	ActivityBlockedWorkNs       = 14
	ActivityBlockedOtherNs      = 15
	ActivitySwitches            = 16
	ActivityPreemptions         = 17
	ActivityWakeups             = 18
	ActivitySyscalls            = 19
	ActivitySyscallNs           = 20
	ActivityFaultsMinor         = 21
	ActivityFaultsMajor         = 22
	ActivityFaultNs             = 23
	ActivityCacheHits           = 24
	ActivityCacheMisses         = 25
	ActivityBlockRequests       = 26
	ActivityBlockBytes          = 27
	ActivityBlockQueueNs        = 28
	ActivityBlockDeviceNs       = 29
	ActivityTcpBytesSent        = 30
	ActivityTcpBytesReceived    = 31
	ActivityTcpSegments         = 32
	ActivityTcpRetransmits      = 33
	ActivityNetworkNs           = 34
	ActivityMemoryBytes         = 35
	ActivityWorkItems           = 36
	ActivityWorkNs              = 37
	ActivityWorkBlockedNs       = 38
	ActivityWritebackBytes      = 39
	ActivityEvictedPages        = 40
	ActivityEvictsPages         = 41
	ActivityCycles              = 42
	ActivityInstructions        = 43
	ActivityCacheMissesHw       = 44
	ActivityRunnableStolenNs    = 45
	ActivityBlockedKernelLockNs = 46
	ActivityKernelLocks         = 47
	ActivityKernelLockMutexNs   = 48
	ActivityKernelLockRwsemNs   = 49
	ActivityKernelLockSpinNs    = 50
	ActivityKernelLockRtmutexNs = 51
	ActivityValues              = 52
)

// ActivityHalf is struct activity_half, activity.h.
type ActivityHalf struct {
	_          structs.HostLayout
	Token      uint32
	Generation uint32
	SinceNs    uint64
}

// ActivityThread is struct activity_thread, activity.h.
type ActivityThread struct {
	_    structs.HostLayout
	Tid  uint32
	Seq  uint32
	Half [2]ActivityHalf
	_    [11]uint64
}

// ActivityToken is struct activity_token, activity.h.
type ActivityToken struct {
	_          structs.HostLayout
	Generation uint32
	Flags      uint32
	BeginNs    uint64
	EndNs      uint64
	CpuNs      uint64
	WallNs     uint64
	Value      uint64
	TraceId    [16]uint8
	SpanId     [8]uint8
	Name       [32]byte
	Text       [16]byte
	Attributes [4]uint16
}

// ActivityAttribute is struct activity_attribute, activity.h.
type ActivityAttribute struct {
	_     structs.HostLayout
	State uint32
	Key   [32]byte
	Value [92]byte
}

// enum activity_attribute_state, activity.h.
const (
	ActivityAttributeFree    = 0
	ActivityAttributeClaimed = 1
	ActivityAttributeReady   = 2
)

// ActivityClient is struct activity_client, activity.h.
type ActivityClient struct {
	_                 structs.HostLayout
	NextToken         uint64
	TokensRefused     uint64
	ThreadsRefused    uint64
	AttributesRefused uint64
	_                 [12]uint64
}

// ActivityHeader is struct activity_header, activity.h.
type ActivityHeader struct {
	_         structs.HostLayout
	Abi       uint32
	Threads   uint32
	Tokens    uint32
	Flags     uint32
	Groups    uint32
	Process   uint32
	Late      uint64
	SlowNs    uint64
	MachineNs uint64
	_         [13]uint64
	Unknown   [33]uint64
	_         [12]uint64
}

// ActivityThreadState is struct activity_thread_state, activity.h.
type ActivityThreadState struct {
	_          structs.HostLayout
	Tid        uint32
	Slices     uint32
	SliceNs    uint64
	SeenSeq    uint32
	SeenSlice  uint32
	SeenNs     uint64
	OutNs      uint64
	WakingNs   uint64
	EarlyNs    uint64
	Cause      uint32
	Waker      uint32
	Token      uint32
	Generation uint32
	RuntimeNs  uint64
	AwayNs     uint64
	Counters   [3]uint64
	_          [50]uint64
}

// ActivityAccount is struct activity_account, activity.h.
type ActivityAccount struct {
	_          structs.HostLayout
	Value      [63]uint64
	Generation uint32
	_          uint32
}

// ActivityProcess is struct activity_process, activity.h.
type ActivityProcess struct {
	_           structs.HostLayout
	Serial      uint32
	Threads     uint32
	ThreadShift uint32
	Tokens      uint32
	Flags       uint32
	_           uint32
}

// ActivityOwner is struct activity_owner, activity.h.
type ActivityOwner struct {
	_       structs.HostLayout
	Process uint32
	Serial  uint32
}

// ActivityReference is struct activity_reference, activity.h.
type ActivityReference struct {
	_          structs.HostLayout
	Process    uint32
	Serial     uint32
	Token      uint32
	Generation uint32
}

// enum activity_carried_size, activity.h.
const (
	CarriedElements   = 1024
	EvictedElements   = 256
	EvictedTogetherNs = 0x989680
)

// ActivityCarried is struct activity_carried, activity.h.
type ActivityCarried struct {
	_       structs.HostLayout
	TimeNs  uint64
	SliceNs uint64
	Half    [2]ActivityHalf
	Tid     uint32
	Inside  uint32
	Seq     uint32
	Serial  uint32
}

// ActivityEvicted is struct activity_evicted, activity.h.
type ActivityEvicted struct {
	_         structs.HostLayout
	TimeNs    uint64
	SinceNs   uint64
	EvictedNs uint64
	By        ActivityReference
	Tid       uint32
	ByTid     uint32
	Pages     uint32
	_         [3]uint32
}

// ActivityPublication is struct activity_publication, activity.h.
type ActivityPublication struct {
	_       structs.HostLayout
	Process uint32
	_       uint32
	SlowNs  uint64
}

// enum chain_size, chain.h.
const (
	ChainStages = 12
)

// enum chain_irq, chain.h.
const (
	ChainNoIrq = 0xffffffff
)

// enum chain_from, chain.h.
const (
	ChainFromIrq     = 1
	ChainFromHrtimer = 2
	ChainFromSoftirq = 4
)

// enum chain_end, chain.h.
const (
	ChainEndRun   = 0
	ChainEndUser  = 1
	ChainEndBlock = 2
)

// enum chain_kind, chain.h.
const (
	ChainIrq       = 1
	ChainTimer     = 2
	ChainRaise     = 3
	ChainSoftirq   = 4
	ChainWakeup    = 5
	ChainRun       = 6
	ChainUser      = 7
	ChainPreempted = 8
	ChainLock      = 9
)

// enum chain_packed, chain.h.
const (
	ChainNsMask    = 0xffffffffff
	ChainCpuShift  = 40
	ChainCpuMask   = 0xffff
	ChainKindShift = 56
)

// ChainStage is struct chain_stage, chain.h.
type ChainStage struct {
	_      structs.HostLayout
	Packed uint64
	Id     uint32
	Pid    uint32
	Name   [16]byte
}

// Chain is struct chain, chain.h.
type Chain struct {
	_         structs.HostLayout
	OriginNs  uint64
	From      uint8
	Stages    uint8
	Truncated uint8
	End       uint8
	Tasks     uint16
	Vectors   uint16
	Irq       uint32
	_         uint32
	Stage     [12]ChainStage
}

// ContextPlace is struct context_place, context.h.
type ContextPlace struct {
	_          structs.HostLayout
	StartCode  uint64
	StartStack uint64
	Offset     int64
	Module     uint64
	Vector     int32
	Length     int32
	Entry      uint32
	_          uint32
}

// enum context_kind, context.h.
const (
	ContextWaker   = 0
	ContextRun     = 1
	ContextRequest = 2
)

// ContextKey is struct context_key, context.h.
type ContextKey struct {
	_    structs.HostLayout
	Of   uint32
	Kind uint32
}

// KeptContext is struct kept_context, context.h.
type KeptContext struct {
	_      structs.HostLayout
	TimeNs uint64
	Id     [3]uint64
}

// ContextThread is struct context_thread, context.h.
type ContextThread struct {
	_        structs.HostLayout
	Pointer  uint64
	Pid      uint32
	Tid      uint32
	Switches uint64
	Running  uint32
	_        uint32
	Place    ContextPlace
}

// enum run_history, counters.h.
const (
	RunHistory = 256
	Staged     = 32
)

// WaitStacks is struct wait_stacks, counters.h.
type WaitStacks struct {
	_               structs.HostLayout
	WindowNs        uint64
	Uninterruptible uint64
	Interruptible   uint64
	LeftOut         uint64
	Taken           uint64
	TakenNs         uint64
	TimedNs         uint64
	_               uint64
}

// RunStacks is struct run_stacks, counters.h.
type RunStacks struct {
	_       structs.HostLayout
	LastNs  uint64
	Taken   uint64
	TakenNs uint64
	Broken  uint64
	Calls   uint64
	BusyNs  uint64
	_       [2]uint64
}

// enum in_hrtimer, counters.h.
const (
	HrtimerExpires = 1
	HrtimerWorked  = 2
)

// Spin is struct spin, counters.h.
type Spin struct {
	_       structs.HostLayout
	Lock    uint64
	StartNs uint64
	Tid     uint32
	Flags   uint32
	_       uint64
}

// CpuState is struct cpu_state, counters.h.
type CpuState struct {
	_              structs.HostLayout
	StealSeen      uint64
	StealClock     uint64
	StealLastNs    uint64
	StealBeforeNs  uint64
	Switches       uint32
	Staged         uint32
	LastTid        uint32
	LaterTid       uint32
	Seen           [10]uint64
	TableFull      [10]uint64
	Replaced       [10]uint64
	Unseen         uint64
	Reclaimed      uint64
	HistogramLost  uint64
	CallCrowded    uint64
	AskedNs        uint64
	ChainTruncated uint64
	ChainMet       uint64
	ChainEnded     uint64
	ChainUnseen    uint64
	LaterTimeNs    uint64
	LaterIp        uint64
	LaterSp        uint64
	LaterSwitches  uint32
	LaterFlags     uint32
	InHrtimer      uint32
	HrtimerTid     uint32
	Span           SpanLosses
	Waits          WaitStacks
	Runs           RunStacks
	_              [5]uint64
	TickNs         uint64
	ServedNs       uint64
	Percpu         uint64
	Contended      uint64
	Spins          [2]Spin
	Delays         [32]uint64
	Segments       [256]RunSegment
}

// Forget is struct forget, counters.h.
type Forget struct {
	_   structs.HostLayout
	Tid uint32
}

// enum death_size, death.h.
const (
	DeathArgs = 256
	Deaths    = 1024
	DeathRing = 0x10000
)

// enum death_status, death.h.
const (
	DeathSignal = 127
	DeathDumped = 128
)

// Death is struct death, death.h.
type Death struct {
	_         structs.HostLayout
	SignalNs  uint64
	ExitNs    uint64
	Cgroup    uint64
	Address   uint64
	Pid       uint32
	Tid       uint32
	Uid       uint32
	Code      int32
	Sender    uint32
	Status    uint32
	ArgsBytes uint32
	_         uint32
	Comm      [16]byte
	Args      [256]byte
}

// enum declared_size, declared.h.
const (
	DeclaredRules = 16
	DeclaredText  = 32
)

// DeclaredWork is struct declared_work, declared.h.
type DeclaredWork struct {
	_     structs.HostLayout
	Rule  uint32
	Depth uint32
	Text  [32]uint8
}

// DeclaredTotals is struct declared_totals, declared.h.
type DeclaredTotals struct {
	_        structs.HostLayout
	Count    uint64
	Replaced uint64
	Nested   uint64
	Refused  uint64
	Lost     uint64
	WallNs   uint64
	MaxNs    uint64
	BarNs    uint64
	Value    [63]uint64
	_        uint64
	Bucket   [506]uint64
}

// DeclaredEnded is struct declared_ended, declared.h.
type DeclaredEnded struct {
	_        structs.HostLayout
	Rule     uint32
	Pid      uint32
	Tid      uint32
	Uid      uint32
	CgroupId uint64
	BeginNs  uint64
	EndNs    uint64
	Comm     [16]byte
	Text     [32]uint8
	Value    [63]uint64
}

// DeclaredHook is struct declared_hook, declared.h.
type DeclaredHook struct {
	_     structs.HostLayout
	At    PairHook
	Rule  uint32
	Text  uint32
	Owner ActivityOwner
	Name  [32]byte
}

// enum histogram_size, histogram.h.
const (
	HistogramBuckets = 506
)

// Histogram is struct histogram, histogram.h.
type Histogram struct {
	_         structs.HostLayout
	Bucket    [506]uint64
	Sum       uint64
	Max       uint64
	NotMin    uint64
	Undecided uint64
	_         [2]uint64
}

// enum histogram_by, histogram.h.
const (
	ByNothing  = 0
	ByDevice   = 1
	BySyscall  = 2
	ByCgroup   = 3
	ByOverride = 4
)

// HistogramRule is struct histogram_rule, histogram.h.
type HistogramRule struct {
	_         structs.HostLayout
	Rule      uint32
	Own       uint32
	Classes   uint32
	ClassMask uint32
	Rest      uint32
	By        uint8
	Threads   uint8
	States    uint8
	Ops       uint8
	Preempted uint8
	SomeCalls uint8
	NoCall    uint8
	_         [5]uint8
	Calls     [16]uint64
}

// enum histogram_need, histogram.h.
const (
	NeedTask   = 1
	NeedCgroup = 2
	NeedCall   = 4
	NeedDevice = 8
	NeedName   = 16
)

// HistogramTable is struct histogram_table, histogram.h.
type HistogramTable struct {
	_     structs.HostLayout
	First [10]uint32
	Count [10]uint32
	Needs [10]uint32
}

// BucketOf is struct bucket_of, histogram.h.
type BucketOf struct {
	_     structs.HostLayout
	Value uint64
}

// enum message_type, message.h.
const (
	OutlierType          = 0x7443
	UserMemoryType       = 0x7444
	ProgressType         = 0x7445
	QuestionType         = 0x7446
	GrowType             = 0x7447
	ThreadContextType    = 0x7448
	ThreadAttributesType = 0x7449
)

// enum progress_size, message.h.
const (
	ProgressStacks = 8
	ProgressFrames = 32
)

// enum user_copy_size, message.h.
const (
	UserChunk       = 1024
	UserBytes       = 0x4000
	AttributesBytes = 1024
)

// UserMemory is struct user_memory, message.h.
type UserMemory struct {
	_      structs.HostLayout
	Type   uint16
	_      uint16
	Tid    uint32
	TimeNs uint64
	Base   uint64
	Bytes  uint64
	Data   [16384]uint8
}

// ThreadContext is struct thread_context, message.h.
type ThreadContext struct {
	_       structs.HostLayout
	Type    uint16
	_       uint16
	Tid     uint32
	TimeNs  uint64
	TraceId [16]uint8
	SpanId  [8]uint8
}

// ThreadAttributes is struct thread_attributes, message.h.
type ThreadAttributes struct {
	_          structs.HostLayout
	Type       uint16
	Bytes      uint16
	Tid        uint32
	TimeNs     uint64
	TraceId    [16]uint8
	SpanId     [8]uint8
	Pid        uint32
	_          uint32
	StartCode  uint64
	StartStack uint64
	Data       [1024]uint8
	Again      [1024]uint8
}

// ProgressStack is struct progress_stack, message.h.
type ProgressStack struct {
	_      structs.HostLayout
	AgeNs  uint64
	Frames uint32
	State  uint32
	Kernel [32]uint64
}

// Progress is struct progress, message.h.
type Progress struct {
	_       structs.HostLayout
	Type    uint16
	_       uint16
	Tid     uint32
	StartNs uint64
	Count   uint64
	Stack   [8]ProgressStack
}

// GrowMessage is struct grow_message, message.h.
type GrowMessage struct {
	_     structs.HostLayout
	Type  uint16
	Table uint16
	_     uint32
}

// Question is struct question, message.h.
type Question struct {
	_          structs.HostLayout
	Type       uint16
	Kind       uint16
	Generation uint32
	Id         uint64
	Name       [32]byte
}

// enum ring_owner, message.h.
const (
	RingStacks   = 64
	RingProgress = 65
	RingMessages = 66
	RingOwners   = 67
	RingHeader   = 8
)

// RingUse is struct ring_use, message.h.
type RingUse struct {
	_       structs.HostLayout
	Sent    uint64
	Read    uint64
	Refused uint64
	_       [5]uint64
}

// TaskStack is struct task_stack, message.h.
type TaskStack struct {
	_      structs.HostLayout
	Frames uint64
	Kernel [64]uint64
}

// enum outlier_size, outlier.h.
const (
	MaxStack   = 64
	TopRuns    = 16
	ExtraBytes = 408
	ExtraName  = 16
)

// enum user_reg, outlier.h.
const (
	UserIp    = 0
	UserSp    = 1
	UserSaved = 2
	UserRegs  = 14
)

// enum outlier_cause, outlier.h.
const (
	CauseThreshold    = 0
	CauseTimeout      = 1
	CauseAfterTimeout = 2
)

// enum outlier_flag, outlier.h.
const (
	OutlierPreempted    = 1
	OutlierKthread      = 2
	OutlierSnapshot     = 4
	OutlierFroze        = 8
	OutlierUndecided    = 16
	OutlierNew          = 32
	OutlierUserLater    = 64
	OutlierNoStack      = 128
	OutlierRunning      = 256
	OutlierUser32       = 512
	OutlierContextLater = 1024
)

// enum waker_context, outlier.h.
const (
	WakerTask    = 0
	WakerSoftirq = 0x4000
	WakerIrq     = 0x8000
	WakerHrtimer = 0xc000
	WakerNumber  = 0x3fff
	WakerLocal   = 0x2000
	WakerRemote  = 4096
	WakerSignal  = 0x10000
	WakerThaw    = 0x20000
)

// RunSegment is struct run_segment, outlier.h.
type RunSegment struct {
	_       structs.HostLayout
	StartNs uint64
	Tid     uint32
	Pid     uint32
	Comm    [16]byte
}

// RunTotal is struct run_total, outlier.h.
type RunTotal struct {
	_    structs.HostLayout
	Ns   uint64
	Tid  uint32
	Pid  uint32
	Comm [16]byte
}

// Outlier is struct outlier, outlier.h.
type Outlier struct {
	_            structs.HostLayout
	Type         uint16
	Tracker      uint8
	Cause        uint8
	Flags        uint32
	Rule         uint32
	Generation   uint32
	StartNs      uint64
	TimeNs       uint64
	ThresholdNs  uint64
	Suppressed   uint64
	Tid          uint32
	Pid          uint32
	Uid          uint32
	Cpu          uint32
	CgroupId     uint64
	Comm         [16]byte
	RunnableNs   uint64
	WaitCpu      uint32
	State        uint32
	WakerTid     uint32
	WakerPid     uint32
	WakerComm    [16]byte
	WakerCpu     uint32
	WakerFrames  uint32
	Syscall      int32
	Dev          uint32
	Ret          int64
	Sector       uint64
	QueueNs      uint64
	Bytes        uint32
	CmdFlags     uint32
	Requeues     uint32
	EntryCpu     uint32
	Disk         [32]byte
	Undecided    uint32
	KernelFrames uint32
	Owner        uint32
	WakerContext uint32
	Runs         [16]RunTotal
	UserRegs     [14]uint64
	UserStartNs  uint64
	UserSwitches uint64
	TraceId      [16]uint8
	SpanId       [8]uint8
	Extra        [51]uint64
	WakerTraceId [16]uint8
	WakerSpanId  [8]uint8
	RunTraceId   [16]uint8
	RunSpanId    [8]uint8
	RunTid       uint32
	_            uint32
	Kernel       [64]uint64
	Waker        [64]uint64
}

// IrqExtra is struct irq_extra, outlier.h.
type IrqExtra struct {
	_      structs.HostLayout
	Irq    uint32
	Vector uint32
	Phase  uint32
	_      uint32
	Name   [32]byte
}

// enum pagecache_size, pagecache.h.
const (
	PagecacheNames     = 0x4000
	PagecacheWaiting   = 0x4000
	PagecacheDepth     = 24
	PagecachePath      = 512
	PagecacheComponent = 256
)

// PagecacheKey is struct pagecache_key, pagecache.h.
type PagecacheKey struct {
	_          structs.HostLayout
	Inode      uint64
	Device     uint32
	Generation uint32
}

// PagecacheCounts is struct pagecache_counts, pagecache.h.
type PagecacheCounts struct {
	_       structs.HostLayout
	Lookups uint64
	First   uint64
	Added   uint64
	Written uint64
	Dirtied uint64
	Evicted uint64
	Removed uint64
	StampNs uint64
	Cached  uint64
	Found   uint64
	Batch   uint64
}

// enum pagecache_how, pagecache.h.
const (
	PagecacheKswapd        = 0
	PagecacheDirectReclaim = 1
	PagecacheCgroupReclaim = 2
	PagecachePageout       = 3
	PagecacheInvalidate    = 4
	PagecacheTruncate      = 5
	PagecacheUnlink        = 6
	PagecacheHows          = 7
)

// PagecacheRemoval is struct pagecache_removal, pagecache.h.
type PagecacheRemoval struct {
	_      structs.HostLayout
	File   PagecacheKey
	Cgroup uint64
	Owner  uint64
	Pid    uint32
	How    uint32
	Comm   [16]byte
	By     ActivityReference
}

// enum pagecache_whole, pagecache.h.
const (
	PagecacheWhole = 1
	PagecacheDisk  = 2
)

// PagecacheName is struct pagecache_name, pagecache.h.
type PagecacheName struct {
	_     structs.HostLayout
	Bytes uint32
	Whole uint32
	Text  [768]byte
}

// enum pair_size, pair.h.
const (
	MaxPairs       = 64
	PairParts      = 3
	PairLabels     = 4
	PairText       = 32
	PairConditions = 4
	PairScratches  = 4
	FetchLoads     = 5
)

// enum pair_rule, pair.h.
const (
	NoRule = 0xffffffff
)

// enum pair_role, pair.h.
const (
	PairEntry  = 0
	PairExit   = 1
	PairCancel = 2
)

// enum pair_policy, pair.h.
const (
	PairRestart = 0
	PairKeep    = 1
	PairCount   = 2
)

// enum fetch_base, pair.h.
const (
	FetchNone     = 0
	FetchTid      = 1
	FetchPid      = 2
	FetchUid      = 3
	FetchCpu      = 4
	FetchArgument = 5
	FetchReturn   = 6
	FetchRegister = 7
	FetchRecord   = 8
	FetchInside   = 9
	FetchDataLoc  = 10
	FetchConstant = 11
)

// enum fetch_text, pair.h.
const (
	FetchNumber = 0
	FetchString = 1
	FetchBytes  = 2
)

// Fetch is struct fetch, pair.h.
type Fetch struct {
	_        structs.HostLayout
	Base     uint8
	Loads    uint8
	User     uint8
	Text     uint8
	Bytes    uint8
	Left     uint8
	Right    uint8
	Sign     uint8
	Index    uint32
	Offset   [6]int32
	_        uint32
	Constant uint64
}

// enum pair_operator, pair.h.
const (
	OperatorEq  = 1
	OperatorNe  = 2
	OperatorLt  = 3
	OperatorLe  = 4
	OperatorGt  = 5
	OperatorGe  = 6
	OperatorAnd = 7
)

// PairCondition is struct pair_condition, pair.h.
type PairCondition struct {
	_     structs.HostLayout
	What  Fetch
	Op    uint32
	Sign  uint32
	Value int64
}

// PairHook is struct pair_hook, pair.h.
type PairHook struct {
	_         structs.HostLayout
	Pair      uint32
	Role      uint32
	Policy    uint32
	OwnTask   uint32
	Part      [3]Fetch
	Condition [4]PairCondition
	Label     [4]Fetch
}

// PairSlot is struct pair_slot, pair.h.
type PairSlot struct {
	_        structs.HostLayout
	StartNs  uint64
	Part     [3]uint64
	Task     uint64
	Tid      uint32
	Pid      uint32
	Pair     uint32
	Depth    uint32
	Uid      uint32
	Cpu      uint32
	CgroupId uint64
	Comm     [16]byte
	Deadline Deadline
	Kthread  uint32
	OwnTask  uint32
	Label    [4][32]uint8
}

// PairExtra is struct pair_extra, pair.h.
type PairExtra struct {
	_         structs.HostLayout
	Part      [3]uint64
	Label     [4][32]uint8
	EntryTid  uint32
	EntryPid  uint32
	EntryComm [16]byte
	Pair      uint32
	NoExit    uint32
}

// PairState is struct pair_state, pair.h.
type PairState struct {
	_         structs.HostLayout
	Seen      uint64
	Cancelled uint64
	Replaced  uint64
	Kept      uint64
	Nested    uint64
	Full      uint64
	Unsettled uint64
	Unread    uint64
	Crowded   uint64
	Forgotten uint64
	Missed    uint64
	_         [5]uint64
}

// enum record_size, record.h.
const (
	RecordSize    = 64
	ShortSize     = 32
	RecordNameLen = 24
	SyscallArgs   = 5
	StackFrames   = 7
)

// enum record_type, record.h.
const (
	RecSwitch          = 1
	RecWaking          = 2
	RecWakeupNew       = 3
	RecMigrate         = 4
	RecIrqEntry        = 5
	RecIrqExit         = 6
	RecSoftirqEntry    = 7
	RecSoftirqExit     = 8
	RecHrtimerEntry    = 9
	RecHrtimerExit     = 10
	RecBlockInsert     = 11
	RecBlockIssue      = 12
	RecBlockComplete   = 13
	RecWorkStart       = 14
	RecWorkEnd         = 15
	RecFork            = 16
	RecExec            = 17
	RecExit            = 18
	RecSyscallEntry    = 19
	RecSyscallExit     = 20
	RecWorkQueue       = 21
	RecTimerEntry      = 22
	RecTimerExit       = 23
	RecFaultUser       = 24
	RecFaultKernel     = 25
	RecReclaimBegin    = 26
	RecReclaimEnd      = 27
	RecCompactionBegin = 28
	RecCompactionEnd   = 29
	RecLockBegin       = 30
	RecLockEnd         = 31
	RecCpuIdle         = 32
	RecCpuFrequency    = 33
	RecNetQueue        = 34
	RecNetReceive      = 35
	RecNapiPoll        = 36
	RecThrottle        = 37
	RecUnthrottle      = 38
	RecKvmEntry        = 39
	RecKvmExit         = 40
	RecSteal           = 41
	RecInterrupts      = 42
	RecIrq             = 43
	RecSoftirq         = 44
	RecWait            = 45
	RecSample          = 46
	RecRun             = 47
	RecFileLock        = 48
	RecLockSpin        = 49
	RecTick            = 50
	RecordTypes        = 51
)

// enum record_form, record.h.
const (
	RecordShort = 0x8000
)

// RecordSwitch is struct record_switch, record.h.
type RecordSwitch struct {
	_         structs.HostLayout
	PrevComm  [16]byte
	NextComm  [16]byte
	NextTid   uint32
	NextPid   uint32
	PrevPrio  int16
	NextPrio  int16
	PrevState uint32
}

// enum prev_state, record.h.
const (
	PrevState      = 0x1ffff
	PrevCallShift  = 17
	PrevCallMask   = 2047
	PrevException  = 2047
	PrevFutex      = 1536
	PrevFutexPlace = 1664
	PrevFrozen     = 0x10000000
	PrevIowait     = 0x20000000
	PrevThrottled  = 0x40000000
	PrevPreempted  = 0x80000000
)

// enum futex_wait, record.h.
const (
	FutexIsWait     = 0
	FutexIsBitset   = 1
	FutexIsLockPi   = 2
	FutexIsRequeue  = 3
	FutexKind       = 3
	FutexShared     = 4
	FutexTimed      = 8
	FutexValueShift = 4
	FutexValueOther = 4
	FutexWaits      = 128
)

// enum futex_place, record.h.
const (
	FutexPlaceBits  = 5
	FutexPlaceTimed = 32
	FutexPlaceValue = 64
	FutexPlaces     = 320
)

// RecordWake is struct record_wake, record.h.
type RecordWake struct {
	_         structs.HostLayout
	Comm      [16]byte
	Tid       uint32
	Pid       uint32
	Prio      int32
	TargetCpu int32
	Context   uint32
	_         [12]uint8
}

// RecordMigrate is struct record_migrate, record.h.
type RecordMigrate struct {
	_       structs.HostLayout
	Comm    [16]byte
	Tid     uint32
	Prio    int32
	OrigCpu int32
	DestCpu int32
	_       [16]uint8
}

// RecordIrq is struct record_irq, record.h.
type RecordIrq struct {
	_       structs.HostLayout
	Irq     int32
	Ret     int32
	Name    [32]byte
	StartNs uint64
}

// RecordSoftirq is struct record_softirq, record.h.
type RecordSoftirq struct {
	_       structs.HostLayout
	Vec     uint32
	Irq     int32
	StartNs uint64
	_       [32]uint8
}

// enum interrupts_vec, record.h.
const (
	InterruptsIrq = 0xffffffff
)

// enum interrupts_sampled, record.h.
const (
	InterruptsSampled = 1
	InterruptsSame    = 2
)

// RecordInterrupts is struct record_interrupts, record.h.
type RecordInterrupts struct {
	_       structs.HostLayout
	SinceNs uint64
	TotalNs uint32
	Count   uint32
	Vec     uint32
	Sampled uint32
	_       [24]uint8
}

// RecordHrtimer is struct record_hrtimer, record.h.
type RecordHrtimer struct {
	_        structs.HostLayout
	Hrtimer  uint64
	Function uint64
	Now      int64
	_        [24]uint8
}

// RecordBlock is struct record_block, record.h.
type RecordBlock struct {
	_        structs.HostLayout
	Rq       uint64
	Sector   uint64
	Dev      uint32
	Bytes    uint32
	CmdFlags uint32
	Error    int32
	Comm     [16]byte
}

// RecordWork is struct record_work, record.h.
type RecordWork struct {
	_        structs.HostLayout
	Work     uint64
	Function uint64
	_        [32]uint8
}

// RecordProcess is struct record_process, record.h.
type RecordProcess struct {
	_         structs.HostLayout
	Comm      [16]byte
	ChildComm [16]byte
	Pid       uint32
	ChildTid  uint32
	ChildPid  uint32
	Prio      int32
}

// RecordSyscall is struct record_syscall, record.h.
type RecordSyscall struct {
	_    structs.HostLayout
	Nr   uint32
	Pid  uint32
	Args [5]uint64
}

// RecordWorkQueue is struct record_work_queue, record.h.
type RecordWorkQueue struct {
	_        structs.HostLayout
	Work     uint64
	Function uint64
	Name     [24]byte
	ReqCpu   int32
	Context  uint32
}

// enum tcp_timer, record.h.
const (
	TcpTimerNone       = 0
	TcpTimerRetransmit = 1
	TcpTimerDelack     = 2
	TcpTimerProbe      = 3
	TcpTimerCork       = 4
	TcpTimerLossProbe  = 5
	TcpTimerReorder    = 6
	TcpTimerKeepalive  = 7
	TcpTimer           = 255
	TcpStateShift      = 8
	TcpListener        = 0x10000
)

// RecordTimer is struct record_timer, record.h.
type RecordTimer struct {
	_           structs.HostLayout
	Timer       uint64
	Function    uint64
	Now         uint64
	Waiter      uint32
	Address     uint32
	Port        uint32
	Tcp         uint32
	AcceptQueue uint32
	AcceptLimit uint32
}

// RecordFault is struct record_fault, record.h.
type RecordFault struct {
	_         structs.HostLayout
	Address   uint64
	Ip        uint64
	ErrorCode uint64
	_         [24]uint8
}

// enum reclaim_kind, record.h.
const (
	ReclaimDirect = 0
	ReclaimMemcg  = 1
)

// RecordReclaim is struct record_reclaim, record.h.
type RecordReclaim struct {
	_         structs.HostLayout
	Reclaimed uint64
	Kind      uint32
	Order     int32
	Sync      uint32
	Status    int32
	_         [24]uint8
}

// RecordLock is struct record_lock, record.h.
type RecordLock struct {
	_        structs.HostLayout
	Lock     uint64
	Flags    uint32
	OwnerTid uint32
	Ret      int32
	_        uint32
	StartNs  uint64
	_        [16]uint8
}

// RecordFileLock is struct record_file_lock, record.h.
type RecordFileLock struct {
	_         structs.HostLayout
	Inode     uint64
	Device    uint32
	Ret       int32
	Start     uint64
	End       uint64
	Flags     uint32
	Type      uint32
	Pid       uint32
	HolderPid uint32
}

// RecordPower is struct record_power, record.h.
type RecordPower struct {
	_     structs.HostLayout
	State uint32
	Cpu   uint32
	_     [40]uint8
}

// RecordNet is struct record_net, record.h.
type RecordNet struct {
	_       structs.HostLayout
	Skb     uint64
	Bytes   uint32
	Work    int32
	Budget  int32
	Context uint32
	Dev     [24]byte
}

// RecordThrottle is struct record_throttle, record.h.
type RecordThrottle struct {
	_      structs.HostLayout
	Cgroup uint64
	Cpu    uint32
	_      [36]uint8
}

// RecordKvm is struct record_kvm, record.h.
type RecordKvm struct {
	_      structs.HostLayout
	Vcpu   uint32
	Reason uint32
	Ip     uint64
	_      [32]uint8
}

// RecordSteal is struct record_steal, record.h.
type RecordSteal struct {
	_        structs.HostLayout
	StolenNs uint64
	SinceNs  uint64
	_        [32]uint8
}

// enum stack_kind, record.h.
const (
	StackKernel = 1
	StackUser   = 2
	StackOuter  = 3
)

// RecordStack is struct record_stack, record.h.
type RecordStack struct {
	_    structs.HostLayout
	Pid  uint32
	Kind uint16
	High [7]uint16
	Low  [7]uint32
}

// Record is struct record, record.h.
type Record struct {
	_      structs.HostLayout
	Type   uint16
	Cpu    uint16
	Tid    uint32
	TimeNs uint64
	Raw    [6]uint64
}

// Offsets in struct record, of its own members and of those of its bodies.
const (
	OffType              = int(unsafe.Offsetof(Record{}.Type))
	OffCpu               = int(unsafe.Offsetof(Record{}.Cpu))
	OffTid               = int(unsafe.Offsetof(Record{}.Tid))
	OffTimeNs            = int(unsafe.Offsetof(Record{}.TimeNs))
	OffRaw               = int(unsafe.Offsetof(Record{}.Raw))
	OffSwitchPrevComm    = OffRaw + int(unsafe.Offsetof(RecordSwitch{}.PrevComm))
	OffSwitchNextComm    = OffRaw + int(unsafe.Offsetof(RecordSwitch{}.NextComm))
	OffSwitchNextTid     = OffRaw + int(unsafe.Offsetof(RecordSwitch{}.NextTid))
	OffSwitchNextPid     = OffRaw + int(unsafe.Offsetof(RecordSwitch{}.NextPid))
	OffSwitchPrevPrio    = OffRaw + int(unsafe.Offsetof(RecordSwitch{}.PrevPrio))
	OffSwitchNextPrio    = OffRaw + int(unsafe.Offsetof(RecordSwitch{}.NextPrio))
	OffSwitchPrevState   = OffRaw + int(unsafe.Offsetof(RecordSwitch{}.PrevState))
	OffWakeComm          = OffRaw + int(unsafe.Offsetof(RecordWake{}.Comm))
	OffWakeTid           = OffRaw + int(unsafe.Offsetof(RecordWake{}.Tid))
	OffWakePid           = OffRaw + int(unsafe.Offsetof(RecordWake{}.Pid))
	OffWakePrio          = OffRaw + int(unsafe.Offsetof(RecordWake{}.Prio))
	OffWakeTargetCpu     = OffRaw + int(unsafe.Offsetof(RecordWake{}.TargetCpu))
	OffWakeContext       = OffRaw + int(unsafe.Offsetof(RecordWake{}.Context))
	OffMigrateComm       = OffRaw + int(unsafe.Offsetof(RecordMigrate{}.Comm))
	OffMigrateTid        = OffRaw + int(unsafe.Offsetof(RecordMigrate{}.Tid))
	OffMigratePrio       = OffRaw + int(unsafe.Offsetof(RecordMigrate{}.Prio))
	OffMigrateOrigCpu    = OffRaw + int(unsafe.Offsetof(RecordMigrate{}.OrigCpu))
	OffMigrateDestCpu    = OffRaw + int(unsafe.Offsetof(RecordMigrate{}.DestCpu))
	OffIrqIrq            = OffRaw + int(unsafe.Offsetof(RecordIrq{}.Irq))
	OffIrqRet            = OffRaw + int(unsafe.Offsetof(RecordIrq{}.Ret))
	OffIrqName           = OffRaw + int(unsafe.Offsetof(RecordIrq{}.Name))
	OffIrqStartNs        = OffRaw + int(unsafe.Offsetof(RecordIrq{}.StartNs))
	OffSoftirqVec        = OffRaw + int(unsafe.Offsetof(RecordSoftirq{}.Vec))
	OffSoftirqIrq        = OffRaw + int(unsafe.Offsetof(RecordSoftirq{}.Irq))
	OffSoftirqStartNs    = OffRaw + int(unsafe.Offsetof(RecordSoftirq{}.StartNs))
	OffHrtimerHrtimer    = OffRaw + int(unsafe.Offsetof(RecordHrtimer{}.Hrtimer))
	OffHrtimerFunction   = OffRaw + int(unsafe.Offsetof(RecordHrtimer{}.Function))
	OffHrtimerNow        = OffRaw + int(unsafe.Offsetof(RecordHrtimer{}.Now))
	OffBlockRq           = OffRaw + int(unsafe.Offsetof(RecordBlock{}.Rq))
	OffBlockSector       = OffRaw + int(unsafe.Offsetof(RecordBlock{}.Sector))
	OffBlockDev          = OffRaw + int(unsafe.Offsetof(RecordBlock{}.Dev))
	OffBlockBytes        = OffRaw + int(unsafe.Offsetof(RecordBlock{}.Bytes))
	OffBlockCmdFlags     = OffRaw + int(unsafe.Offsetof(RecordBlock{}.CmdFlags))
	OffBlockError        = OffRaw + int(unsafe.Offsetof(RecordBlock{}.Error))
	OffBlockComm         = OffRaw + int(unsafe.Offsetof(RecordBlock{}.Comm))
	OffWorkWork          = OffRaw + int(unsafe.Offsetof(RecordWork{}.Work))
	OffWorkFunction      = OffRaw + int(unsafe.Offsetof(RecordWork{}.Function))
	OffProcessComm       = OffRaw + int(unsafe.Offsetof(RecordProcess{}.Comm))
	OffProcessChildComm  = OffRaw + int(unsafe.Offsetof(RecordProcess{}.ChildComm))
	OffProcessPid        = OffRaw + int(unsafe.Offsetof(RecordProcess{}.Pid))
	OffProcessChildTid   = OffRaw + int(unsafe.Offsetof(RecordProcess{}.ChildTid))
	OffProcessChildPid   = OffRaw + int(unsafe.Offsetof(RecordProcess{}.ChildPid))
	OffProcessPrio       = OffRaw + int(unsafe.Offsetof(RecordProcess{}.Prio))
	OffSyscallNr         = OffRaw + int(unsafe.Offsetof(RecordSyscall{}.Nr))
	OffSyscallPid        = OffRaw + int(unsafe.Offsetof(RecordSyscall{}.Pid))
	OffSyscallArgs       = OffRaw + int(unsafe.Offsetof(RecordSyscall{}.Args))
	OffSyscallRet        = OffRaw + int(unsafe.Offsetof(RecordSyscall{}.Args))
	OffWorkQueueWork     = OffRaw + int(unsafe.Offsetof(RecordWorkQueue{}.Work))
	OffWorkQueueFunction = OffRaw + int(unsafe.Offsetof(RecordWorkQueue{}.Function))
	OffWorkQueueName     = OffRaw + int(unsafe.Offsetof(RecordWorkQueue{}.Name))
	OffWorkQueueReqCpu   = OffRaw + int(unsafe.Offsetof(RecordWorkQueue{}.ReqCpu))
	OffWorkQueueContext  = OffRaw + int(unsafe.Offsetof(RecordWorkQueue{}.Context))
	OffTimerTimer        = OffRaw + int(unsafe.Offsetof(RecordTimer{}.Timer))
	OffTimerFunction     = OffRaw + int(unsafe.Offsetof(RecordTimer{}.Function))
	OffTimerNow          = OffRaw + int(unsafe.Offsetof(RecordTimer{}.Now))
	OffTimerWaiter       = OffRaw + int(unsafe.Offsetof(RecordTimer{}.Waiter))
	OffTimerAddress      = OffRaw + int(unsafe.Offsetof(RecordTimer{}.Address))
	OffTimerPort         = OffRaw + int(unsafe.Offsetof(RecordTimer{}.Port))
	OffTimerTcp          = OffRaw + int(unsafe.Offsetof(RecordTimer{}.Tcp))
	OffTimerAcceptQueue  = OffRaw + int(unsafe.Offsetof(RecordTimer{}.AcceptQueue))
	OffTimerAcceptLimit  = OffRaw + int(unsafe.Offsetof(RecordTimer{}.AcceptLimit))
	OffFaultAddress      = OffRaw + int(unsafe.Offsetof(RecordFault{}.Address))
	OffFaultIp           = OffRaw + int(unsafe.Offsetof(RecordFault{}.Ip))
	OffFaultErrorCode    = OffRaw + int(unsafe.Offsetof(RecordFault{}.ErrorCode))
	OffReclaimReclaimed  = OffRaw + int(unsafe.Offsetof(RecordReclaim{}.Reclaimed))
	OffReclaimKind       = OffRaw + int(unsafe.Offsetof(RecordReclaim{}.Kind))
	OffReclaimOrder      = OffRaw + int(unsafe.Offsetof(RecordReclaim{}.Order))
	OffReclaimSync       = OffRaw + int(unsafe.Offsetof(RecordReclaim{}.Sync))
	OffReclaimStatus     = OffRaw + int(unsafe.Offsetof(RecordReclaim{}.Status))
	OffLockLock          = OffRaw + int(unsafe.Offsetof(RecordLock{}.Lock))
	OffLockFlags         = OffRaw + int(unsafe.Offsetof(RecordLock{}.Flags))
	OffLockOwnerTid      = OffRaw + int(unsafe.Offsetof(RecordLock{}.OwnerTid))
	OffLockRet           = OffRaw + int(unsafe.Offsetof(RecordLock{}.Ret))
	OffLockStartNs       = OffRaw + int(unsafe.Offsetof(RecordLock{}.StartNs))
	OffFileLockInode     = OffRaw + int(unsafe.Offsetof(RecordFileLock{}.Inode))
	OffFileLockDevice    = OffRaw + int(unsafe.Offsetof(RecordFileLock{}.Device))
	OffFileLockRet       = OffRaw + int(unsafe.Offsetof(RecordFileLock{}.Ret))
	OffFileLockStart     = OffRaw + int(unsafe.Offsetof(RecordFileLock{}.Start))
	OffFileLockEnd       = OffRaw + int(unsafe.Offsetof(RecordFileLock{}.End))
	OffFileLockFlags     = OffRaw + int(unsafe.Offsetof(RecordFileLock{}.Flags))
	OffFileLockType      = OffRaw + int(unsafe.Offsetof(RecordFileLock{}.Type))
	OffFileLockPid       = OffRaw + int(unsafe.Offsetof(RecordFileLock{}.Pid))
	OffFileLockHolderPid = OffRaw + int(unsafe.Offsetof(RecordFileLock{}.HolderPid))
	OffPowerState        = OffRaw + int(unsafe.Offsetof(RecordPower{}.State))
	OffPowerCpu          = OffRaw + int(unsafe.Offsetof(RecordPower{}.Cpu))
	OffNetSkb            = OffRaw + int(unsafe.Offsetof(RecordNet{}.Skb))
	OffNetBytes          = OffRaw + int(unsafe.Offsetof(RecordNet{}.Bytes))
	OffNetWork           = OffRaw + int(unsafe.Offsetof(RecordNet{}.Work))
	OffNetBudget         = OffRaw + int(unsafe.Offsetof(RecordNet{}.Budget))
	OffNetContext        = OffRaw + int(unsafe.Offsetof(RecordNet{}.Context))
	OffNetDev            = OffRaw + int(unsafe.Offsetof(RecordNet{}.Dev))
	OffThrottleCgroup    = OffRaw + int(unsafe.Offsetof(RecordThrottle{}.Cgroup))
	OffThrottleCpu       = OffRaw + int(unsafe.Offsetof(RecordThrottle{}.Cpu))
	OffKvmVcpu           = OffRaw + int(unsafe.Offsetof(RecordKvm{}.Vcpu))
	OffKvmReason         = OffRaw + int(unsafe.Offsetof(RecordKvm{}.Reason))
	OffKvmIp             = OffRaw + int(unsafe.Offsetof(RecordKvm{}.Ip))
	OffStealStolenNs     = OffRaw + int(unsafe.Offsetof(RecordSteal{}.StolenNs))
	OffStealSinceNs      = OffRaw + int(unsafe.Offsetof(RecordSteal{}.SinceNs))
	OffInterruptsSinceNs = OffRaw + int(unsafe.Offsetof(RecordInterrupts{}.SinceNs))
	OffInterruptsTotalNs = OffRaw + int(unsafe.Offsetof(RecordInterrupts{}.TotalNs))
	OffInterruptsCount   = OffRaw + int(unsafe.Offsetof(RecordInterrupts{}.Count))
	OffInterruptsVec     = OffRaw + int(unsafe.Offsetof(RecordInterrupts{}.Vec))
	OffInterruptsSampled = OffRaw + int(unsafe.Offsetof(RecordInterrupts{}.Sampled))
	OffStackPid          = OffRaw + int(unsafe.Offsetof(RecordStack{}.Pid))
	OffStackKind         = OffRaw + int(unsafe.Offsetof(RecordStack{}.Kind))
	OffStackHigh         = OffRaw + int(unsafe.Offsetof(RecordStack{}.High))
	OffStackLow          = OffRaw + int(unsafe.Offsetof(RecordStack{}.Low))
)

// ShortSwitch is struct short_switch, record.h.
type ShortSwitch struct {
	_         structs.HostLayout
	NextTid   uint32
	NextPid   uint32
	PrevPrio  int16
	NextPrio  int16
	PrevState uint32
}

// ShortWake is struct short_wake, record.h.
type ShortWake struct {
	_         structs.HostLayout
	Tid       uint32
	Pid       uint32
	Prio      int16
	TargetCpu uint16
	Context   uint32
}

// ShortRecord is struct short_record, record.h.
type ShortRecord struct {
	_      structs.HostLayout
	Type   uint16
	Cpu    uint16
	Tid    uint32
	TimeNs uint64
	Raw    [2]uint64
}

// enum names_size, record.h.
const (
	NamesKept = 4
)

// NameSince is struct name_since, record.h.
type NameSince struct {
	_       structs.HostLayout
	SinceNs uint64
	Comm    [16]byte
}

// TaskName is struct task_name, record.h.
type TaskName struct {
	_     structs.HostLayout
	Names [4]NameSince
}

// enum ring_size, recorder.h.
const (
	RingParts     = 16
	RingKept      = 10
	RingLive      = 4
	RingPartShift = 8
)

// enum record_lap, recorder.h.
const (
	RecordLapShift = 16
	RecordLapMask  = 0xffff
)

// RecordRing is struct record_ring, recorder.h.
type RecordRing struct {
	_         structs.HostLayout
	Position  [2]uint64
	Slot      [2]uint64
	Lost      uint64
	Pinned    uint64
	PinnedFor uint64
	Half      uint32
	HalfPart  uint32
	Held      [16]uint64
}

// Release is struct release, recorder.h.
type Release struct {
	_       structs.HostLayout
	Freezes uint64
}

// RecorderState is struct recorder_state, recorder.h.
type RecorderState struct {
	_        structs.HostLayout
	Bank     uint32
	Frozen   uint32
	FrozenNs uint64
	Freezes  uint64
	Released uint64
	_        [4]uint64
}

// enum rule_size, rule.h.
const (
	MaxRules     = 64
	MaxOverrides = 256
	MaxGlobs     = 512
)

// enum match_field, rule.h.
const (
	MatchComm       = 1
	MatchNotComm    = 2
	MatchPid        = 4
	MatchNotPid     = 8
	MatchUid        = 16
	MatchNotUid     = 32
	MatchCgroup     = 64
	MatchNotCgroup  = 128
	MatchSyscall    = 256
	MatchNotSyscall = 512
	MatchDevice     = 1024
	MatchNotDevice  = 2048
	MatchOp         = 4096
	MatchState      = 0x2000
	MatchThread     = 0x4000
	MatchPreempted  = 0x8000
	MatchIrq        = 0x10000
	MatchNotIrq     = 0x20000
	MatchName       = 0x40000
	MatchNotName    = 0x80000
	MatchVector     = 0x100000
	MatchPhase      = 0x200000
	MatchCpu        = 0x400000
	MatchNotCpu     = 0x800000
	MatchFrom       = 0x1000000
	MatchEnd        = 0x2000000
	MatchTid        = 0x4000000
	MatchNotTid     = 0x8000000
	MatchSector     = 0x10000000
	MatchKey        = 0x20000000
	MatchNotKey     = 0x40000000
	MatchFunction   = 0x80000000
)

// enum op_bit, rule.h.
const (
	OpRead    = 1
	OpWrite   = 2
	OpFlush   = 4
	OpDiscard = 8
	OpOther   = 16
)

// enum state_bit, rule.h.
const (
	StateInterruptible   = 1
	StateUninterruptible = 2
	StateOther           = 4
)

// enum thread_bit, rule.h.
const (
	ThreadUser   = 1
	ThreadKernel = 2
)

// GlobRange is struct glob_range, rule.h.
type GlobRange struct {
	_     structs.HostLayout
	First uint16
	Count uint16
}

// Conditions is struct conditions, rule.h.
type Conditions struct {
	_             structs.HostLayout
	Fields        uint32
	Comm          GlobRange
	NotComm       GlobRange
	PidSet        uint16
	NotPidSet     uint16
	UidSet        uint16
	NotUidSet     uint16
	SyscallSet    uint16
	NotSyscallSet uint16
	Cgroups       uint64
	NotCgroups    uint64
	Devices       uint64
	NotDevices    uint64
	Ops           uint8
	States        uint8
	Threads       uint8
	Preempted     uint8
	Vectors       uint32
	Names         uint64
	NotNames      uint64
	IrqSet        uint16
	NotIrqSet     uint16
	CpuSet        uint16
	NotCpuSet     uint16
	Phases        uint8
	From          uint8
	Ends          uint8
	_             uint8
	TidSet        uint16
	NotTidSet     uint16
	FirstSector   uint64
	LastSector    uint64
	Key           GlobRange
	NotKey        GlobRange
	Functions     uint64
	NotFunctions  uint64
}

// Rule is struct rule, rule.h.
type Rule struct {
	_             structs.HostLayout
	ThresholdNs   uint64
	When          Conditions
	FirstOverride uint16
	Overrides     uint16
	Tracker       uint8
	UserStack     uint8
	KernelStack   uint8
	Snapshot      uint8
	EveryNs       uint64
	AllowNs       uint64
	TimeoutNs     uint64
	RepeatNs      uint64
	Progress      uint8
	Id            uint8
	Ratchet       uint8
	Adaptive      uint8
	Paused        uint8
	_             [11]uint8
}

// Override is struct override, rule.h.
type Override struct {
	_           structs.HostLayout
	ThresholdNs uint64
	TimeoutNs   uint64
	Histogram   uint32
	Adaptive    uint32
	When        Conditions
}

// Glob is struct glob, rule.h.
type Glob struct {
	_       structs.HostLayout
	Pattern [16]byte
}

// SetKey is struct set_key, rule.h.
type SetKey struct {
	_     structs.HostLayout
	Set   uint32
	Value uint32
}

// enum verdict_kind, rule.h.
const (
	VerdictCgroup   = 0
	VerdictDevice   = 1
	VerdictName     = 2
	VerdictFunction = 3
)

// enum name_hash, rule.h.
const (
	NameHashFactor = 0x9e3779b97f4a7c15
	NameHashShift  = 29
)

// VerdictKey is struct verdict_key, rule.h.
type VerdictKey struct {
	_          structs.HostLayout
	Id         uint64
	Kind       uint32
	Generation uint32
}

// RuleTable is struct rule_table, rule.h.
type RuleTable struct {
	_     structs.HostLayout
	First [10]uint32
	Count [10]uint32
}

// RuleState is struct rule_state, rule.h.
type RuleState struct {
	_              structs.HostLayout
	LimitNs        uint64
	Outliers       uint64
	WorstNs        uint64
	RecordNs       uint64
	Suppressed     uint64
	SuppressedLast uint64
	RingFull       uint64
	Undecided      uint64
	BurstFull      uint64
	BurstLevel     uint64
	HeldBack       uint64
	BucketNs       uint64
	AskedNs        uint64
	Limited        uint64
	_              [2]uint64
}

// RatchetCall is struct ratchet_call, rule.h.
type RatchetCall struct {
	_       structs.HostLayout
	DelayNs uint64
	Id      uint32
	_       uint32
}

// enum span_operation, span.h.
const (
	SpanSyscall = 439
	SpanMode    = 0x74630000
	SpanBegin   = 1
	SpanEnd     = 2
)

// enum span_size, span.h.
const (
	SpanPathLen = 16
	SpanKeyLen  = 64
	MaxKeyGlobs = 128
)

// KeyGlob is struct key_glob, span.h.
type KeyGlob struct {
	_       structs.HostLayout
	Pattern [64]byte
}

// SpanExtra is struct span_extra, span.h.
type SpanExtra struct {
	_    structs.HostLayout
	Key  [64]byte
	Comm [16]byte
	Tid  uint32
	Pid  uint32
	Gone uint32
	_    uint32
}

// SpanSlot is struct span_slot, span.h.
type SpanSlot struct {
	_        structs.HostLayout
	StartNs  uint64
	Key      [8]uint64
	Uid      uint32
	Ns       uint32
	Task     uint64
	Tid      uint32
	Pid      uint32
	Cpu      uint32
	Owner    uint32
	CgroupId uint64
	Comm     [16]byte
	Deadline Deadline
	_        [4]uint64
}

// SpanLosses is struct span_losses, span.h.
type SpanLosses struct {
	_         structs.HostLayout
	Unknown   uint64
	BadKey    uint64
	Forgotten uint64
	Outvied   uint64
	Expired   uint64
}

// enum table_kind, table.h.
const (
	TableTasks    = 0
	TableCalls    = 1
	TableRequests = 2
	TablePairs    = 3
	TableSpans    = 4
	TableWorks    = 5
	Tables        = 6
)

// enum table_size, table.h.
const (
	BucketKeys   = 8
	Segments     = 4
	SegmentShift = 28
	ChunkBuckets = 512
	MaxChunks    = 256
)

// Bucket is struct bucket, table.h.
type Bucket struct {
	_   structs.HostLayout
	Key [8]uint64
}

// Deadline is struct deadline, table.h.
type Deadline struct {
	_      structs.HostLayout
	ForNs  uint64
	Fired  uint64
	DueNs  uint64
	SeenNs uint64
}

// Growth is struct growth, table.h.
type Growth struct {
	_        structs.HostLayout
	Segments uint32
	Wanted   uint32
	Mask     [4]uint32
	Chunks   [4]uint32
}

// Chunk is struct chunk, table.h.
type Chunk struct {
	_          structs.HostLayout
	DueNs      uint64
	ScanNs     uint64
	Generation uint32
	_          uint32
}

// enum heartbeat, table.h.
const (
	LookMs      = 1200
	LooksFromMs = 1800
)

// TickState is struct tick_state, table.h.
type TickState struct {
	_           structs.HostLayout
	Ticks       uint64
	Scans       uint64
	Late        uint64
	LatestNs    uint64
	Truncated   uint64
	NextNs      uint64
	Busy        uint64
	SoonestNs   uint64
	ScanNs      uint64
	SoFarNs     uint64
	ScanSoFarNs uint64
	Generation  uint32
	_           uint32
}

// StaleSlot is struct stale_slot, table.h.
type StaleSlot struct {
	_       structs.HostLayout
	StartNs uint64
	Index   uint32
	_       uint32
}

// enum tracker_kind, tracker.h.
const (
	TrackWakeup    = 0
	TrackOffcpu    = 1
	TrackSyscall   = 2
	TrackBlock     = 3
	TrackIrq       = 4
	TrackSoftirq   = 5
	TrackPair      = 6
	TrackChain     = 7
	TrackSpan      = 8
	TrackWorkqueue = 9
	Trackers       = 10
)

// enum scratch_index, tracker.h.
const (
	ScratchTick     = 10
	ScratchSoftirq  = 11
	ScratchWorkWait = 12
	ScratchRaise    = 13
	Scratches       = 14
)

// enum call_scratches, tracker.h.
const (
	CallScratches = 4
)

// enum name_length, tracker.h.
const (
	TaskCommLen = 16
	DiskNameLen = 32
	WorkNameLen = 32
)

// enum limit, tracker.h.
const (
	Never = 0x7fffffffffffffff
)

// enum floor_size, tracker.h.
const (
	FloorThreads  = 2
	FloorStates   = 3
	FloorOps      = 8
	FloorEnds     = 4
	Syscalls      = 1024
	Syscalls32    = 512
	IrqClasses    = 256
	Softirqs      = 16
	Phases        = 2
	TimeoutStates = 4
	TimeoutTables = 8
)

// enum call_wanted, tracker.h.
const (
	CallEntry   = 1
	CallExit    = 2
	CallEntry32 = 4
	CallExit32  = 8
	CallExec    = 16
	CallExec32  = 32
)

// enum self_size, tracker.h.
const (
	SelfHelpers = 8
)

// enum work_phase, tracker.h.
const (
	PhaseRaise = 0
	PhaseWait  = 0
	PhaseRun   = 1
)

// WorkSlot is struct work_slot, workqueue.h.
type WorkSlot struct {
	_         structs.HostLayout
	StartNs   uint64
	WaitNs    uint64
	Function  uint64
	Worker    uint64
	WorkerTid uint32
	Cpu       uint32
	Tid       uint32
	Pid       uint32
	Context   uint16
	QueuedCpu uint16
	Queued    uint32
	Comm      [16]byte
	Queue     [32]byte
	Deadline  Deadline
}

// WorkExtra is struct work_extra, workqueue.h.
type WorkExtra struct {
	_        structs.HostLayout
	Work     uint64
	Phase    uint32
	Queued   uint32
	Queue    [32]byte
	Function uint64
	WaitNs   uint64
}
