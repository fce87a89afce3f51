// Package trace holds the recorder's events: decoding the kernel's records,
// writing and reading them as Common Trace Format 1.8.
//
// Nothing here touches the kernel. Every decoder accepts any bytes: damage
// comes back as an error, never as a panic or as unbounded memory.
package trace

import "encoding/binary"

// RecordSize is the size of a flight-recorder record in bytes (bpf/abi/abi.h).
const RecordSize = 64

// Record is one undecoded flight-recorder record, struct record of bpf/abi/abi.h.
type Record [RecordSize]byte

// Offsets in struct record of bpf/abi/abi.h; a test compares them with what the C
// compiler says. Those after offBody belong to one member of the union each.
const (
	offType = 0
	offCPU  = 2
	offTID  = 4
	offTime = 8
	offBody = 16

	offSwitchPrevComm  = offBody + 0
	offSwitchNextComm  = offBody + 16
	offSwitchNextTID   = offBody + 32
	offSwitchNextPID   = offBody + 36
	offSwitchPrevPrio  = offBody + 40
	offSwitchNextPrio  = offBody + 42
	offSwitchPrevState = offBody + 44

	offWakeComm      = offBody + 0
	offWakeTID       = offBody + 16
	offWakePID       = offBody + 20
	offWakePrio      = offBody + 24
	offWakeTargetCPU = offBody + 28

	offMigrateComm    = offBody + 0
	offMigrateTID     = offBody + 16
	offMigratePrio    = offBody + 20
	offMigrateOrigCPU = offBody + 24
	offMigrateDestCPU = offBody + 28

	offIRQ     = offBody + 0
	offIRQRet  = offBody + 4
	offIRQName = offBody + 8
	irqNameLen = 32

	offSoftirqVec = offBody + 0

	offHrtimer         = offBody + 0
	offHrtimerFunction = offBody + 8
	offHrtimerNow      = offBody + 16

	offBlockRQ     = offBody + 0
	offBlockSector = offBody + 8
	offBlockDev    = offBody + 16
	offBlockBytes  = offBody + 20
	offBlockFlags  = offBody + 24
	offBlockError  = offBody + 28
	offBlockComm   = offBody + 32

	offWork         = offBody + 0
	offWorkFunction = offBody + 8

	offProcessComm      = offBody + 0
	offProcessChildComm = offBody + 16
	offProcessPID       = offBody + 32
	offProcessChildTID  = offBody + 36
	offProcessChildPID  = offBody + 40
	offProcessPrio      = offBody + 44

	offSyscallNR  = offBody + 0
	offSyscallPID = offBody + 4
	offSyscallRet = offBody + 8
	offSyscallArg = offBody + 8
	syscallArgs   = 5

	offQueueWork     = offBody + 0
	offQueueFunction = offBody + 8
	offQueueName     = offBody + 16
	queueNameLen     = 24
	offQueueCPU      = offBody + 40

	offTimer         = offBody + 0
	offTimerFunction = offBody + 8
	offTimerNow      = offBody + 16

	offFaultAddress = offBody + 0
	offFaultIP      = offBody + 8
	offFaultCode    = offBody + 16

	offReclaimed     = offBody + 0
	offReclaimKind   = offBody + 8
	offReclaimOrder  = offBody + 12
	offReclaimSync   = offBody + 16
	offReclaimStatus = offBody + 20

	offLock      = offBody + 0
	offLockFlags = offBody + 8
	offLockOwner = offBody + 12
	offLockRet   = offBody + 16

	offPowerState = offBody + 0
	offPowerCPU   = offBody + 4

	offNetSKB    = offBody + 0
	offNetBytes  = offBody + 8
	offNetWork   = offBody + 12
	offNetBudget = offBody + 16
	offNetDev    = offBody + 24
	netDevLen    = 24

	offThrottleCgroup = offBody + 0
	offThrottleCPU    = offBody + 8

	offKVMCPU    = offBody + 0
	offKVMReason = offBody + 4
	offKVMIP     = offBody + 8

	offStolen      = offBody + 0
	offStolenSince = offBody + 8
)

// What bpf/abi/record.h says of rec_switch.prev_state.
const (
	prevState     = 0x1ffff
	prevCallShift = 17
	prevCallMask  = 0x7ff
	prevFrozen    = 1 << 28
	prevIOWait    = 1 << 29
	prevThrottled = 1 << 30
	prevPreempted = 1 << 31
)

// maxTime is the latest time that a record may carry: 146 years of uptime.
// Past it the bytes are not a record, and readers of CTF would overflow.
const maxTime = 1 << 62

// Type returns the kind of event, which may be unknown to this version.
func (r *Record) Type() Type { return Type(binary.LittleEndian.Uint16(r[offType:])) }

// CPU returns the CPU that wrote the record.
func (r *Record) CPU() int { return int(binary.LittleEndian.Uint16(r[offCPU:])) }

// TID returns the task that was current on the CPU; 0 is idle.
func (r *Record) TID() int { return int(r.s32(offTID)) }

// Time returns nanoseconds of CLOCK_MONOTONIC.
func (r *Record) Time() uint64 { return r.u64(offTime) }

// known reports whether the record can be decoded and written.
func (r *Record) known() bool {
	t := r.Type()
	return t >= SchedSwitch && t <= Steal && r.Time() < maxTime
}

func (r *Record) u64(off int) uint64 { return binary.LittleEndian.Uint64(r[off:]) }
func (r *Record) u32(off int) uint32 { return binary.LittleEndian.Uint32(r[off:]) }
func (r *Record) s32(off int) int32  { return int32(r.u32(off)) }
func (r *Record) s16(off int) int16  { return int16(binary.LittleEndian.Uint16(r[off:])) }

// comm copies a task name and clears whatever follows its end.
func (r *Record) comm(off int) (c Comm) {
	for i := range c {
		if c[i] = r[off+i]; c[i] == 0 {
			break
		}
	}
	return c
}

// text takes a string up to its end or its first zero byte.
func (r *Record) text(off, size int) string { return string(cutNUL(r[off : off+size])) }
