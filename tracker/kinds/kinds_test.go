package kinds

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// rawChain is an outlier of the kernel side that carries c.
func rawChain(t *testing.T, c *abi.Chain, delay uint64) *abi.Outlier {
	t.Helper()
	raw := &abi.Outlier{StartNs: 1000, TimeNs: 1000 + delay, Syscall: -1}
	b := make([]byte, 8*len(raw.Extra))
	_, err := binary.Encode(b, binary.LittleEndian, c)
	assert.NilError(t, err)
	_, err = binary.Decode(b, binary.LittleEndian, &raw.Extra)
	assert.NilError(t, err)
	return raw
}

func stageAt(kind, cpu, at uint64, id uint32, name string) abi.ChainStage {
	s := abi.ChainStage{Packed: kind<<abi.ChainKindShift | cpu<<abi.ChainCpuShift | at, Id: id}
	copy(s.Name[:], name)
	return s
}

func TestDecodeChain(t *testing.T) {
	c := abi.Chain{From: 1, Stages: 4, End: 1, Irq: 36, Vectors: 1 << 4, Truncated: 1}
	c.Stage[0] = stageAt(1, 2, 0, 36, "virtio1-req.0")
	c.Stage[1] = stageAt(4, 2, 700, 4, "")
	c.Stage[2] = stageAt(5, 3, 650, 8, "reader") // a clock that lags
	c.Stage[3] = stageAt(6, 3, 900, 8, "reader")
	rule := &rules.Rule{Name: "chain", Track: rules.Chain}
	raw := rawChain(t, &c, 5000)
	m := &Message{Outlier: raw, Rule: rule}
	o := m.Decode()
	assert.Assert(t, o.Chain != nil && o.Chain.Origin == "irq 36 virtio1-req.0" && o.Chain.End == "user" &&
		o.Chain.Cut && o.EntryCPU == 2, "got %+v", o.Chain)
	var got []int64
	for _, s := range o.Chain.Stages {
		got = append(got, s.NS)
	}
	assert.Check(t, slices.Equal(got, []int64{700, 0, 200, 4100}) && o.Chain.Stages[1].What == "BLOCK" &&
		o.Chain.Stages[3].Task.Comm == "reader", "durations %v of %+v", got, o.Chain.Stages)
	f := m.Facts(o)
	for _, tt := range []struct {
		when rules.Match
		want bool
	}{
		{rules.Match{From: []rules.Origin{rules.FromIRQ}, Ends: []rules.End{rules.ToUser}}, true},
		{rules.Match{From: []rules.Origin{rules.FromHRTimer, rules.FromSoftirq}}, false},
		{rules.Match{Ends: []rules.End{rules.ToRun, rules.ToBlock}}, false},
		{rules.Match{IRQ: []uint32{36}, Vector: []rules.Vector{"net_rx", "block"}}, true},
		{rules.Match{NotIRQ: []uint32{36}}, false},
		{rules.Match{Vector: []rules.Vector{"net_rx"}}, false},
	} {
		assert.Check(t, tt.when.Matches(&f) == tt.want, "%+v: want %t", tt.when, tt.want)
	}
}

// TestDecodeAnyChain: whatever the bytes are, stages add up to the delay.
func TestDecodeAnyChain(t *testing.T) {
	rule := &rules.Rule{Name: "chain", Track: rules.Chain}
	for seed := range byte(64) {
		raw := &abi.Outlier{TimeNs: uint64(seed) << 30}
		b := bytes.Repeat([]byte{seed, 255 - seed, 7 * seed, 12}, 2*len(raw.Extra))
		_, err := binary.Decode(b, binary.LittleEndian, &raw.Extra)
		assert.NilError(t, err)
		o := (&Message{Outlier: raw, Rule: rule}).Decode()
		var sum int64
		for _, s := range o.Chain.Stages {
			assert.Check(t, s.NS >= 0, "stage %+v", s)
			sum += s.NS
		}
		if n := len(o.Chain.Stages); n > 0 && sum+o.Chain.Stages[0].AtNS != o.DelayNS {
			t.Errorf("%d stages of %d ns from %d on, delay %d", n, sum, o.Chain.Stages[0].AtNS, o.DelayNS)
		}
	}
}

func TestDecodeInterrupts(t *testing.T) {
	raw := abi.Outlier{Cpu: 3}
	raw.Extra[0], raw.Extra[1] = 36, 0
	raw.Extra[2] = 0x6f69747269760000 >> 16 // "virtio"
	m := &Message{Outlier: &raw, Rule: &rules.Rule{Name: "r", Track: rules.IRQ}}
	o := m.Decode()
	irq := 36
	assert.Check(t, is.DeepEqual(&events.IRQInfo{IRQ: &irq, Name: "virtio", CPU: 3}, o.IRQ))
	assert.Check(t, is.DeepEqual(map[string]uint64{"irq": 36, "cpu": 3}, o.Key))
	f := m.Facts(o)
	assert.Check(t, f.IRQ == 36 && f.Name == "virtio" && f.CPU == 3, "facts %+v", f)
	for _, tt := range []struct {
		vector, phase uint64
		want          events.IRQInfo
	}{
		{3, 0, events.IRQInfo{Vector: "net_rx", Phase: "raise", CPU: 3}},
		{9, 1, events.IRQInfo{Vector: "rcu", Phase: "run", CPU: 3}},
		{12, 77, events.IRQInfo{Vector: "12", Phase: "run", CPU: 3}},
	} {
		raw = abi.Outlier{Cpu: 3}
		raw.Extra[0], raw.Extra[1] = tt.vector<<32, tt.phase
		o := (&Message{Outlier: &raw, Rule: &rules.Rule{Name: "r", Track: rules.Softirq}}).Decode()
		assert.Check(t, is.DeepEqual(&tt.want, o.IRQ))
		assert.Check(t, is.DeepEqual(map[string]uint64{"vector": tt.vector, "cpu": 3}, o.Key))
	}
}

