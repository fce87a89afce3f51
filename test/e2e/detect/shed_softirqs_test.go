package detect

import (
	"os"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/test/support/slowirq"
	"github.com/tailcam/tailcam/tracker"
)

// TestShedSoftirqs: without the hooks of softirqs, a rule for them reports nothing, and
// those of interrupts stay; back again, each run is reported once.
func TestShedSoftirqs(t *testing.T) {
	needRoot(t)
	const asked = 60 * time.Millisecond
	send, _ := cpus.Packets(t), pinned(t)
	c := watch(t, []rules.Rule{
		{
			Name: "run", Track: rules.Softirq, Threshold: asked,
			When: rules.Match{Phase: []rules.Phase{rules.Run}, Vector: []rules.Vector{"net_rx"}, PID: []uint32{uint32(os.Getpid())}},
		},
		{Name: "irq", Track: rules.IRQ, Threshold: time.Hour},
	}, &tracker.Options{Groups: []string{"sched", "irq", "timer"}})
	s := slowirq.Attach(t, "netif_receive_skb", slowirq.Any, true, asked) // within the run, whoever is attached first
	attached := len(c.kernel.Programs())
	for _, shed := range []bool{false, true, false, true, false} {
		var held []string
		if shed {
			held = []string{"run"}
			assert.NilError(t, c.kernel.Hold(held))
		}
		assert.NilError(t, c.kernel.Shed(&tracker.Shedding{Softirqs: shed}))
		assert.NilError(t, c.kernel.Hold(held))
		var names []string
		for _, p := range c.kernel.Programs() {
			names = append(names, p[0])
		}
		for name, want := range map[string]bool{"softirq_entry": !shed, "softirq_exit": !shed, "irq_handler_entry": true, "irq_handler_exit": true} {
			assert.Check(t, is.Equal(want, slices.Contains(names, name)), "%s, shed %v", name, shed)
		}
		before := len(c.settle())
		s.Arm()
		_, err := s.Wait(send)
		assert.NilError(t, err)
		want := 1
		if shed {
			want = 0
		}
		assert.Check(t, is.Len(c.since(before), want), "shed %v", shed)
	}
	assert.Check(t, is.Len(c.kernel.Programs(), attached))
}

// TestSampledSoftirq: a softirq that is long is found by the interrupts of timers, as the
// one and only that runs.
func TestSampledSoftirq(t *testing.T) {
	needRoot(t)
	const asked = 100 * time.Millisecond
	send, cpu := cpus.Packets(t), pinned(t)
	kernel, err := tracker.New(nil, &tracker.Options{Groups: []string{"sched", "irq", "timer"}, Ring: 4 << 20, TrackSelf: true})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, kernel.Close()) })
	assert.Assert(t, kernel.SamplesSoftirqs(), "this kernel tells nothing of what interrupts a task")
	ring, err := flight.New(kernel, flight.BackendMmap, 4<<20)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, ring.Close()) })
	assert.NilError(t, kernel.Attach())
	assert.NilError(t, kernel.Shed(&tracker.Shedding{Softirqs: true}))
	s := slowirq.Attach(t, "netif_receive_skb", slowirq.Any, true, asked)
	s.Arm()
	truth, err := s.Wait(send)
	assert.NilError(t, err)
	samples := sampledRuns(t, ring, cpu, truth.Start, truth.End)
	same := 0
	for i, r := range samples {
		assert.Check(t, r.Vec == cpus.NetRX && r.Sampled && (i == 0 || r.Same && r.Count == 0), "sample %d: %+v", i, r)
		if r.Same {
			same++
		}
	}
	assert.Check(t, same > 0, "of %v, samples were %+v", asked, samples) // two ticks of 10 ms at least

	assert.NilError(t, kernel.Shed(&tracker.Shedding{}))
	s.Arm()
	truth, err = s.Wait(send)
	assert.NilError(t, err)
	assert.Check(t, is.Len(sampledRuns(t, ring, cpu, truth.Start, truth.End), 0), "sampled although there are hooks")
}

// sampledRuns are the samples of softirqs that a CPU has recorded within a time.
func sampledRuns(t *testing.T, ring flight.Recorder, cpu int, from, to uint64) (samples []trace.ShortRuns) {
	t.Helper()
	_, err := ring.Freeze()
	assert.NilError(t, err)
	drained, err := ring.Drain()
	assert.NilError(t, err)
	assert.NilError(t, ring.Release())
	for _, s := range drained.CPUs {
		if s.CPU != cpu {
			continue
		}
		for _, r := range trace.Unfold(s.Records, 0) {
			ev, err := r.Decode()
			assert.NilError(t, err)
			if b, ok := ev.Body.(trace.ShortRuns); ok && b.Sampled && ev.Time >= from && ev.Time <= to {
				samples = append(samples, b)
			}
		}
	}
	return samples
}
