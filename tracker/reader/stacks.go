package reader

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/events"
)

// memories brings outliers together with copies of their user stacks. The kernel side
// sends a copy before its outliers if the task is current, and after them at a switch.
type memories struct {
	recent []keptMemory // newest last
}

type keptMemory struct {
	tid    uint32
	timeNS uint64
	*events.UserMemory
}

// maxMemories bounds what is kept: 16 KiB each.
const maxMemories = 64

func (m *memories) find(tid uint32, timeNS uint64) *events.UserMemory {
	for i := len(m.recent) - 1; i >= 0; i-- {
		if k := &m.recent[i]; k.tid == tid && k.timeNS == timeNS {
			return k.UserMemory
		}
	}
	return nil
}

func (m *memories) add(tid uint32, timeNS uint64) *events.UserMemory {
	k := keptMemory{tid, timeNS, events.NewUserMemory()}
	if len(m.recent) == maxMemories {
		m.recent = m.recent[1:]
	}
	m.recent = append(m.recent, k)
	return k.UserMemory
}

// keep takes a copy: a struct user_memory, not decoded by reflection, which takes long for
// so many bytes.
func (m *memories) keep(sample []byte) error {
	var raw abi.UserMemory
	if len(sample) < int(unsafe.Sizeof(raw)) {
		return fmt.Errorf("decode user memory: %d bytes", len(sample))
	}
	u64 := func(at uintptr) uint64 { return binary.LittleEndian.Uint64(sample[at:]) }
	tid, timeNS := binary.LittleEndian.Uint32(sample[unsafe.Offsetof(raw.Tid):]), u64(unsafe.Offsetof(raw.TimeNs))
	to := m.find(tid, timeNS)
	if to == nil {
		to = m.add(tid, timeNS)
	}
	data := sample[unsafe.Offsetof(raw.Data):]
	to.Fill(u64(unsafe.Offsetof(raw.Base)), data[:min(u64(unsafe.Offsetof(raw.Bytes)), abi.UserBytes)])
	return nil
}

// promised is how long the ring buffer stays empty before a copy is given up: it is sent
// some microseconds after its outlier.
const promised = 2 * time.Millisecond

// deadline is when to give up; zero: nothing is promised.
func (m *memories) deadline() time.Time {
	if slices.ContainsFunc(m.recent, func(k keptMemory) bool { return !k.IsKnown() }) {
		return time.Now().Add(promised)
	}
	return time.Time{}
}

// giveUp says that what was promised will not come.
func (m *memories) giveUp() {
	for _, k := range m.recent {
		k.Fill(0, nil)
	}
}

// attach gives an outlier its copy, or the promise of one.
func (m *memories) attach(o *events.Outlier, raw *abi.Outlier) {
	if o.User == nil {
		return
	}
	o.User.Memory = m.find(raw.Tid, raw.TimeNs)
	if o.User.Memory == nil && raw.Flags&abi.OutlierUserLater != 0 {
		o.User.Memory = m.add(raw.Tid, raw.TimeNs)
	}
}
