package reader

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// decider knows rules by their index, of one generation.
type decider []rules.Track

func (d decider) Decide(raw *abi.Outlier, _ bool) (*events.Outlier, bool) {
	i := int(raw.Rule) % abi.MaxRules
	if raw.Generation != 1 || i >= len(d) {
		return nil, false
	}
	return (&kinds.Message{Outlier: raw, Rule: &rules.Rule{Name: string(d[i]), Track: d[i]}}).Decode(), false
}

func (decider) Answer(*abi.Question) {}

// ready reads without a kernel side: enough for what comes out of the ring buffer.
func ready(t testing.TB) *Reader {
	t.Helper()
	return &Reader{kernel: &kernel.Objects{}, rules: decider{rules.Wakeup, rules.OffCPU, rules.Syscall, rules.Block}}
}

func sample(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	assert.NilError(t, binary.Write(&b, binary.LittleEndian, v))
	return b.Bytes()
}

func comm(s string) (c [abi.TaskCommLen]byte) {
	copy(c[:], s)
	return c
}

func TestReceiveWakeup(t *testing.T) {
	tr := ready(t)
	raw := abi.Outlier{
		Type: abi.OutlierType, Generation: 1, Rule: 64, // second half of the table
		StartNs: 1000, TimeNs: 51000, RunnableNs: 50000, ThresholdNs: 500,
		Tid: 12, Pid: 10, Comm: comm("victim"), Cpu: 3, WaitCpu: 2, Syscall: -1,
		WakerTid: 5, WakerPid: 4, WakerComm: comm("waker"), WakerContext: 1<<14 | 3,
		KernelFrames: 2, Flags: abi.OutlierPreempted | abi.OutlierSnapshot,
	}
	raw.Kernel[0], raw.Kernel[1] = 11, 22
	raw.Runs[12] = abi.RunTotal{Ns: 45000, Tid: 12, Comm: comm("victim")} // the victim itself
	raw.Runs[7] = abi.RunTotal{Ns: 10000, Tid: 7, Comm: comm("late")}
	raw.Runs[9] = abi.RunTotal{Ns: 40000, Tid: 9, Pid: 8, Comm: comm("hog")}
	o, err := tr.receive(sample(t, &raw))
	assert.Assert(t, err == nil && o != nil, "%v %v", o, err)
	assert.Check(t, o.Rule == "wakeup" && o.DelayNS == 50000 && o.Task.TID == 12 && o.Task.Comm == "victim" &&
		o.Preempted && o.WantsSnapshot, "outlier %+v", o)
	assert.Check(t, o.Waker != nil &&
		*o.Waker == (events.Waker{Peer: events.Peer{PID: 4, TID: 5, Comm: "waker"}, Context: "softirq NET_RX"}),
		"waker %+v", o.Waker)
	assert.Check(t, o.OnCPU != nil && o.OnCPU.Comm == "hog" && o.OnCPU.RanNS == 40000 && o.OnCPU.CPU == 2,
		"on CPU %+v, want the hog for 40000 ns on CPU 2", o.OnCPU)
	assert.Check(t, len(o.Raw.Kernel) == 2 && o.Raw.Kernel[1] == 22, "kernel stack %v", o.Raw.Kernel)
}

// TestReceiveOthers: contexts of the waker, and of who ran longest, if it is the one that was read.
func TestReceiveOthers(t *testing.T) {
	raw := abi.Outlier{
		Type: abi.OutlierType, Generation: 1, Rule: 65, TimeNs: 51000, Tid: 12, Syscall: -1, WakerTid: 5, WakerComm: comm("waker"),
		WakerTraceId: [16]uint8{15: 1}, WakerSpanId: [8]uint8{7: 2}, RunTraceId: [16]uint8{15: 3}, RunSpanId: [8]uint8{7: 4}, RunTid: 9,
	}
	raw.Runs[9] = abi.RunTotal{Ns: 40000, Tid: 9, Comm: comm("hog")}
	o, err := ready(t).receive(sample(t, &raw))
	assert.Assert(t, err == nil && o != nil && o.Waker != nil && o.OnCPU != nil, "%v %v", o, err)
	assert.Check(t, o.Waker.TraceID == "00000000000000000000000000000001" && o.Waker.SpanID == "0000000000000002", "%+v", o.Waker)
	assert.Check(t, o.OnCPU.TraceID == "00000000000000000000000000000003" && o.OnCPU.SpanID == "0000000000000004", "%+v", o.OnCPU)
	raw.RunTid, raw.WakerSpanId = 8, [8]uint8{}
	o, err = ready(t).receive(sample(t, &raw))
	assert.Assert(t, err == nil && o != nil)
	assert.Check(t, o.OnCPU.TraceID == "" && o.Waker.TraceID == "" && o.Waker.SpanID == "", "%+v, %+v", o.OnCPU, o.Waker)
}

