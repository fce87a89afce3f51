package trace

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
)

// builder makes records as the kernel side would.
type builder struct {
	rng *rand.Rand
	now uint64
	cpu int
	out []Record
}

func newBuilder(cpu int, start uint64) *builder {
	return &builder{rng: rand.New(rand.NewPCG(uint64(cpu), 7)), now: start, cpu: cpu}
}

// add appends one record of the current time and returns it to be filled in.
func (b *builder) add(t Type, tid int) *Record {
	b.out = append(b.out, MakeRecord(t, b.cpu, tid, b.now))
	return &b.out[len(b.out)-1]
}

func put16(r *Record, off, v int) { binary.LittleEndian.PutUint16(r[off:], uint16(v)) }
func put32(r *Record, off, v int) { binary.LittleEndian.PutUint32(r[off:], uint32(v)) }
func put64(r *Record, off int, v uint64) {
	binary.LittleEndian.PutUint64(r[off:], v)
}
func putText(r *Record, off int, s string) { copy(r[off:], s) }

func (b *builder) wake(t Type, waker, tid int, comm string, target int) {
	r := b.add(t, waker)
	putText(r, abi.OffWakeComm, comm)
	put32(r, abi.OffWakeTid, tid)
	put32(r, abi.OffWakePid, tid)
	put32(r, abi.OffWakePrio, 120)
	put32(r, abi.OffWakeTargetCpu, target)
}

func (b *builder) switchTo(prev int, prevComm string, state int, next int, nextComm string) {
	r := b.add(SchedSwitch, prev)
	putText(r, abi.OffSwitchPrevComm, prevComm)
	putText(r, abi.OffSwitchNextComm, nextComm)
	put32(r, abi.OffSwitchNextTid, next)
	put32(r, abi.OffSwitchNextPid, next)
	put16(r, abi.OffSwitchPrevPrio, 120)
	put16(r, abi.OffSwitchNextPrio, 49) // SCHED_FIFO 50
	put32(r, abi.OffSwitchPrevState, state)
}

func (b *builder) block(t Type, flags, status int) {
	r := b.add(t, 300)
	put64(r, abi.OffBlockRq, 0xffff888000001000)
	put64(r, abi.OffBlockSector, 123456)
	put32(r, abi.OffBlockDev, 254<<20|16)
	put32(r, abi.OffBlockBytes, 8192)
	put32(r, abi.OffBlockCmdFlags, flags)
	put32(r, abi.OffBlockError, status)
	putText(r, abi.OffBlockComm, "postgres")
}

func (b *builder) syscall(t Type, nr int, ret int64) {
	r := b.add(t, 400)
	put32(r, abi.OffSyscallNr, nr)
	put32(r, abi.OffSyscallPid, 399)
	if t == SyscallExit {
		put64(r, abi.OffSyscallRet, uint64(ret))
		return
	}
	for i, arg := range [abi.SyscallArgs]uint64{7, 0x7ffc00001001, 4096, 3, 4} {
		put64(r, abi.OffSyscallArgs+8*i, arg)
	}
}

