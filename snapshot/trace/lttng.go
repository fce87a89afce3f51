package trace

import (
	"math/bits"

	"github.com/tailcam/tailcam/bpf/abi"
)

// maxRTPrio is MAX_RT_PRIO of the kernel. lttng-modules writes every prio
// field as task->prio - MAX_RT_PRIO: nice 0 is 20, real time is negative.
const maxRTPrio = 100

// Bits of the kernel's task state (include/linux/sched.h, since 4.14).
const (
	taskUninterruptible = 0x0002
	taskReport          = 0x007f // the states that tools show, one bit each
	taskDead            = 0x0080
	taskNoLoad          = 0x0400
	taskRTLockWait      = 0x1000
	taskReportIdle      = 0x0080 // shown for an idle kernel thread
	taskReportMax       = 0x0100 // shown for a preempted task
	exitDead            = 0x0010
)

// lttngState turns a record's prev_state into what lttng-modules would have
// written: one bit of taskReport, 0 for running. A dying task's exit state is
// not in the record; it is given as EXIT_DEAD.
func lttngState(raw uint32) int64 {
	if raw&abi.PrevPreempted != 0 {
		return taskReportMax
	}
	state := raw & taskReport
	switch {
	case raw&(taskUninterruptible|taskNoLoad) == taskUninterruptible|taskNoLoad:
		state = taskReportIdle
	case raw&taskRTLockWait != 0:
		state = taskUninterruptible
	case raw&taskDead != 0 && state == 0:
		state = exitDead
	}
	if state == 0 {
		return 0
	}
	return 1 << (bits.Len32(state) - 1)
}

// Reported returns the state that the task left in as the kernel's own
// tracepoint reports it: one bit of S 1, D 2, T 4, t 8, X 16, Z 32, P 64, I 128;
// 256 if it was preempted; 0 if it gave way and is runnable still.
func (s *Switch) Reported() uint32 {
	raw := s.PrevState
	if s.Preempted {
		raw |= abi.PrevPreempted
	}
	return uint32(lttngState(raw))
}

// Operations and flags of a block request (include/linux/blk_types.h of 6.1
// and later), and the bits of lttng-modules' rwbs field.
const (
	reqOpMask        = 0xff
	reqOpRead        = 0
	reqOpWrite       = 1
	reqOpFlush       = 2
	reqOpDiscard     = 3
	reqOpSecureErase = 5
	reqSync          = 1 << 11
	reqMeta          = 1 << 12
	reqFUA           = 1 << 17
	reqPreflush      = 1 << 18
	reqRahead        = 1 << 19

	rwbsWrite    = 1 << 0
	rwbsDiscard  = 1 << 1
	rwbsRead     = 1 << 2
	rwbsRahead   = 1 << 3
	rwbsSync     = 1 << 5
	rwbsMeta     = 1 << 6
	rwbsSecure   = 1 << 7
	rwbsFlush    = 1 << 8
	rwbsFUA      = 1 << 9
	rwbsPreflush = 1 << 10
)

func lttngRWBS(flags uint32) uint32 {
	var v uint32
	switch flags & reqOpMask {
	case reqOpRead:
		v = rwbsRead
	case reqOpWrite:
		v = rwbsWrite
	case reqOpFlush:
		v = rwbsFlush
	case reqOpDiscard:
		v = rwbsDiscard
	case reqOpSecureErase:
		v = rwbsDiscard | rwbsSecure
	}
	for _, m := range [...]struct{ req, rwbs uint32 }{
		{reqRahead, rwbsRahead}, {reqSync, rwbsSync}, {reqMeta, rwbsMeta},
		{reqPreflush, rwbsPreflush}, {reqFUA, rwbsFUA},
	} {
		if flags&m.req != 0 {
			v |= m.rwbs
		}
	}
	return v
}

// blkErrno holds the errno of each blk_status_t whose number is the same in
// every supported kernel. These are Linux's numbers on x86-64 and arm64.
var blkErrno = [...]int32{
	1: 95, 2: 110, 3: 28, 4: 67, 5: 121, 6: 52, 7: 61, 8: 84, 9: 12, 10: 5, 11: 78, 12: 11, 13: 16,
}

// statusErrno gives the negative errno that lttng-modules writes for a
// blk_status_t. Like the kernel it falls back to EIO.
func statusErrno(status int32) int32 {
	switch {
	case status == 0:
		return 0
	case status > 0 && int(status) < len(blkErrno):
		return -blkErrno[status]
	}
	return -5
}