// TestReceiveUserMemory: a copy belongs to the outliers of its task and time, whichever comes first.
func TestReceiveUserMemory(t *testing.T) {
	outlier := abi.Outlier{
		Type: abi.OutlierType, Generation: 1, Rule: 65, TimeNs: 9000, Tid: 12, Flags: abi.OutlierUserLater, Syscall: 35,
		UserRegs: [abi.UserRegs]uint64{0x1000, 0x7ff0}, UserSwitches: 3, UserStartNs: 5,
	}
	memory := abi.UserMemory{Type: abi.UserMemoryType, Tid: 12, TimeNs: 9000, Base: 0x7c00, Bytes: 1 << 40, Data: [abi.UserBytes]uint8{5}}
	other := memory
	other.TimeNs, other.Bytes = 8000, 0
	for _, order := range [][]any{{&other, &memory, &outlier}, {&outlier, &other, &memory}, {&memory, &outlier}} {
		tr := ready(t)
		var o *events.Outlier
		for _, m := range order {
			got, err := tr.receive(sample(t, m))
			assert.NilError(t, err)
			if got != nil {
				o = got
			}
		}
		assert.Assert(t, o != nil && o.User != nil && o.User.Switches == 3 && o.User.StartNS == 5 && o.Raw.User[0] == 0x1000, "%+v", o)
		m := o.User.Memory.Wait(time.Minute)
		assert.Check(t, m.Base == 0x7c00 && len(m.Data) == abi.UserBytes && m.Data[0] == 5, "%#x, %d bytes", m.Base, len(m.Data))
	}
}

// TestReceiveContext: what is read at an outlier comes with it, and what is read after a switch
// belongs to all outliers of its task and time.
func TestReceiveContext(t *testing.T) {
	trace, span := [16]uint8{15: 1}, [8]uint8{7: 2}
	outlier := abi.Outlier{Type: abi.OutlierType, Generation: 1, Rule: 65, TimeNs: 9000, Tid: 12, TraceId: trace, SpanId: span}
	o, err := ready(t).receive(sample(t, &outlier))
	assert.Assert(t, err == nil && o != nil)
	assert.Check(t, o.TraceID == "00000000000000000000000000000001" && o.SpanID == "0000000000000002" && o.Context == nil, "%+v", o)

	outlier.TraceId, outlier.SpanId, outlier.Flags = [16]uint8{}, [8]uint8{}, abi.OutlierContextLater
	context := abi.ThreadContext{Type: abi.ThreadContextType, Tid: 12, TimeNs: 9000, TraceId: trace, SpanId: span}
	other := context
	other.Tid, other.TraceId = 13, [16]uint8{3}
	tr := ready(t)
	var got []*events.Outlier
	for _, m := range []any{&outlier, &other, &outlier, &context} {
		o, err := tr.receive(sample(t, m))
		assert.NilError(t, err)
		if o != nil {
			got = append(got, o)
		}
	}
	assert.Assert(t, len(got) == 2)
	for _, o := range got {
		assert.Check(t, o.TraceID == "" && o.Context.Wait(time.Minute) == events.Trace{ID: trace, Span: span}, "%+v", o)
	}
}

