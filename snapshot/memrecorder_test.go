package snapshot

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// record is a system call's entry on a CPU at a time.
func record(cpu int, at uint64) trace.Record {
	return trace.MakeRecord(trace.SyscallEntry, cpu, 7, at)
}

// bank is what one of memRecorder's two banks holds.
type bank map[int][]trace.Record

// memRecorder keeps the promises of Recorder in memory, overwriting included.
// It says nothing about the kernel side; it drives the manager's bookkeeping.
type memRecorder struct {
	mu       sync.Mutex
	size     int // records per CPU and bank
	live     bank
	other    bank
	frozen   bool
	frozenAt uint64
	lost     map[int]uint64
	missing  map[int]uint64 // overwritten in the live bank
	kept     map[int]uint64 // in the other one
	drained  []trace.Record
	fail     error  // of Drain
	drains   func() // called by Drain
}

func newMemRecorder(size int) *memRecorder {
	return &memRecorder{size: size, live: bank{}, other: bank{}, lost: map[int]uint64{}, missing: map[int]uint64{}, kept: map[int]uint64{}}
}

func (m *memRecorder) write(cpu int, at uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[cpu] = append(m.live[cpu], record(cpu, at))
	if len(m.live[cpu]) > m.size {
		m.live[cpu] = m.live[cpu][1:]
		m.missing[cpu]++
	}
}

// outlier freezes as the kernel side does at an outlier.
func (m *memRecorder) outlier(at uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.freezeLocked(at)
}

func (m *memRecorder) freezeLocked(at uint64) {
	if !m.frozen {
		m.frozen, m.frozenAt = true, at
		m.live, m.other = m.other, m.live
		m.missing, m.kept = m.kept, m.missing
	}
}

func (m *memRecorder) Freeze() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.freezeLocked(linux.Monotonic())
	return m.frozenAt, nil
}

func (m *memRecorder) FreezeNow() (uint64, error) { return m.Freeze() }

func (m *memRecorder) Drain() (Drained, error) {
	if m.drains != nil {
		m.drains()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.frozen {
		return Drained{}, errors.New("drain without freeze")
	}
	var d Drained
	for cpu, r := range m.other {
		d.CPUs = append(d.CPUs, CPUStream{CPU: cpu, Records: r, Missing: m.kept[cpu]})
		m.drained = append(m.drained, r...)
	}
	m.other = bank{}
	clear(m.kept)
	return d, m.fail
}

func (m *memRecorder) Release() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = false
	return nil
}

func (m *memRecorder) Unread() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := 0
	for _, r := range m.live {
		most = max(most, len(r))
	}
	return most
}

func (m *memRecorder) isFrozen() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frozen
}

func (m *memRecorder) Coverage() []Coverage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return []Coverage{{CPU: 0, Records: 1, Lost: m.lost[0]}, {CPU: 1, Records: 1, Lost: m.lost[1]}, {CPU: 2}}
}

func testStore(t *testing.T, o StoreOptions) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "snapshots")
	}
	s, err := OpenStore(o)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// running starts a manager, and waits until it runs; stop ends it and waits.
func running(t *testing.T, o Options) (m *Manager, stop func()) {
	t.Helper()
	m, err := New(o)
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.Check(t, <-ended)
	})
	t.Cleanup(stop)
	m.Release()
	for m.Stats().Drains+m.Stats().DrainErrors == 0 {
		time.Sleep(time.Millisecond) // hangs if Run does not begin
	}
	return m, stop
}

func rule(name string, after time.Duration) *rules.Rule {
	return &rules.Rule{
		Name: name, Track: rules.Wakeup, Threshold: time.Millisecond,
		Snapshot: rules.SnapshotPolicy{Enabled: true, After: after, Every: time.Second, Burst: 1},
	}
}

func outlierAt(name string, start, end uint64) *events.Outlier {
	return &events.Outlier{
		Time: ReadClock().Wall(end), Rule: name, Track: "wakeup", Cause: events.CauseThreshold,
		DelayNS: int64(end - start), ThresholdNS: int64(time.Millisecond),
		Task:      events.Task{PID: 10, TID: 11, Comm: "victim"},
		StartMono: start, EndMono: end, WantsSnapshot: true,
	}
}

func meta(t *testing.T, dir string) *Meta {
	t.Helper()
	m, err := ReadMeta(dir)
	assert.NilError(t, err)
	return m
}
