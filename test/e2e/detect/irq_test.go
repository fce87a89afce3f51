package detect

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/slowirq"
	"github.com/tailcam/tailcam/tracker/events"
)

// interrupts is how often each irq came, by the kernel's own account.
func interrupts(t *testing.T) map[uint32]uint64 {
	t.Helper()
	b, err := os.ReadFile("/proc/interrupts")
	assert.NilError(t, err)
	counts := map[uint32]uint64{}
	for line := range strings.Lines(string(b)) {
		label, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		irq, err := strconv.ParseUint(label, 10, 32)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(rest) {
			n, err := strconv.ParseUint(f, 10, 64)
			if err != nil {
				break
			}
			counts[uint32(irq)] += n
		}
	}
	return counts
}

// busiest writes to the disk below the temporary directory until some irq has
// come, and returns the one that came most.
func busiest(t *testing.T) uint32 {
	t.Helper()
	before := interrupts(t)
	for range 20 {
		disk(t)
	}
	var best uint32
	var most uint64
	for irq, n := range interrupts(t) {
		if n-before[irq] > most {
			best, most = irq, n-before[irq]
		}
	}
	if most == 0 {
		t.Skip("writing to the disk makes no interrupts here")
	}
	return best
}

// disk makes the disk work: a file is written down to it.
func disk(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	assert.NilError(t, err)
	defer os.Remove(f.Name())
	defer f.Close()
	_, err = f.Write(make([]byte, 4096))
	assert.NilError(t, err)
	assert.NilError(t, f.Sync())
}

// A handler of the disk takes 20 ms, and only the rules that mean it report it.
func TestIRQ(t *testing.T) {
	needRoot(t)
	const asked = 20 * time.Millisecond
	irq := busiest(t)
	name := handlerName(t, irq)
	c := watch(t, []rules.Rule{
		{Name: "all", Track: rules.IRQ, Threshold: asked, Stacks: allStacks[:2]},
		{Name: "number", Track: rules.IRQ, Threshold: asked, When: rules.Match{IRQ: []uint32{irq, irq + 256}}},
		{Name: "not-number", Track: rules.IRQ, Threshold: asked, When: rules.Match{NotIRQ: []uint32{irq}}},
		{Name: "name", Track: rules.IRQ, Threshold: asked, When: rules.Match{Name: []string{name[:len(name)-1] + "?"}}},
		{Name: "not-name", Track: rules.IRQ, Threshold: asked, When: rules.Match{NotName: []string{name}, IRQ: []uint32{irq}}},
		{Name: "higher", Track: rules.IRQ, Threshold: time.Microsecond, When: rules.Match{IRQ: []uint32{irq + 256}}},
		{
			Name: "override", Track: rules.IRQ, Threshold: 24 * time.Hour,
			Overrides: []rules.Override{{When: rules.Match{Name: []string{name}}, Threshold: asked}},
		},
	}, nil)
	s := slowirq.Attach(t, "irq_handler_entry", int(irq), false, asked)
	for round := range 5 {
		first := len(c.settle())
		s.Arm()
		truth, err := s.Wait(func() { disk(t) })
		assert.NilError(t, err)
		got := map[string]int{}
		c.eventually("all rules report it", func() error {
			clear(got)
			for _, o := range c.from(first) {
				if o.EndMono >= truth.Start && o.StartMono <= truth.End { // not of a neighbour, by chance
					got[o.Rule]++
				}
			}
			for _, rule := range []string{"all", "number", "name", "override"} {
				if got[rule] == 0 {
					return fmt.Errorf("rule %s has not", rule)
				}
			}
			return nil
		})
		want := map[string]int{"all": 1, "number": 1, "name": 1, "override": 1}
		diff := cmp.Diff(want, got)
		assert.Check(t, diff == "", "round %d: reports by rule (-want +got):\n%s", round, diff)
		for _, o := range c.from(first) {
			if o.EndMono < truth.Start || o.StartMono > truth.End {
				continue
			}
			assert.Check(t, o.StartMono <= truth.Start && o.EndMono >= truth.End && o.IRQ.IRQ != nil &&
				*o.IRQ.IRQ == int(irq) && o.IRQ.Name == name && o.CPU == int(truth.CPU) && o.EntryCPU == o.CPU,
				"reported %+v of irq %d from %d to %d on CPU %d, truth %+v", o.IRQ, irq, o.StartMono, o.EndMono, o.CPU, truth)
			if o.Rule == "all" {
				kernelStack(t, c, o, "irq")
				t.Logf("%v in %s (irq %d) on top of %s[%d], spun for %v", time.Duration(o.DelayNS), o.IRQ.Name, irq, o.Task.Comm, o.Task.TID, truth.Delay())
			}
		}
		// The kernel side has been told of all names by the start.
		n := c.counters().Rules["name"].Undecided
		assert.Check(t, n == 0, "round %d: the daemon was asked for the name %d times", round, n)
	}
}