// TestReceiveAttributes: attributes come before the outliers of their thread and time, or after
// a switch. What was read twice and is not the same is not believed, nor is a size.
func TestReceiveAttributes(t *testing.T) {
	trace, span := [16]uint8{15: 1}, [8]uint8{7: 2}
	outlier := abi.Outlier{Type: abi.OutlierType, Generation: 1, Rule: 66, TimeNs: 9000, Tid: 12, TraceId: trace, SpanId: span}
	later := outlier
	later.TraceId, later.SpanId, later.Flags = [16]uint8{}, [8]uint8{}, abi.OutlierContextLater
	whole := abi.ThreadAttributes{
		Type: abi.ThreadAttributesType, Bytes: 3, Tid: 12, TimeNs: 9000, TraceId: trace, SpanId: span, Pid: 11, StartCode: 5, StartStack: 6,
		Data: [abi.AttributesBytes]uint8{1, 1, 'a', 'x'}, Again: [abi.AttributesBytes]uint8{1, 1, 'a', 'y'},
	}
	torn, none, huge := whole, whole, whole
	torn.Again[1] = 2
	none.Bytes = 0
	huge.Bytes, huge.Again = 1<<16-1, huge.Data
	for _, c := range []struct {
		message *abi.ThreadAttributes
		want    int // bytes
	}{{&whole, 3}, {&torn, 0}, {&none, 0}, {&huge, abi.AttributesBytes}} {
		for _, order := range [][]any{{c.message, &outlier}, {&later, c.message}} {
			tr := ready(t)
			var o *events.Outlier
			for _, m := range order {
				got, err := tr.receive(sample(t, m))
				assert.NilError(t, err)
				if got != nil {
					o = got
				}
			}
			assert.Assert(t, o != nil && o.Context != nil)
			got := o.Context.Wait(time.Minute)
			assert.Check(t, got.ID == trace && got.Span == span, "%+v", got)
			if c.want == 0 {
				assert.Check(t, got.Attributes == nil)
				continue
			}
			raw := got.Attributes
			assert.Check(t, raw.PID == 11 && raw.StartCode == 5 && raw.StartStack == 6 && len(raw.Data) == c.want && string(raw.Data[:3]) == "\x01\x01a", "%+v", raw)
		}
	}
}

// What is promised and never comes holds nothing back, and no more than a few are kept.
func TestUserMemoryNeverComes(t *testing.T) {
	tr := ready(t)
	for i := range uint64(1000) {
		o, err := tr.receive(sample(t, &abi.Outlier{
			Type: abi.OutlierType, Generation: 1, Rule: 65, TimeNs: i, Flags: abi.OutlierUserLater, UserRegs: [abi.UserRegs]uint64{1},
		}))
		assert.Assert(t, o != nil && err == nil)
		assert.Check(t, o.User.Memory.Wait(0).Data == nil)
	}
	assert.Check(t, len(tr.memories.recent) == maxLater)
	var none *events.Promise[events.StackCopy]
	assert.Check(t, none.Wait(time.Hour).Data == nil)
}

func TestReceiveOfReplacedRules(t *testing.T) {
	tr, released := ready(t), 0
	tr.release = func() { released++ }
	o, err := tr.receive(sample(t, &abi.Outlier{Type: abi.OutlierType, Generation: 0, Flags: abi.OutlierSnapshot}))
	assert.Check(t, err == nil && o == nil, "one of rules long gone: %+v, %v", o, err)
	assert.Check(t, released == 1, "the recorder stays frozen for an outlier that nobody wants")
}

func TestReceiveNonsense(t *testing.T) {
	tr := ready(t)
	for _, b := range [][]byte{nil, {0x43}, {0x43, 0x74}, {1, 2, 3, 4}, make([]byte, 5000)} {
		_, err := tr.receive(b)
		assert.Check(t, err != nil, "%d bytes of nonsense: no error", len(b))
	}
}

func FuzzReceive(f *testing.F) {
	f.Add(sample(f, &abi.Outlier{Type: abi.OutlierType, Generation: 1, KernelFrames: 65535, WakerFrames: 1 << 31}))
	f.Add(sample(f, &abi.UserMemory{Type: abi.UserMemoryType, Bytes: 1 << 63}))
	f.Add(sample(f, &abi.ThreadContext{Type: abi.ThreadContextType, Tid: 1}))
	f.Add(sample(f, &abi.ThreadAttributes{Type: abi.ThreadAttributesType, Bytes: 1<<16 - 1}))
	f.Add(sample(f, &abi.GrowMessage{Type: abi.GrowType}))
	f.Add([]byte{0x43, 0x74})
	f.Fuzz(func(t *testing.T, b []byte) {
		tr := ready(t)
		b = bytes.Clone(b) // the fuzzer's own
		set := func(at uintptr, value uint32) {
			if len(b) >= int(at)+4 {
				binary.LittleEndian.PutUint32(b[at:], value)
			}
		}
		var raw abi.Outlier
		set(unsafe.Offsetof(raw.Generation), 1) // the live one
		// There are no maps to look a stack up in, or to note a decision in.
		set(unsafe.Offsetof(raw.Undecided), 0)
		o, err := tr.receive(b)
		assert.Check(t, err == nil || o == nil, "both an outlier and an error")
	})
}