// oneOfEach appends one record of each type.
func (b *builder) oneOfEach() {
	step := func() { b.now += 1000 }
	b.wake(SchedWaking, 100, 200, "worker/0:1", 1)
	step()
	b.wake(SchedWakeupNew, 100, 201, "sixteen-bytes-ab", 0)
	step()
	b.switchTo(100, "bash", 0x402, 200, "worker/0:1")
	step()
	r := b.add(SchedMigrate, 100)
	putText(r, abi.OffMigrateComm, "bash")
	put32(r, abi.OffMigrateTid, 7)
	put32(r, abi.OffMigratePrio, 98)
	put32(r, abi.OffMigrateOrigCpu, 0)
	put32(r, abi.OffMigrateDestCpu, 3)
	step()
	r = b.add(IRQEntry, 0)
	put32(r, abi.OffIrqIrq, 33)
	putText(r, abi.OffIrqName, "virtio0-req.0")
	step()
	r = b.add(IRQExit, 0)
	put32(r, abi.OffIrqIrq, 33)
	put32(r, abi.OffIrqRet, 1)
	step()
	for _, t := range []Type{SoftirqEntry, SoftirqExit} {
		put32(b.add(t, 0), abi.OffSoftirqVec, 9)
		step()
	}
	r = b.add(HrtimerEntry, 0)
	put64(r, abi.OffHrtimerHrtimer, 0xffff888012345678)
	put64(r, abi.OffHrtimerFunction, 0xffffffff81000000)
	put64(r, abi.OffHrtimerNow, b.now)
	step()
	put64(b.add(HrtimerExit, 0), abi.OffHrtimerHrtimer, 0xffff888012345678)
	step()
	b.block(BlockInsert, linux.OpWrite|linux.ReqSync|linux.ReqFUA, 0)
	step()
	b.block(BlockIssue, linux.OpRead|linux.ReqReadAhead|linux.ReqMeta, 0)
	step()
	b.block(BlockComplete, linux.OpFlush|linux.ReqPreflush, 10)
	step()
	for _, t := range []Type{WorkStart, WorkEnd} {
		r = b.add(t, 50)
		put64(r, abi.OffWorkWork, 0xffff888000abc000)
		put64(r, abi.OffWorkFunction, 0xffffffff81234560)
		step()
	}
	r = b.add(ProcessFork, 500)
	putText(r, abi.OffProcessComm, "sh")
	putText(r, abi.OffProcessChildComm, "sh")
	put32(r, abi.OffProcessPid, 500)
	put32(r, abi.OffProcessChildTid, 501)
	put32(r, abi.OffProcessChildPid, 501)
	put32(r, abi.OffProcessPrio, 120)
	step()
	r = b.add(ProcessExec, 501)
	putText(r, abi.OffProcessComm, "ls")
	put32(r, abi.OffProcessPid, 501)
	put32(r, abi.OffProcessChildTid, 501)
	put32(r, abi.OffProcessPrio, 120)
	step()
	r = b.add(ProcessExit, 501)
	putText(r, abi.OffProcessComm, "ls")
	put32(r, abi.OffProcessPid, 501)
	put32(r, abi.OffProcessPrio, 120)
	step()
	b.syscall(SyscallEntry, 0, 0)
	step()
	b.syscall(SyscallExit, 0, -11)
	step()
	b.syscall(SyscallEntry, 333333, 0)
	step()
	b.syscall(SyscallExit, 333333, -38)
	step()
	b.oneOfEachRare()
}