// rawWork is an outlier of the kernel side that carries w.
func rawWork(w *abi.WorkExtra) *abi.Outlier {
	raw := &abi.Outlier{StartNs: 1000, TimeNs: 5000, Tid: 7, Comm: [16]uint8{'k', 'w'}, Syscall: -1}
	*(*abi.WorkExtra)(unsafe.Pointer(&raw.Extra)) = *w
	return raw
}

func TestDecodeWork(t *testing.T) {
	queue := abi.WorkExtra{Queue: [abi.WorkNameLen]uint8{'e', 'v'}}.Queue
	wait := int64(70)
	for name, tt := range map[string]struct {
		extra abi.WorkExtra
		want  events.WorkInfo
	}{
		"wait": {
			abi.WorkExtra{Work: 64, Phase: abi.PhaseWait, Queued: 1, Queue: queue, Function: 0x80},
			events.WorkInfo{Queue: "ev", Function: "0x80", Phase: "wait", Address: 0x80, QueuedBy: &events.Waker{Peer: events.Peer{PID: 4, TID: 5, Comm: "q"}}},
		},
		"run": {
			abi.WorkExtra{Work: 64, Phase: abi.PhaseRun, Queued: 1, Queue: queue, Function: 0x80, WaitNs: 70},
			events.WorkInfo{Queue: "ev", Function: "0x80", Phase: "run", Address: 0x80, WaitNS: &wait, QueuedBy: &events.Waker{Peer: events.Peer{PID: 4, TID: 5, Comm: "q"}}},
		},
		"run of what was queued before": {
			abi.WorkExtra{Work: 64, Phase: abi.PhaseRun, Function: 0x80},
			events.WorkInfo{Function: "0x80", Phase: "run", Address: 0x80},
		},
	} {
		t.Run(name, func(t *testing.T) {
			raw := rawWork(&tt.extra)
			raw.WakerPid, raw.WakerTid, raw.WakerComm[0] = 4, 5, 'q'
			m := &Message{Outlier: raw, Rule: &rules.Rule{Name: "r", Track: rules.Workqueue}}
			o := m.Decode()
			assert.Check(t, is.DeepEqual(&tt.want, o.Work))
			assert.Check(t, is.DeepEqual(map[string]uint64{"work": 64}, o.Key))
			f := m.Facts(o)
			if f.Name != tt.want.Queue || string(f.Phase) != tt.want.Phase || m.Name() != tt.want.Queue || m.Function() != 0x80 {
				t.Errorf("facts %+v, name %q, function %#x", f, m.Name(), m.Function())
			}
		})
	}
}

// TestDecodeAnyWork: any bytes will do, and a timeout has a state only if it has a worker.
func TestDecodeAnyWork(t *testing.T) {
	rule := &rules.Rule{Name: "work", Track: rules.Workqueue}
	for seed := range byte(64) {
		raw := &abi.Outlier{Cause: abi.CauseTimeout, Tid: uint32(seed % 2)}
		b := bytes.Repeat([]byte{seed, 255 - seed, 7 * seed, 12}, 2*len(raw.Extra))
		_, err := binary.Decode(b, binary.LittleEndian, &raw.Extra)
		assert.NilError(t, err)
		m := &Message{Outlier: raw, Rule: rule}
		o := m.Decode()
		assert.Check(t, o.Work != nil && (o.Work.Phase == "wait" || o.Work.Phase == "run") &&
			len(o.Work.Queue) <= abi.WorkNameLen, "work %+v", o.Work)
		assert.Check(t, (o.State != "") == (raw.Tid != 0), "state %q of thread %d", o.State, raw.Tid)
		m.Facts(o)
	}
}

// TestTable: the table of kinds is complete, and in the kernel side's order.
func TestTable(t *testing.T) {
	spec, err := bpf.LoadTailcam()
	assert.NilError(t, err)
	assert.Assert(t, len(All) == abi.Trackers && len(rules.Tracks) == abi.Trackers,
		"%d kinds, %d tracks, the kernel side has %d", len(All), len(rules.Tracks), abi.Trackers)
	for n := range All {
		k := &All[n]
		assert.Check(t, k.Number == n && k.Track == rules.Tracks[n] && Of(k.Track) == k,
			"%s is kind %d with number %d", k.Track, n, k.Number)
		assert.Check(t, k.Classes != 0 && k.Floor != nil && k.Decode != nil && k.Full != "" && k.Replaced != "",
			"%s: not all that every kind has: %+v", k.Track, k)
		for _, name := range k.Hooks {
			assert.Check(t, slices.ContainsFunc(trackerHooks, func(h Hook) bool { return h.Program == name }),
				"%s wants the program %s, which is no hook of trackers", k.Track, name)
		}
	}
	for i := range Hooks {
		assert.Check(t, Hooks[i].Part || spec.Programs[Hooks[i].Program] != nil,
			"the kernel side has no program %s", Hooks[i].Program)
	}
}

// TestExtra: what only outliers of one tracker carry has room in outlier.extra.
func TestExtra(t *testing.T) {
	room := unsafe.Sizeof(abi.Outlier{}.Extra)
	for _, size := range []uintptr{
		unsafe.Sizeof(abi.IrqExtra{}), unsafe.Sizeof(abi.Chain{}), unsafe.Sizeof(abi.SpanExtra{}), unsafe.Sizeof(abi.PairExtra{}),
		unsafe.Sizeof(abi.WorkExtra{}),
	} {
		assert.Check(t, size <= room, "%d bytes, but there is room for %d", size, room)
	}
}
