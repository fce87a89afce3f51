package trace

import (
	"encoding/binary"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
)

// ShortSize is the size of a short record in bytes.
const ShortSize = abi.ShortSize

// Short is an undecoded short record: the bytes of an abi.ShortRecord.
type Short [ShortSize]byte

// IsShort reports whether a record with this first word is short.
func IsShort(head uint64) bool { return head&abi.RecordShort != 0 }

// Type returns the kind of event, which may be unknown to this version.
func (s *Short) Type() Type {
	return Type(binary.LittleEndian.Uint16(s[abi.OffType:]) &^ abi.RecordShort)
}

// Time returns nanoseconds of CLOCK_MONOTONIC.
func (s *Short) Time() uint64 { return binary.LittleEndian.Uint64(s[abi.OffTimeNs:]) }

// Whole makes a whole record of a short one. name tells what a thread was called at its
// time. A type that has no short form becomes one that Decode refuses.
func (s *Short) Whole(name func(tid int) Comm) (r Record) {
	const body = int(unsafe.Offsetof(abi.ShortRecord{}.Raw))
	var sw abi.ShortSwitch
	var wake abi.ShortWake
	copy(r[:body], s[:body])
	binary.LittleEndian.PutUint16(r[abi.OffType:], uint16(s.Type()))
	move := func(to int, from uintptr, size int) { copy(r[to:to+size], s[body+int(from):]) }
	put := func(to int, tid int) { c := name(tid); copy(r[to:], c[:]) }
	switch s.Type() {
	case SchedSwitch:
		move(abi.OffSwitchNextTid, unsafe.Offsetof(sw.NextTid), 4)
		move(abi.OffSwitchNextPid, unsafe.Offsetof(sw.NextPid), 4)
		move(abi.OffSwitchPrevPrio, unsafe.Offsetof(sw.PrevPrio), 2)
		move(abi.OffSwitchNextPrio, unsafe.Offsetof(sw.NextPrio), 2)
		move(abi.OffSwitchPrevState, unsafe.Offsetof(sw.PrevState), 4)
		put(abi.OffSwitchPrevComm, r.TID())
		put(abi.OffSwitchNextComm, int(r.s32(abi.OffSwitchNextTid)))
	case SchedWaking, SchedWakeupNew:
		move(abi.OffWakeTid, unsafe.Offsetof(wake.Tid), 4)
		move(abi.OffWakePid, unsafe.Offsetof(wake.Pid), 4)
		prio := binary.LittleEndian.Uint16(s[body+int(unsafe.Offsetof(wake.Prio)):])
		binary.LittleEndian.PutUint32(r[abi.OffWakePrio:], uint32(int16(prio)))
		move(abi.OffWakeTargetCpu, unsafe.Offsetof(wake.TargetCpu), 2)
		move(abi.OffWakeContext, unsafe.Offsetof(wake.Context), 4)
		put(abi.OffWakeComm, int(r.s32(abi.OffWakeTid)))
	default:
		binary.LittleEndian.PutUint16(r[abi.OffType:], 0)
	}
	return r
}
