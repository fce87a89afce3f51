package trace

import (
	"encoding/binary"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
)

// short writes a short record as the kernel side does.
func short(t Type, cpu, tid int, now uint64, body any) (s Short) {
	r := MakeRecord(t|abi.RecordShort, cpu, tid, now)
	b, err := binary.Append(r[:abi.OffRaw:abi.OffRaw], binary.LittleEndian, body)
	if err != nil {
		panic(err)
	}
	copy(s[:], b)
	return s
}

func TestShortBecomesWhole(t *testing.T) {
	called := func(tid int) (c Comm) {
		copy(c[:], map[int]string{7: "seven", 8: "eight"}[tid])
		return c
	}
	sw := short(SchedSwitch, 3, 7, 500, abi.ShortSwitch{
		NextTid: 8, NextPid: 80, PrevPrio: 120, NextPrio: 98, PrevState: abi.PrevIowait | 2 | 5<<abi.PrevCallShift,
	})
	assert.Check(t, IsShort(binary.LittleEndian.Uint64(sw[:])) && sw.Type() == SchedSwitch && sw.Time() == 500)
	r := sw.Whole(called)
	ev, err := r.Decode()
	assert.NilError(t, err)
	assert.DeepEqual(t, ev, Event{Time: 500, CPU: 3, Type: SchedSwitch, TID: 7, Body: Switch{
		PrevComm: called(7), NextComm: called(8), NextTID: 8, NextPID: 80, PrevPrio: 120, NextPrio: 98,
		PrevState: 2, Call: 4, IOWait: true,
	}})

	for _, kind := range []Type{SchedWaking, SchedWakeupNew} {
		wake := short(kind, 3, 7, 500, abi.ShortWake{Tid: 8, Pid: 80, Prio: -1, TargetCpu: 1, Context: abi.WakerSoftirq | 3})
		r = wake.Whole(called)
		ev, err = r.Decode()
		assert.NilError(t, err)
		assert.DeepEqual(t, ev, Event{Time: 500, CPU: 3, Type: kind, TID: 7, Body: Wake{
			Comm: called(8), TID: 8, PID: 80, Prio: -1, TargetCPU: 1, Context: abi.WakerSoftirq | 3,
		}})
	}
}

// Whatever the bytes are, what comes out can be decoded, or is refused.
func FuzzShort(f *testing.F) {
	s := short(SchedSwitch, 1, 2, 3, abi.ShortSwitch{})
	f.Add(s[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Short
		copy(s[:], b)
		r := s.Whole(func(int) Comm { return Comm{} })
		switch ev, err := r.Decode(); {
		case err == nil && ev.Type != SchedSwitch && ev.Type != SchedWaking && ev.Type != SchedWakeupNew:
			t.Errorf("a short record became %v", ev)
		case err == nil && ev.Type != s.Type():
			t.Errorf("%v became %v", s.Type(), ev.Type)
		}
	})
}
