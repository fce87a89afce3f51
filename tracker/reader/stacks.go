package reader

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/events"
)

// keepMemory takes a copy of a user stack: a struct user_memory, not decoded by reflection,
// which takes long for so many bytes.
func (r *Reader) keepMemory(sample []byte) error {
	var raw abi.UserMemory
	if len(sample) < int(unsafe.Sizeof(raw)) {
		return fmt.Errorf("decode user memory: %d bytes", len(sample))
	}
	u64 := func(at uintptr) uint64 { return binary.LittleEndian.Uint64(sample[at:]) }
	tid, timeNS := binary.LittleEndian.Uint32(sample[unsafe.Offsetof(raw.Tid):]), u64(unsafe.Offsetof(raw.TimeNs))
	data := sample[unsafe.Offsetof(raw.Data):]
	r.memories.promise(tid, timeNS).Fill(events.StackCopy{
		Base: u64(unsafe.Offsetof(raw.Base)), Data: data[:min(u64(unsafe.Offsetof(raw.Bytes)), abi.UserBytes)],
	})
	return nil
}

// attachLater gives an outlier what has come of its task's memory, or the promise of it.
func (r *Reader) attachLater(o *events.Outlier, raw *abi.Outlier) {
	if o.User != nil {
		o.User.Memory = r.memories.find(raw.Tid, raw.TimeNs)
		if o.User.Memory == nil && raw.Flags&abi.OutlierUserLater != 0 {
			o.User.Memory = r.memories.promise(raw.Tid, raw.TimeNs)
		}
	}
	if raw.Flags&abi.OutlierContextLater != 0 {
		o.Context = r.contexts.promise(raw.Tid, raw.TimeNs)
	}
}
