package detect

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/test/support/slowirq"
	"github.com/tailcam/tailcam/tracker/events"
)

// pinned keeps the calling goroutine on one CPU for the rest of the test.
func pinned(t *testing.T) int {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var before unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &before))
	cpu := cpus.First(t)
	assert.NilError(t, cpus.Keep(cpu))
	t.Cleanup(func() { _ = unix.SchedSetaffinity(0, &before) })
	return cpu
}

// One net_rx takes 60 ms: its run is reported with that length, and so is the
// wait of the timer softirq that was raised meanwhile.
func TestSoftirq(t *testing.T) {
	const asked = 60 * time.Millisecond
	send, cpu := cpus.Packets(t), pinned(t)
	c := watch(t, []rules.Rule{
		{
			Name: "run", Track: rules.Softirq, Threshold: asked, Stacks: allStacks[:2],
			When: rules.Match{Phase: []rules.Phase{rules.Run}, Vector: []rules.Vector{"net_rx"}, PID: []uint32{uint32(os.Getpid())}},
		},
		{
			Name: "raise", Track: rules.Softirq, Threshold: asked / 3,
			When: rules.Match{Phase: []rules.Phase{rules.Raise}, CPU: []uint32{uint32(cpu)}, Vector: []rules.Vector{"timer"}},
		},
		{
			Name: "elsewhere", Track: rules.Softirq, Threshold: asked / 3,
			When: rules.Match{NotCPU: []uint32{uint32(cpu)}, PID: []uint32{uint32(os.Getpid())}, Vector: []rules.Vector{"net_rx"}},
		},
		{
			Name: "other-vectors", Track: rules.Softirq, Threshold: asked / 3,
			When: rules.Match{NotVector: []rules.Vector{"net_rx"}, Phase: []rules.Phase{rules.Run}, PID: []uint32{uint32(os.Getpid())}},
		},
	}, nil)
	s := slowirq.Attach(t, "softirq_entry", cpus.NetRX, true, asked)
	const rounds = 5
	late := 0
	// A machine that is busy elsewhere may let the timer end too early or late.
	for round := 0; round < rounds || late == 0 && round < 5*rounds; round++ {
		seen := len(c.settle())
		s.Arm()
		wait := cpus.Timer(t, cpu, 20*time.Millisecond)
		truth, err := s.Wait(send)
		assert.NilError(t, err)
		for range 10 {
			send() // these take no time, and are not outliers
		}
		wait()
		runs := 0
		for _, o := range c.since(seen) {
			began, ended := int64(o.StartMono-truth.Start), int64(truth.End-o.EndMono)
			t.Logf("%s: %v, %s by %s[%d], began %d ns after the spin, ended %d ns before",
				o.Rule, time.Duration(o.DelayNS), o.IRQ.Vector, o.Task.Comm, o.Task.TID, began, ended)
			switch {
			case o.IRQ.CPU != cpu || o.CPU != cpu || o.IRQ.IRQ != nil:
				t.Errorf("reported of CPU %d: %+v", o.CPU, o.IRQ)
			case o.Rule == "run":
				runs++
				checkRun(t, c, o, truth)
			case o.Rule == "raise" && o.IRQ.Vector == "timer" && o.IRQ.Phase == "raise":
				if o.StartMono >= truth.Start && o.StartMono < truth.End && o.EndMono >= truth.End {
					late++ // raised by a tick within the spin, and held up until its end
				}
			default:
				t.Errorf("rule %s: %+v", o.Rule, o.IRQ)
			}
		}
		assert.Check(t, runs == 1, "round %d: %d runs reported, want 1", round, runs)
	}
	if t.Logf("%d waits", late); late == 0 {
		t.Error("no timer softirq was reported as held up by the spin")
	}
}

func checkRun(t *testing.T, c *camera, o *events.Outlier, truth slowirq.Spun) {
	t.Helper()
	assert.Check(t, o.StartMono <= truth.Start && o.EndMono >= truth.End && o.IRQ.Vector == "net_rx" && o.IRQ.Phase == "run",
		"reported %+v from %d to %d, spun from %d to %d", o.IRQ, o.StartMono, o.EndMono, truth.Start, truth.End)
	assert.Check(t, o.Task.TID == unix.Gettid() && len(o.Raw.User) != 0,
		"task %+v, %d user frames", o.Task, len(o.Raw.User))
	kernelStack(t, c, o, "udp_sendmsg")
}

