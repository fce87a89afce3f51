package trace

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
)

// runRecord is the record of a run from start to end, as the kernel side writes it.
func runRecord(t Type, number int, start, end uint64) Record {
	r := MakeRecord(t, 1, 7, end)
	if t == irqRun {
		put32(&r, abi.OffIrqIrq, number)
		putText(&r, abi.OffIrqName, "eth0")
		put64(&r, abi.OffIrqStartNs, start)
		return r
	}
	if t == spinRun {
		put64(&r, abi.OffLockLock, uint64(number))
		put32(&r, abi.OffLockFlags, 5)
		put64(&r, abi.OffLockStartNs, start)
		return r
	}
	if t == tickRun {
		put64(&r, abi.OffHrtimerHrtimer, uint64(number))
		put64(&r, abi.OffHrtimerFunction, 99)
		put64(&r, abi.OffHrtimerNow, start)
		return r
	}
	put32(&r, abi.OffSoftirqVec, number)
	put32(&r, abi.OffSoftirqIrq, -1)
	put64(&r, abi.OffSoftirqStartNs, start)
	return r
}

// occurrence is what a record says without its names.
type occurrence struct {
	At     uint64
	Type   Type
	Number int
}

func occurrences(t *testing.T, records []Record) (list []occurrence) {
	t.Helper()
	for i := range records {
		ev, err := records[i].Decode()
		assert.NilError(t, err)
		assert.Check(t, ev.CPU == 1 && ev.TID == 7)
		o := occurrence{At: ev.Time, Type: ev.Type}
		switch b := ev.Body.(type) {
		case IRQ:
			o.Number = b.IRQ
			assert.Check(t, b.Name == "eth0" || ev.Type == IRQExit)
		case Lock:
			o.Number = int(b.Lock)
			assert.Check(t, b.OwnerTID == 0 && b.Ret == 0 && (b.Flags == 5 || ev.Type == LockEnd))
		case Hrtimer:
			o.Number = int(b.Hrtimer)
			assert.Check(t, b.Function == 99 && b.Now > 0 || ev.Type == HrtimerExit)
		case Softirq:
			o.Number = int(b.Vec)
			assert.Check(t, !b.AfterIRQ)
		}
		list = append(list, o)
	}
	return list
}

func TestUnfold(t *testing.T) {
	wake := func(at uint64) Record { return MakeRecord(SchedWaking, 1, 7, at) }
	for _, tt := range []struct {
		name     string
		records  []Record
		earliest uint64
		want     []occurrence
	}{
		{"nothing to do", []Record{wake(5), wake(6)}, 0, []occurrence{{5, SchedWaking, 0}, {6, SchedWaking, 0}}},
		{
			"one after the other",
			[]Record{runRecord(softirqRun, 1, 10, 20), runRecord(softirqRun, 3, 20, 30), wake(40)}, 0,
			[]occurrence{{10, SoftirqEntry, 1}, {20, SoftirqExit, 1}, {20, SoftirqEntry, 3}, {30, SoftirqExit, 3}, {40, SchedWaking, 0}},
		},
		{
			"a wake-up within", []Record{wake(5), wake(15), runRecord(softirqRun, 3, 10, 20)}, 0,
			[]occurrence{{5, SchedWaking, 0}, {10, SoftirqEntry, 3}, {15, SchedWaking, 0}, {20, SoftirqExit, 3}},
		},
		{
			"nested, three deep",
			[]Record{runRecord(irqRun, 9, 13, 14), runRecord(irqRun, 8, 12, 15), runRecord(softirqRun, 3, 10, 20)}, 0,
			[]occurrence{{10, SoftirqEntry, 3}, {12, IRQEntry, 8}, {13, IRQEntry, 9}, {14, IRQExit, 9}, {15, IRQExit, 8}, {20, SoftirqExit, 3}},
		},
		{
			"a CPU that spins, interrupted",
			[]Record{runRecord(irqRun, 9, 12, 14), wake(15), runRecord(spinRun, 77, 10, 20)}, 0,
			[]occurrence{{10, LockBegin, 77}, {12, IRQEntry, 9}, {14, IRQExit, 9}, {15, SchedWaking, 0}, {20, LockEnd, 77}},
		},
		{
			"a tick that wakes, in a softirq",
			[]Record{wake(13), runRecord(tickRun, 5, 12, 14), runRecord(softirqRun, 3, 10, 20)}, 0,
			[]occurrence{{10, SoftirqEntry, 3}, {12, HrtimerEntry, 5}, {13, SchedWaking, 0}, {14, HrtimerExit, 5}, {20, SoftirqExit, 3}},
		},
		{
			"begun and ended at once, within", []Record{runRecord(irqRun, 9, 10, 10), runRecord(softirqRun, 3, 10, 20)}, 0,
			[]occurrence{{10, SoftirqEntry, 3}, {10, IRQEntry, 9}, {10, IRQExit, 9}, {20, SoftirqExit, 3}},
		},
		{
			"begun before the window", []Record{wake(105), runRecord(softirqRun, 3, 10, 110)}, 100,
			[]occurrence{{100, SoftirqEntry, 3}, {105, SchedWaking, 0}, {110, SoftirqExit, 3}},
		},
		{
			"begun after its end, says damage", []Record{runRecord(softirqRun, 3, 30, 20)}, 0,
			[]occurrence{{20, SoftirqEntry, 3}, {20, SoftirqExit, 3}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.DeepEqual(t, occurrences(t, Unfold(tt.records, tt.earliest)), tt.want)
		})
	}
}

// Whatever is nested in whatever: entries and exits are in the order of time, and pair like brackets.
func TestUnfoldPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	for range 200 {
		var records []Record
		now, number := uint64(100), 0
		var nest func(depth int)
		nest = func(depth int) {
			start := now
			number++
			own := number
			for now += 1 + rng.Uint64N(3); depth < 3 && rng.IntN(2) == 0; now += rng.Uint64N(3) {
				nest(depth + 1)
			}
			records = append(records, runRecord(irqRun, own, start, now))
		}
		for range 10 {
			nest(0)
			now += 1 + rng.Uint64N(3)
		}
		list := occurrences(t, Unfold(records, 0))
		assert.Equal(t, len(list), 2*len(records))
		var open []int
		last := uint64(0)
		for _, o := range list {
			assert.Assert(t, o.At >= last)
			last = o.At
			if o.Type == IRQEntry {
				open = append(open, o.Number)
				continue
			}
			assert.Assert(t, len(open) > 0 && open[len(open)-1] == o.Number, "%v", list)
			open = open[:len(open)-1]
		}
	}
}

func FuzzUnfold(f *testing.F) {
	a, b, c := runRecord(irqRun, 9, 13, 14), runRecord(softirqRun, 3, 10, 20), runRecord(spinRun, 3, 11, 21)
	f.Add(slices.Concat(a[:], b[:], c[:]), uint64(12))
	f.Fuzz(func(t *testing.T, data []byte, earliest uint64) {
		var records []Record
		for ; len(data) >= RecordSize; data = data[RecordSize:] {
			records = append(records, Record(data[:RecordSize]))
		}
		records = sorted(records)
		runs := 0
		for i := range records {
			if records[i].run() {
				runs++
			}
		}
		out := Unfold(records, earliest)
		assert.Equal(t, len(out), len(records)+runs)
		for i := range out {
			assert.Assert(t, !out[i].run())
			assert.Assert(t, i == 0 || out[i-1].Time() <= out[i].Time())
		}
	})
}
