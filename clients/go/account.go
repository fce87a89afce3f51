package tailcam

import (
	"bytes"
	"encoding/hex"
	"sync/atomic"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Costs are what the kernel side counts for a token: nanoseconds, bytes, pages and counts.
// `tailcam list accounts` says where each comes from, and which are not to be had on a
// kernel. The parts of RunnableNS and BlockedNS add up to them.
type Costs struct {
	CPUNS               uint64 `json:"cpu_ns"`
	CPUKernelNS         uint64 `json:"cpu_kernel_ns"`
	RunnableNS          uint64 `json:"runnable_ns"`
	RunnablePreemptedNS uint64 `json:"runnable_preempted_ns"`
	RunnableWokenNS     uint64 `json:"runnable_woken_ns"`
	RunnableThrottledNS uint64 `json:"runnable_throttled_ns"`
	BlockedNS           uint64 `json:"blocked_ns"`
	BlockedDiskNS       uint64 `json:"blocked_disk_ns"`
	BlockedLockNS       uint64 `json:"blocked_lock_ns"`
	BlockedNetworkNS    uint64 `json:"blocked_network_ns"`
	BlockedTaskNS       uint64 `json:"blocked_task_ns"`
	BlockedTimerNS      uint64 `json:"blocked_timer_ns"`
	BlockedFaultNS      uint64 `json:"blocked_fault_ns"`
	BlockedReclaimNS    uint64 `json:"blocked_reclaim_ns"`
	BlockedWorkNS       uint64 `json:"blocked_work_ns"`
	BlockedOtherNS      uint64 `json:"blocked_other_ns"`
	Switches            uint64 `json:"switches"`
	Preemptions         uint64 `json:"preemptions"`
	Wakeups             uint64 `json:"wakeups"`
	Syscalls            uint64 `json:"syscalls"`
	SyscallNS           uint64 `json:"syscall_ns"`
	FaultsMinor         uint64 `json:"faults_minor"`
	FaultsMajor         uint64 `json:"faults_major"`
	FaultNS             uint64 `json:"fault_ns"`
	CacheHits           uint64 `json:"cache_hits"`
	CacheMisses         uint64 `json:"cache_misses"`
	BlockRequests       uint64 `json:"block_requests"`
	BlockBytes          uint64 `json:"block_bytes"`
	BlockQueueNS        uint64 `json:"block_queue_ns"`
	BlockDeviceNS       uint64 `json:"block_device_ns"`
	TCPBytesSent        uint64 `json:"tcp_bytes_sent"`
	TCPBytesReceived    uint64 `json:"tcp_bytes_received"`
	TCPSegments         uint64 `json:"tcp_segments"`
	TCPRetransmits      uint64 `json:"tcp_retransmits"`
	NetworkNS           uint64 `json:"network_ns"`
	MemoryBytes         uint64 `json:"memory_bytes"`
	WorkItems           uint64 `json:"work_items"`
	WorkNS              uint64 `json:"work_ns"`
	WorkBlockedNS       uint64 `json:"work_blocked_ns"`
	WritebackBytes      uint64 `json:"writeback_bytes"`
	EvictedPages        uint64 `json:"evicted_pages"`
	EvictsPages         uint64 `json:"evicts_pages"`
	Cycles              uint64 `json:"cycles"`
	Instructions        uint64 `json:"instructions"`
	CacheMissesHW       uint64 `json:"cache_misses_hw"`
	RunnableStolenNS    uint64 `json:"runnable_stolen_ns"`
	BlockedKernelLockNS uint64 `json:"blocked_kernel_lock_ns"`
	KernelLocks         uint64 `json:"kernel_locks"`
	KernelLockMutexNS   uint64 `json:"kernel_lock_mutex_ns"`
	KernelLockRwsemNS   uint64 `json:"kernel_lock_rwsem_ns"`
	KernelLockSpinNS    uint64 `json:"kernel_lock_spin_ns"`
	KernelLockRtmutexNS uint64 `json:"kernel_lock_rtmutex_ns"`
}

// costs as the kernel side has them, by number.
type numbers [abi.ActivityValues]uint64

// Account is what a token has cost. WallNS is how long threads have carried it, summed over
// them, and is CPUNS + RunnableNS + BlockedNS + UnexplainedNS.
type Account struct {
	Token   Token  `json:"token"`
	Name    string `json:"name"`
	Text    string `json:"text"`     // SetText
	Value   uint64 `json:"value"`    // SetValue
	TraceID string `json:"trace_id"` // hexadecimal, SetTrace; "": none
	SpanID  string `json:"span_id"`

	WallNS        uint64 `json:"wall_ns"`
	ElapsedNS     uint64 `json:"elapsed_ns"` // from Token to now, or to End
	UnexplainedNS uint64 `json:"unexplained_ns"`
	TCPBytes      uint64 `json:"tcp_bytes"` // sent and received
	Costs
}

// Shared is what is known of the process, and not of which of its tokens: never guessed.
type Shared struct {
	// MachineNS is what interrupts and softirqs took on top of its threads, with group
	// interrupts. It is in CPUNS of tokens, too.
	MachineNS uint64 `json:"machine_ns"`
	Late      uint64 `json:"late"` // what was to be credited to tokens that had ended
	Costs            // those from Syscalls on; the others are 0
}

// Shared returns what was done for the process until now, and for which of its tokens is not
// known.
func (h *Handle) Shared() (s Shared) {
	if h == nil {
		return s
	}
	header := (*abi.ActivityHeader)(unsafe.Pointer(&h.accounts[0]))
	s.MachineNS, s.Late = atomic.LoadUint64(&header.MachineNs), atomic.LoadUint64(&header.Late)
	n := (*numbers)(unsafe.Pointer(&s.Costs))
	for i := range header.Unknown {
		n[abi.ActivitySyscalls+i] = atomic.LoadUint64(&header.Unknown[i])
	}
	return s
}

// Merge adds what b has cost to a. Token, name, text and ids stay a's.
func (a *Account) Merge(b Account) {
	to, from := (*numbers)(unsafe.Pointer(&a.Costs)), (*numbers)(unsafe.Pointer(&b.Costs))
	for i := range to {
		to[i] += from[i]
	}
	a.WallNS += b.WallNS
	a.ElapsedNS += b.ElapsedNS
	a.UnexplainedNS += b.UnexplainedNS
	a.TCPBytes += b.TCPBytes
}

// Read returns what a token has cost until now. False, and zeros, if it has ended or is 0.
func (h *Handle) Read(t Token) (Account, bool) {
	e := h.find(t)
	if e == nil {
		return Account{}, false
	}
	return h.account(t, e), true
}

// retries of a reading while it changes.
const retries = 8

func (h *Handle) account(t Token, e *abi.ActivityToken) Account {
	a := Account{Token: t, Value: atomic.LoadUint64(&e.Value), Name: text(e.Name[:]), Text: text(e.Text[:])}
	if e.TraceId != [16]uint8{} {
		a.TraceID, a.SpanID = hex.EncodeToString(e.TraceId[:]), hex.EncodeToString(e.SpanId[:])
	}
	var now, seen uint64
	n := (*numbers)(unsafe.Pointer(&a.Costs))
	for range retries {
		now = nanotime()
		a.WallNS, seen = h.sum(t, e, now, n)
		if _, again := h.sum(t, e, now, n); again == seen {
			break
		}
	}
	a.ElapsedNS = now - min(e.BeginNs, now)
	a.UnexplainedNS = a.WallNS - min(a.CPUNS+a.RunnableNS+a.BlockedNS, a.WallNS)
	a.TCPBytes = a.TCPBytesSent + a.TCPBytesReceived
	return a
}

// sum reads what has been credited, and what threads that carry the token have not been
// credited with yet. seen is another number if something has changed.
func (h *Handle) sum(t Token, e *abi.ActivityToken, now uint64, n *numbers) (wall, seen uint64) {
	values := h.values(t.index())
	ours := atomic.LoadUint32(&values.Generation) == t.generation()
	wall = atomic.LoadUint64(&e.WallNs)
	for i := range n {
		n[i] = 0 // of an older token: nothing has been credited to this one
		if ours {
			n[i] = atomic.LoadUint64(&values.Value[i])
		}
	}
	n[abi.ActivityCpuNs] += atomic.LoadUint64(&e.CpuNs)
	seen = wall + n[abi.ActivityCpuNs] + n[abi.ActivityRunnableNs] + n[abi.ActivityBlockedNs]
	for i := uint32(1); i < h.first; i++ {
		thread := h.thread(i)
		if atomic.LoadUint32(&thread.Tid) == 0 {
			continue
		}
		seq := atomic.LoadUint32(&thread.Seq)
		half := &thread.Half[seq&1]
		if atomic.LoadUint32(&half.Token) != t.index() || atomic.LoadUint32(&half.Generation) != t.generation() {
			continue
		}
		state := h.state(i)
		seen += uint64(i)<<48 ^ uint64(seq)<<16 ^ uint64(atomic.LoadUint32(&state.Slices)) ^ atomic.LoadUint64(&state.OutNs)
		wall += progress(thread, state, atomic.LoadUint64(&half.SinceNs), now, n)
	}
	return wall, seen
}

// progress adds what a thread that carries the token has not been credited with yet.
func progress(thread *abi.ActivityThread, state *abi.ActivityThreadState, since, now uint64, n *numbers) (wall uint64) {
	if now < since {
		return 0
	}
	wall = now - since
	out := atomic.LoadUint64(&state.OutNs)
	if out == 0 || atomic.LoadUint32(&state.Tid) != atomic.LoadUint32(&thread.Tid) {
		n[abi.ActivityCpuNs] += now - min(max(atomic.LoadUint64(&state.SliceNs), since), now)
		return wall
	}
	out = max(out, since)
	if out > now {
		return wall
	}
	cause, waking := atomic.LoadUint32(&state.Cause), atomic.LoadUint64(&state.WakingNs)
	if cause > abi.ActivityRunnableNs && cause < abi.ActivityBlockedNs {
		n[abi.ActivityRunnableNs] += now - out
		n[cause] += now - out
		return wall
	}
	if (cause <= abi.ActivityBlockedNs || cause > abi.ActivityBlockedOtherNs) && cause != abi.ActivityBlockedKernelLockNs {
		cause = abi.ActivityBlockedOtherNs
	}
	if waking < out || waking > now {
		waking = now
	}
	n[abi.ActivityBlockedNs] += waking - out
	n[cause] += waking - out
	n[abi.ActivityRunnableNs] += now - waking
	n[abi.ActivityRunnableWokenNs] += now - waking
	return wall
}

// text of an element: up to its first NUL.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