// A softirq that is stuck, and one that waits behind it, are reported while they are.
func TestSoftirqTimeout(t *testing.T) {
	const asked, limit = 150 * time.Millisecond, 50 * time.Millisecond
	send, cpu := cpus.Packets(t), pinned(t)
	own := []uint32{uint32(os.Getpid())}
	c := watch(t, []rules.Rule{
		{Name: "run", Track: rules.Softirq, Timeout: limit, When: rules.Match{Phase: []rules.Phase{rules.Run}, PID: own}},
		{Name: "raise", Track: rules.Softirq, Timeout: limit, When: rules.Match{
			Phase: []rules.Phase{rules.Raise}, CPU: []uint32{uint32(cpu)}, Vector: []rules.Vector{"timer"},
		}},
	}, nil)
	s := slowirq.Attach(t, "softirq_entry", cpus.NetRX, true, asked)
	waits := 0
	for try := 0; try < 5 || waits == 0 && try < 25; try++ {
		first := len(c.settle())
		s.Arm()
		wait := cpus.Timer(t, cpu, 20*time.Millisecond)
		truth, err := s.Wait(send)
		assert.NilError(t, err)
		wait()
		var causes []events.Cause
		for _, o := range c.since(first) {
			t.Logf("%s: %s after %v, %s on CPU %d by %s[%d]", o.Rule, o.Cause, time.Duration(o.DelayNS), o.IRQ.Vector, o.CPU, o.Task.Comm, o.Task.TID)
			assert.Check(t, o.CPU == cpu && (o.Cause != events.CauseTimeout || o.EndMono <= truth.End),
				"reported of CPU %d at %d, truth %+v", o.CPU, o.EndMono, truth)
			if o.Rule == "raise" && o.Cause == events.CauseTimeout && o.IRQ.Phase == "raise" && o.IRQ.Vector == "timer" {
				waits++
			}
			if o.Rule == "run" {
				causes = append(causes, o.Cause)
			}
		}
		want := []events.Cause{events.CauseTimeout, events.CauseAfterTimeout}
		assert.Check(t, slices.Equal(causes, want), "run reported as %v, want %v", causes, want)
	}
	assert.Check(t, waits != 0, "no wait was reported before it ended")
}

// What was counted lies between what the kernel itself counted within and
// around that time, in all and for each rule with a histogram.
func TestSoftirqCounts(t *testing.T) {
	needRoot(t)
	send, cpu := cpus.Packets(t), pinned(t)
	one := rules.Match{Phase: []rules.Phase{rules.Run}, Vector: []rules.Vector{"net_rx"}, CPU: []uint32{uint32(cpu)}}
	outer := softirqs(t)
	c := watch(t, []rules.Rule{
		{Name: "all", Track: rules.Softirq, Threshold: 24 * time.Hour, When: rules.Match{Phase: []rules.Phase{rules.Run}}},
		{Name: "one", Track: rules.Softirq, Threshold: 24 * time.Hour, When: one, Histogram: &rules.Histogram{}},
		neverSlow,
	}, nil)
	inner := softirqs(t)
	for range 20000 {
		send()
	}
	end := softirqs(t)
	assert.NilError(t, c.kernel.Stop())
	last := softirqs(t)
	all := func(m map[string][]uint64) (n uint64) {
		for _, row := range m {
			for _, k := range row {
				n += k
			}
		}
		return n
	}
	k := c.counters().Trackers[rules.Softirq]
	c.between("all", k.Seen, all(end)-all(inner), all(last)-all(outer))
	assert.Check(t, k.Replaced+k.TableFull <= 0, "lost %+v", k)
	h, err := c.kernel.Histograms()
	assert.NilError(t, err)
	rx := func(m map[string][]uint64) uint64 { return m["NET_RX"][cpu] }
	got := h.Rules["one"].All()
	c.between("histogram", got.Count, rx(end)-rx(inner), rx(last)-rx(outer))
}

// between holds a count against the kernel's own. Of what interrupts threads
// that the kernel hides from tracers, they are not told either: see unseen.
func (c *camera) between(what string, got, least, most uint64) {
	c.t.Helper()
	unseen := c.unseen()
	c.t.Logf("%s: counted %d, the kernel between %d and %d; %d switches were hidden", what, got, least, most, unseen)
	if unseen > 0 {
		least -= least / 20
	}
	assert.Check(c.t, got >= least && got <= most,
		"%s: counted %d, the kernel between %d and %d", what, got, least, most)
}

// softirqs is how many ran by vector and CPU, by the kernel's own account.
func softirqs(t *testing.T) map[string][]uint64 {
	t.Helper()
	b, err := os.ReadFile("/proc/softirqs")
	assert.NilError(t, err)
	counts := map[string][]uint64{}
	for line := range strings.Lines(string(b)) {
		label, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		for _, f := range strings.Fields(rest) {
			n, err := strconv.ParseUint(f, 10, 64)
			assert.NilError(t, err)
			counts[label] = append(counts[label], n)
		}
	}
	return counts
}