// oneOfEachRare appends one record of each type that few traces have.
func (b *builder) oneOfEachRare() {
	next := func(t Type) *Record {
		r := b.add(t, 600)
		b.now += 1000
		return r
	}
	r := next(WorkQueued)
	put64(r, abi.OffWorkQueueWork, 0xffff888000abc000)
	put64(r, abi.OffWorkQueueFunction, 0xffffffff81234560)
	put32(r, abi.OffWorkQueueReqCpu, 64)
	putText(r, abi.OffWorkQueueName, "events_unbound")
	r = next(TimerEntry)
	put64(r, abi.OffTimerTimer, 0xffff888000abd000)
	put64(r, abi.OffTimerFunction, 0xffffffff81234570)
	put64(r, abi.OffTimerNow, 4294937296)
	put32(r, abi.OffTimerWaiter, 601)
	put32(r, abi.OffTimerAddress, 0x0100007f)
	put32(r, abi.OffTimerPort, 8080)
	put32(r, abi.OffTimerTcp, abi.TcpTimerRetransmit|TCPSynSent<<abi.TcpStateShift|abi.TcpListener)
	put32(r, abi.OffTimerAcceptQueue, 129)
	put32(r, abi.OffTimerAcceptLimit, 128)
	put64(next(TimerExit), abi.OffTimerTimer, 0xffff888000abd000)
	for _, t := range []Type{FaultUser, FaultKernel} {
		r = next(t)
		put64(r, abi.OffFaultAddress, 0x7f0000001000)
		put64(r, abi.OffFaultIp, 0x401000)
		put64(r, abi.OffFaultErrorCode, 6)
	}
	r = next(ReclaimBegin)
	put32(r, abi.OffReclaimOrder, 2)
	put32(r, abi.OffReclaimKind, 1)
	r = next(ReclaimEnd)
	put64(r, abi.OffReclaimReclaimed, 32)
	put32(r, abi.OffReclaimKind, 1)
	put32(next(CompactionBegin), abi.OffReclaimSync, 1)
	put32(next(CompactionEnd), abi.OffReclaimStatus, 4)
	r = next(LockBegin)
	put64(r, abi.OffLockLock, 0xffff888000abe000)
	put32(r, abi.OffLockFlags, 32)
	put32(r, abi.OffLockOwnerTid, 601)
	r = next(LockEnd)
	put64(r, abi.OffLockLock, 0xffff888000abe000)
	put32(r, abi.OffLockRet, -4)
	r = next(FileLockRequest)
	put64(r, abi.OffFileLockInode, 4711)
	put32(r, abi.OffFileLockDevice, 0xfd00001)
	put32(r, abi.OffFileLockRet, -11)
	put64(r, abi.OffFileLockStart, 0x40000000)
	put64(r, abi.OffFileLockEnd, math.MaxInt64)
	put32(r, abi.OffFileLockFlags, 1|128)
	put32(r, abi.OffFileLockType, 1)
	put32(r, abi.OffFileLockPid, 600)
	put32(r, abi.OffFileLockHolderPid, 601)
	put32(next(CPUIdle), abi.OffPowerState, -1)
	put32(next(CPUFrequency), abi.OffPowerState, 2400000)
	for _, t := range []Type{NetQueue, NetReceive} {
		r = next(t)
		put64(r, abi.OffNetSkb, 0xffff888000abf000)
		put32(r, abi.OffNetBytes, 1514)
		putText(r, abi.OffNetDev, "eth0")
	}
	r = next(NapiPoll)
	put32(r, abi.OffNetWork, 3)
	put32(r, abi.OffNetBudget, 64)
	putText(r, abi.OffNetDev, "eth0")
	for _, t := range []Type{CgroupThrottle, CgroupUnthrottle} {
		r = next(t)
		put64(r, abi.OffThrottleCgroup, 4711)
		put32(r, abi.OffThrottleCpu, 2)
	}
	put32(next(KVMEntry), abi.OffKvmVcpu, 1)
	r = next(KVMExit)
	put32(r, abi.OffKvmVcpu, 1)
	put32(r, abi.OffKvmReason, 48)
	put64(r, abi.OffKvmIp, 0xfff0)
	r = next(Steal)
	put64(r, abi.OffStealStolenNs, 1500000)
	put64(r, abi.OffStealSinceNs, b.now-4000000)
	r = next(Interrupts)
	put32(r, abi.OffInterruptsVec, 3)
	put32(r, abi.OffInterruptsTotalNs, 200500)
	put32(r, abi.OffInterruptsCount, 41)
	put64(r, abi.OffInterruptsSinceNs, b.now-900000)
	for kind, t := range []Type{WaitStack, Sample, RunStack} {
		r = next(t)
		put32(r, abi.OffStackPid, 4711)
		put16(r, abi.OffStackKind, min(kind+1, abi.StackUser))
		address := []uint64{0xffffffff81234567, 0x7fff12345678, 0x7fff12345678}[kind]
		r.setFrame(0, address)
		r.setFrame(abi.StackFrames-1, address+8)
	}
}

// busy appends n records of a machine that switches and wakes all the time.
func (b *builder) busy(n int) {
	for len(b.out) < n {
		b.now += 500 + b.rng.Uint64N(20_000)
		tid := 1000 + b.rng.IntN(50)
		switch b.rng.IntN(10) {
		case 0, 1, 2:
			b.wake(SchedWaking, tid, tid+1, "hackbench", b.rng.IntN(4))
		case 3, 4, 5, 6:
			b.switchTo(tid, "hackbench", b.rng.IntN(3), tid+1, "hackbench")
		case 7:
			b.block(BlockIssue, linux.OpWrite, 0)
		default:
			b.syscall(SyscallEntry+Type(b.rng.IntN(2)), b.rng.IntN(3), 42)
		}
	}
}

func syscallName(nr int) string {
	return map[int]string{0: "read", 1: "write"}[nr]
}
