package trace

import (
	"encoding/binary"
	"math/rand/v2"

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
	b.out = append(b.out, Record{})
	r := &b.out[len(b.out)-1]
	binary.LittleEndian.PutUint16(r[offType:], uint16(t))
	binary.LittleEndian.PutUint16(r[offCPU:], uint16(b.cpu))
	put32(r, offTID, tid)
	put64(r, offTime, b.now)
	return r
}

func put16(r *Record, off, v int) { binary.LittleEndian.PutUint16(r[off:], uint16(v)) }
func put32(r *Record, off, v int) { binary.LittleEndian.PutUint32(r[off:], uint32(v)) }
func put64(r *Record, off int, v uint64) {
	binary.LittleEndian.PutUint64(r[off:], v)
}
func putText(r *Record, off int, s string) { copy(r[off:], s) }

func (b *builder) wake(t Type, waker, tid int, comm string, target int) {
	r := b.add(t, waker)
	putText(r, offWakeComm, comm)
	put32(r, offWakeTID, tid)
	put32(r, offWakePID, tid)
	put32(r, offWakePrio, 120)
	put32(r, offWakeTargetCPU, target)
}

func (b *builder) switchTo(prev int, prevComm string, state int, next int, nextComm string) {
	r := b.add(SchedSwitch, prev)
	putText(r, offSwitchPrevComm, prevComm)
	putText(r, offSwitchNextComm, nextComm)
	put32(r, offSwitchNextTID, next)
	put32(r, offSwitchNextPID, next)
	put16(r, offSwitchPrevPrio, 120)
	put16(r, offSwitchNextPrio, 49) // SCHED_FIFO 50
	put32(r, offSwitchPrevState, state)
}

func (b *builder) block(t Type, flags, status int) {
	r := b.add(t, 300)
	put64(r, offBlockRQ, 0xffff888000001000)
	put64(r, offBlockSector, 123456)
	put32(r, offBlockDev, 254<<20|16)
	put32(r, offBlockBytes, 8192)
	put32(r, offBlockFlags, flags)
	put32(r, offBlockError, status)
	putText(r, offBlockComm, "postgres")
}

func (b *builder) syscall(t Type, nr int, ret int64) {
	r := b.add(t, 400)
	put32(r, offSyscallNR, nr)
	put32(r, offSyscallPID, 399)
	if t == SyscallExit {
		put64(r, offSyscallRet, uint64(ret))
		return
	}
	for i, arg := range [syscallArgs]uint64{7, 0x7ffc00001001, 4096, 3, 4} {
		put64(r, offSyscallArg+8*i, arg)
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
	putText(r, offMigrateComm, "bash")
	put32(r, offMigrateTID, 7)
	put32(r, offMigratePrio, 98)
	put32(r, offMigrateOrigCPU, 0)
	put32(r, offMigrateDestCPU, 3)
	step()
	r = b.add(IRQEntry, 0)
	put32(r, offIRQ, 33)
	putText(r, offIRQName, "virtio0-req.0")
	step()
	r = b.add(IRQExit, 0)
	put32(r, offIRQ, 33)
	put32(r, offIRQRet, 1)
	step()
	for _, t := range []Type{SoftirqEntry, SoftirqExit} {
		put32(b.add(t, 0), offSoftirqVec, 9)
		step()
	}
	r = b.add(HrtimerEntry, 0)
	put64(r, offHrtimer, 0xffff888012345678)
	put64(r, offHrtimerFunction, 0xffffffff81000000)
	put64(r, offHrtimerNow, b.now)
	step()
	put64(b.add(HrtimerExit, 0), offHrtimer, 0xffff888012345678)
	step()
	b.block(BlockInsert, linux.OpWrite|linux.ReqSync|linux.ReqFUA, 0)
	step()
	b.block(BlockIssue, linux.OpRead|linux.ReqReadAhead|linux.ReqMeta, 0)
	step()
	b.block(BlockComplete, linux.OpFlush|linux.ReqPreflush, 10)
	step()
	for _, t := range []Type{WorkStart, WorkEnd} {
		r = b.add(t, 50)
		put64(r, offWork, 0xffff888000abc000)
		put64(r, offWorkFunction, 0xffffffff81234560)
		step()
	}
	r = b.add(ProcessFork, 500)
	putText(r, offProcessComm, "sh")
	putText(r, offProcessChildComm, "sh")
	put32(r, offProcessPID, 500)
	put32(r, offProcessChildTID, 501)
	put32(r, offProcessChildPID, 501)
	put32(r, offProcessPrio, 120)
	step()
	r = b.add(ProcessExec, 501)
	putText(r, offProcessComm, "ls")
	put32(r, offProcessPID, 501)
	put32(r, offProcessChildTID, 501)
	put32(r, offProcessPrio, 120)
	step()
	r = b.add(ProcessExit, 501)
	putText(r, offProcessComm, "ls")
	put32(r, offProcessPID, 501)
	put32(r, offProcessPrio, 120)
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
	put64(r, offQueueWork, 0xffff888000abc000)
	put64(r, offQueueFunction, 0xffffffff81234560)
	put32(r, offQueueCPU, 64)
	putText(r, offQueueName, "events_unbound")
	r = next(TimerEntry)
	put64(r, offTimer, 0xffff888000abd000)
	put64(r, offTimerFunction, 0xffffffff81234570)
	put64(r, offTimerNow, 4294937296)
	put64(next(TimerExit), offTimer, 0xffff888000abd000)
	for _, t := range []Type{FaultUser, FaultKernel} {
		r = next(t)
		put64(r, offFaultAddress, 0x7f0000001000)
		put64(r, offFaultIP, 0x401000)
		put64(r, offFaultCode, 6)
	}
	r = next(ReclaimBegin)
	put32(r, offReclaimOrder, 2)
	put32(r, offReclaimKind, 1)
	r = next(ReclaimEnd)
	put64(r, offReclaimed, 32)
	put32(r, offReclaimKind, 1)
	put32(next(CompactionBegin), offReclaimSync, 1)
	put32(next(CompactionEnd), offReclaimStatus, 4)
	r = next(LockBegin)
	put64(r, offLock, 0xffff888000abe000)
	put32(r, offLockFlags, 32)
	put32(r, offLockOwner, 601)
	r = next(LockEnd)
	put64(r, offLock, 0xffff888000abe000)
	put32(r, offLockRet, -4)
	put32(next(CPUIdle), offPowerState, -1)
	put32(next(CPUFrequency), offPowerState, 2400000)
	for _, t := range []Type{NetQueue, NetReceive} {
		r = next(t)
		put64(r, offNetSKB, 0xffff888000abf000)
		put32(r, offNetBytes, 1514)
		putText(r, offNetDev, "eth0")
	}
	r = next(NapiPoll)
	put32(r, offNetWork, 3)
	put32(r, offNetBudget, 64)
	putText(r, offNetDev, "eth0")
	for _, t := range []Type{CgroupThrottle, CgroupUnthrottle} {
		r = next(t)
		put64(r, offThrottleCgroup, 4711)
		put32(r, offThrottleCPU, 2)
	}
	put32(next(KVMEntry), offKVMCPU, 1)
	r = next(KVMExit)
	put32(r, offKVMCPU, 1)
	put32(r, offKVMReason, 48)
	put64(r, offKVMIP, 0xfff0)
	r = next(Steal)
	put64(r, offStolen, 1500000)
	put64(r, offStolenSince, b.now-4000000)
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