// handlerName is the name of the one handler of an irq.
func handlerName(t *testing.T, irq uint32) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/sys/kernel/irq/%d/actions", irq))
	if err != nil {
		t.Skip(err)
	}
	name := strings.TrimSpace(string(b))
	if name == "" || len(name) > 31 || strings.Contains(name, ",") {
		t.Skipf("irq %d has the handlers %q", irq, name)
	}
	return name
}

// What was counted lies between what the kernel itself counted within and
// around that time.
func TestIRQCounts(t *testing.T) {
	needRoot(t)
	irq := busiest(t)
	handlerName(t, irq) // one handler: the kernel counts interrupts, not handlers
	sum := func() (n uint64) {
		for _, k := range interrupts(t) {
			n += k
		}
		return n
	}
	outer := sum()
	c := watch(t, []rules.Rule{{Name: "none", Track: rules.IRQ, Threshold: 24 * time.Hour}, neverSlow}, nil)
	inner := sum()
	for range 500 {
		disk(t)
	}
	least := sum() - inner
	assert.NilError(t, c.kernel.Stop())
	most := sum() - outer
	k := c.counters().Trackers[rules.IRQ]
	c.between("irq", k.Seen, least, most)
	assert.Check(t, k.Replaced+k.TableFull <= 0, "lost %+v", k)
}

// A handler that is stuck is reported while it is, and again at its end.
func TestIRQTimeout(t *testing.T) {
	needRoot(t)
	const asked, limit = 150 * time.Millisecond, 50 * time.Millisecond
	irq := busiest(t)
	name := handlerName(t, irq)
	c := watch(t, []rules.Rule{
		{
			Name: "stuck", Track: rules.IRQ, Timeout: limit, When: rules.Match{Name: []string{name}},
		},
		{Name: "elsewhere", Track: rules.IRQ, Timeout: limit, When: rules.Match{NotIRQ: []uint32{irq}}},
	}, nil)
	s := slowirq.Attach(t, "irq_handler_entry", int(irq), false, asked)
	for range 5 {
		first := len(c.settle())
		s.Arm()
		truth, err := s.Wait(func() { disk(t) })
		assert.NilError(t, err)
		var causes []events.Cause
		c.eventually("its end is reported", func() error {
			causes = nil
			for _, o := range c.from(first) {
				causes = append(causes, o.Cause)
			}
			if len(causes) < 2 {
				return fmt.Errorf("%d reports", len(causes))
			}
			return nil
		})
		want := []events.Cause{events.CauseTimeout, events.CauseAfterTimeout}
		assert.Check(t, slices.Equal(causes, want), "reported as %v, want %v", causes, want)
		for _, o := range c.since(first) {
			t.Logf("%s after %v: %s (irq %d) on CPU %d, on top of %s[%d]", o.Cause, time.Duration(o.DelayNS), o.IRQ.Name, *o.IRQ.IRQ, o.CPU, o.Task.Comm, o.Task.TID)
			assert.Check(t, o.Rule == "stuck" && o.StartMono <= truth.Start && o.CPU == int(truth.CPU) &&
				*o.IRQ.IRQ == int(irq) && o.IRQ.Name == name,
				"rule %s reported %+v from %d on CPU %d, truth %+v", o.Rule, o.IRQ, o.StartMono, o.CPU, truth)
			assert.Check(t, o.Cause != events.CauseTimeout || o.EndMono <= truth.End, "reported after it had ended")
		}
	}
}
