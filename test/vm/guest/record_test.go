package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/snapshot/iothread"
	"github.com/tailcam/tailcam/test/support/sequence"
	"github.com/tailcam/tailcam/tracker"
)

// camera is the recorder of system calls with its snapshots.
type camera struct {
	t       *testing.T
	kernel  *tracker.Tracker
	manager *snapshot.Manager
	store   *snapshot.Store
	threads []sequence.Thread // of all generators so far
}

func newCamera(t *testing.T, backend string) *camera {
	t.Helper()
	const ringSize = 2 << 20
	opts := &tracker.Options{Groups: []string{"syscall"}, Tasks: 4096}
	if backend == flight.BackendMmap {
		opts.Ring = ringSize
	}
	c := &camera{t: t}
	var err error
	c.kernel, err = tracker.New(nil, opts)
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, c.kernel.Close())
	})
	ring, err := flight.New(c.kernel, backend, ringSize)
	assert.NilError(t, err)
	c.store, err = snapshot.OpenStore(snapshot.StoreOptions{Dir: filepath.Join(t.TempDir(), "snapshots")})
	if errors.Is(err, iothread.ErrTimeout) {
		t.Logf("where threads are:\n%s", threadStacks())
	}
	assert.NilError(t, err)
	c.manager, err = snapshot.New(snapshot.Options{
		Recorder: ring, Store: c.store, RingRecords: ring.Capacity(), SyscallName: rules.SyscallName,
		Missed: func() uint64 { return c.kernel.Missed().Sum() },
	})
	assert.NilError(t, err)
	assert.NilError(t, c.kernel.Attach())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.manager.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.Check(t, <-ended)
	})
	return c
}

// threadStacks are the kernel stacks of this process's threads.
func threadStacks() string {
	var b strings.Builder
	files, _ := filepath.Glob("/proc/self/task/*/stack")
	for _, f := range files {
		stack, err := os.ReadFile(f)
		comm, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "comm"))
		fmt.Fprintf(&b, "%s %s%s%v\n", f, comm, stack, err)
	}
	return b.String()
}

// count lets the generator run on CPUs for a while; meanwhile is called half way.
func (c *camera) count(meanwhile func(), cpus ...int) {
	c.t.Helper()
	g, err := sequence.Start(cpus, 50*time.Microsecond)
	assert.NilError(c.t, err)
	time.Sleep(400 * time.Millisecond)
	if meanwhile != nil {
		meanwhile()
	}
	time.Sleep(400 * time.Millisecond)
	threads, err := g.Stop()
	assert.NilError(c.t, err)
	c.threads = append(c.threads, threads...)
}

// take takes a snapshot, and holds it against the generators' account.
func (c *camera) take() (*snapshot.Meta, sequence.Found) {
	c.t.Helper()
	dir, err := c.manager.TakeNow("test")
	assert.NilError(c.t, err)
	m, err := snapshot.ReadMeta(dir)
	assert.NilError(c.t, err)
	f, err := sequence.Check(dir, c.threads)
	assert.Check(c.t, err, "%s", m.ID)
	c.t.Logf("%s: %d numbers, %d holes told of, %d samples vouched for, %d records refused", m.ID, f.Numbers, f.Holes, f.Vouched, m.Lost)
	return m, f
}

// coverage is what a snapshot says of a CPU.
func coverage(m *snapshot.Meta, cpu int) snapshot.CPUCoverage {
	for _, c := range m.Coverage {
		if c.CPU == cpu {
			return c
		}
	}
	return snapshot.CPUCoverage{}
}

// TestRecordCPUOffline: a CPU that was offline when the rings were made, and
// one that goes and comes back. Plain memory has its records; perf rings, which
// only CPUs that are online can have, lose and count them.
func TestRecordCPUOffline(t *testing.T) {
	inGuest(t)
	power := switchOfCPU1(t)
	for _, backend := range []string{flight.BackendMmap, flight.BackendPerf} {
		t.Run(backend, func(t *testing.T) {
			defer power("1")
			power("0")
			c := newCamera(t, backend)
			c.count(nil, 0)
			power("1")
			c.count(nil, 0, 1)
			m, f := c.take()
			assert.Check(t, f.Vouched != 0, "nothing is vouched for")
			second := coverage(m, 1)
			switch {
			case backend == flight.BackendMmap && (second.Records == 0 || second.Lost > 0):
				t.Errorf("CPU 1 came later: %+v", second)
			case backend == flight.BackendPerf && second.Records == 0 && second.Lost == 0:
				t.Errorf("CPU 1 came later, and nobody says that its records are lost: %+v", second)
			}
			// It goes while its records are in the ring, and more are made elsewhere.
			power("0")
			c.count(nil, 0)
			power("1")
			c.count(nil, 0, 1)
			_, f = c.take()
			assert.Check(t, f.Vouched != 0, "nothing is vouched for after the CPU was away")
		})
	}
}

// TestRecordClockSteps: somebody sets the clock, forth and back. The history
// stays whole and in order; names of snapshots follow the clock, yet none is
// used twice, and their numbers tell the order.
func TestRecordClockSteps(t *testing.T) {
	inGuest(t)
	c := newCamera(t, flight.BackendMmap)
	var last *snapshot.Meta
	for _, by := range []time.Duration{0, time.Hour, -2 * time.Hour, time.Hour} {
		c.count(func() { stepClock(t, by) }, 0, 1)
		m, f := c.take()
		assert.Check(t, f.Vouched != 0, "after a step of %v nothing is vouched for", by)
		id, err := snapshot.ParseID(m.ID)
		assert.NilError(t, err)
		if last != nil {
			before, err := snapshot.ParseID(last.ID)
			assert.NilError(t, err)
			assert.Check(t, id.Number > before.Number && m.Window.ToMonoNS > last.Window.ToMonoNS,
				"after a step of %v: %s to %d follows %s to %d", by, m.ID, m.Window.ToMonoNS, last.ID, last.Window.ToMonoNS)
			// The wall clock has moved by the step, and by what has passed since.
			moved := time.Duration(m.Window.WallMinusMono - last.Window.WallMinusMono)
			d := moved - by
			assert.Check(t, d >= -time.Minute && d <= time.Minute,
				"a step of %v moved the snapshot's clock by %v", by, moved)
		}
		last = m
	}
	list, broken, err := c.store.List()
	assert.Check(t, err == nil && len(list) == 4 && len(broken) == 0,
		"%d snapshots, broken %v, %v", len(list), broken, err)
}
