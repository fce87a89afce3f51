package reader

import (
	"bytes"
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
	o.Context = r.contexts.find(raw.Tid, raw.TimeNs)
	if o.Context == nil && raw.Flags&abi.OutlierContextLater != 0 {
		o.Context = r.contexts.promise(raw.Tid, raw.TimeNs)
	}
}

// keepAttributes takes a context with attributes: a struct thread_attributes, which is copied,
// as decoding by reflection takes long.
func (r *Reader) keepAttributes(sample []byte) error {
	var raw abi.ThreadAttributes
	if len(sample) != int(unsafe.Sizeof(raw)) {
		return fmt.Errorf("decode the attributes of a thread: %d bytes", len(sample))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&raw)), unsafe.Sizeof(raw)), sample)
	r.contexts.promise(raw.Tid, raw.TimeNs).Fill(traceOf(&raw))
	return nil
}

// traceOf is a context with its attributes, unless they were being written.
func traceOf(c *abi.ThreadAttributes) events.Trace {
	t := events.Trace{ID: c.TraceId, Span: c.SpanId}
	n := min(int(c.Bytes), len(c.Data))
	if n > 0 && bytes.Equal(c.Data[:n], c.Again[:n]) {
		t.Attributes = &events.RawAttributes{
			PID: int(c.Pid), StartCode: c.StartCode, StartStack: c.StartStack, Data: bytes.Clone(c.Data[:n]),
		}
	}
	return t
}
