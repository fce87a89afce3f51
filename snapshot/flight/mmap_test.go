package flight

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// writer is the kernel side of one CPU's ring, in this process.
type writer struct {
	mu    sync.Mutex
	state tracker.Ring
	slots []slot
	size  uint64 // of a part
}

func newWriter(size int) *writer {
	w := &writer{slots: make([]slot, size*abi.RingParts), size: uint64(size)}
	w.state.Held[0] = 1
	return w
}

// write writes the next record as bpf/recorder/ring.h does, round and round: its
// time, in nanoseconds, is its number, and so is every word of its body.
func (w *writer) write() {
	w.mu.Lock()
	n := w.state.Position
	w.state.Position++
	part := n / w.size
	if n%w.size == w.size/2 {
		w.state.Held[(part+1)%uint64(abi.RingParts)] = part + 2
	}
	w.mu.Unlock()
	s := &w.slots[n%uint64(len(w.slots))]
	atomic.StoreUint64(&s[timeWord], 0)
	atomic.StoreUint64(&s[0], uint64(trace.SyscallEntry)|uint64(uint16(part))<<abi.RecordLapShift|7<<32)
	for i := timeWord + 1; i < len(s); i++ {
		atomic.StoreUint64(&s[i], n+1)
	}
	atomic.StoreUint64(&s[timeWord], n+1)
}

func (w *writer) Ring(int) tracker.Ring {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

func (w *writer) Recorded() []tracker.CPUCounters {
	n := w.Ring(0).Position
	return []tracker.CPUCounters{{Recorded: n, Position: [2]uint64{n, 0}}}
}

func (w *writer) Banks() (none [2]*ebpf.Map)   { return none }
func (w *writer) Records() (*ebpf.Map, int)    { return nil, len(w.slots) }
func (w *writer) Freezes() (uint64, error)     { return 0, nil }
func (w *writer) Freeze() (uint64, int, error) { return 0, 0, nil }
func (w *writer) Release(uint64) error         { return nil }
func (w *writer) Names(int) []tracker.Name     { return nil }
func (w *writer) recorder() *Mmap {
	return &Mmap{common: common{kernel: w}, slots: w.slots, ring: len(w.slots), read: make([]uint64, 1), open: make([]uint64, 1)}
}

// numbers checks what was drained against the account: each stretch begins
// where the one before ended and as many are missing as it says.
func (w *writer) numbers(t *testing.T, next uint64, d snapshot.Drained) (end, missing uint64) {
	t.Helper()
	for _, s := range d.CPUs {
		next += s.Missing
		missing += s.Missing
		for i := range s.Records {
			r := &s.Records[i]
			assert.Assert(t, r.Time() == next+1 && r.CPU() == 0 && r.TID() == 7,
				"record %d: time %d, CPU %d, thread %d", next, r.Time(), r.CPU(), r.TID())
			for at := abi.OffRaw; at < trace.RecordSize; at += 8 {
				got := binary.LittleEndian.Uint64(r[at:])
				assert.Assert(t, got == next+1, "record %d is torn: word at %d is of %d", next, at, got-1)
			}
			next++
		}
	}
	return next, missing
}

func TestMmapReadsEachRecordOnce(t *testing.T) {
	w := newWriter(8) // a ring of 128
	m := w.recorder()
	var next uint64
	for _, step := range []struct {
		write   int
		missing uint64
	}{
		{0, 0}, {3, 0}, {1, 0}, {4, 0}, {100, 0}, {20, 0}, {128, 8}, {1000, 1000 - 120}, {1, 0}, // one part of 16 is about to be overwritten
	} {
		for range step.write {
			w.write()
		}
		d, err := m.Drain()
		assert.NilError(t, err)
		var lost uint64
		next, lost = w.numbers(t, next, d)
		assert.Check(t, lost == step.missing,
			"after %d records more: %d missing, want %d", step.write, lost, step.missing)
		assert.Check(t, next == w.state.Position, "read up to %d of %d", next, w.state.Position)
	}
}

// TestMmapUnread: what the rings hold of a daemon before is unread, what other rings held is
// not.
func TestMmapUnread(t *testing.T) {
	w := newWriter(8)
	for range 100 {
		w.write()
	}
	m := w.recorder()
	m.countFrom([]tracker.CPUCounters{{Recorded: 5000, Position: [2]uint64{100, 0}}})
	assert.Equal(t, m.drained[0], uint64(4900))
	m.countFrom(w.Recorded())
	assert.Equal(t, m.Unread(), 100)
	_, err := m.Drain()
	assert.NilError(t, err)
	assert.Equal(t, m.Unread(), 0)
}

// A writer that does not wait for the reader: what is read is whole, and what
// is not is counted.
func TestMmapReadsWhileItIsWritten(t *testing.T) {
	w := newWriter(64)
	m := w.recorder()
	var stop atomic.Bool
	var writing sync.WaitGroup
	writing.Go(func() {
		for !stop.Load() {
			w.write()
		}
	})
	var next, read, missing uint64
	for drains := 0; drains < 300 || read == 0 || missing == 0; drains++ { // it hangs if they never meet
		before := next
		d, err := m.Drain()
		assert.NilError(t, err)
		var lost uint64
		next, lost = w.numbers(t, next, d)
		missing += lost
		read += next - before - lost
	}
	stop.Store(true)
	writing.Wait()
	t.Logf("%d records read, %d were overwritten", read, missing)
}

// A record that is being written, or of another lap, is not there.
func TestSlotTellsWhatIsWhole(t *testing.T) {
	var s slot
	if _, ok := s.read(0, 0); ok {
		t.Error("an empty slot is a record")
	}
	s = slot{uint64(trace.SyscallEntry) | 3<<abi.RecordLapShift | 9<<32, 500, 1, 2, 3, 4, 5, 6}
	r, ok := s.read(300, 3)
	assert.Check(t, ok && r.CPU() == 300 && r.TID() == 9 && r.Time() == 500 && r.Type() == trace.SyscallEntry,
		"read %v, CPU %d, thread %d, time %d", ok, r.CPU(), r.TID(), r.Time())
	_, ok = s.read(0, 2)
	assert.Check(t, !ok, "a record of another lap is taken")
	s[timeWord] = 0
	_, ok = s.read(0, 3)
	assert.Check(t, !ok, "a record that is being written is taken")
}

// FreezeNow has Drain wait for nothing, and claims no more than what had begun before.
func TestMmapFreezeNow(t *testing.T) {
	w := newWriter(8)
	m := w.recorder()
	before := linux.Monotonic()
	now, err := m.FreezeNow()
	assert.NilError(t, err)
	after := linux.Monotonic()
	assert.Check(t, now >= before-uint64(writeTime) && now <= after-uint64(writeTime), "%d, %d, %d", before, now, after)
	assert.Check(t, time.Since(m.frozenAt) >= writeTime, "the next Drain waits")
}
