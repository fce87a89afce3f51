package detect

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
)

// Two rules beside each other.
func twoRules() []rules.Rule {
	return []rules.Rule{
		{Name: "storm", Track: rules.OffCPU, Threshold: threshold, When: rules.Match{Comm: []string{"inj-offcpu"}}},
		{Name: "legit", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: threshold, When: rules.Match{Comm: []string{"inj-syscall"}, Syscall: []int{nanosleepCall}}},
	}
}

// nanosleepCall is clock_nanosleep.
var nanosleepCall = func() int { nr, _ := rules.SyscallNumber("clock_nanosleep"); return nr }()

// Nobody reads, and one rule has more outliers than the ring buffer holds: what
// another rule has afterwards still finds room.
func TestRingShares(t *testing.T) {
	c := load(t, twoRules(), &tracker.Options{Buffer: 256 << 10})
	inject.Run(t, "offcpu", "sleep", "400", micros(over), "0", "1", "32")
	k := c.counters()
	assert.Assert(t, k.Rules["storm"].RingFull != 0, "the buffer is not full: %+v", k.Rules["storm"])
	events := inject.Run(t, "syscall", "sleep", "8", micros(over), "0", "1", "1")
	k = c.counters()
	n := k.Rules["legit"]
	assert.Check(t, n.Outliers == uint64(len(events)) && n.RingFull == 0, "%d injected, %+v", len(events), n)
	c.read()
	c.arrived()
	legit := len(only("legit", c.from(0)))
	assert.Check(t, legit == len(events), "%d of %d told", legit, len(events))
	t.Logf("storm: %d told, %d lost; legit: %d told", k.Rules["storm"].Outliers, k.Rules["storm"].RingFull, legit)
	// What was read is given back: there is room for all again.
	before := k.Rules["storm"].RingFull
	inject.Run(t, "offcpu", "sleep", "16", micros(over), "0", "1", "4")
	c.arrived()
	n = c.counters().Rules["storm"]
	assert.Check(t, n.RingFull == before, "%d lost in an empty buffer", n.RingFull-before)
}

// The rate limit lets a burst through and no more, counts the rest, and leaves other rules alone.
func TestRateLimit(t *testing.T) {
	const burst = 50
	c := watch(t, twoRules(), &tracker.Options{Rate: 1, Burst: burst})
	start := time.Now()
	events := inject.Run(t, "offcpu", "sleep", "300", micros(over), "0", "1", "16")
	legit := inject.Run(t, "syscall", "sleep", "20", micros(over), "0", "1", "2")
	c.arrived()
	k := c.counters()
	storm := k.Rules["storm"]
	// One more each second, and the scheduler's own sleeps may be among them.
	most := uint64(burst + time.Since(start)/time.Second + 1)
	assert.Check(t, storm.Outliers >= burst && storm.Outliers <= most &&
		storm.Limited+storm.Outliers+uint64(c.unseenOf(events)) >= uint64(len(events)),
		"%d injected: %d told, %d limited; want %d to %d told", len(events), storm.Outliers, storm.Limited, burst, most)
	n := k.Rules["legit"]
	assert.Check(t, n.Outliers == uint64(len(legit)) && n.Limited == 0, "%d injected: %+v", len(legit), n)
	pressures, err := c.kernel.Pressures()
	assert.Check(t, err == nil && pressures["storm"] == (tracker.Pressure{Limited: storm.Limited, Outliers: storm.Outliers}),
		"pressures %+v, %v", pressures, err)
}

// A rule that was held begins with a few outliers, not with a burst.
func TestHoldAllowsFew(t *testing.T) {
	c := watch(t, twoRules(), &tracker.Options{Rate: 1, Burst: 500})
	for _, held := range [][]string{{"storm"}, nil} {
		assert.NilError(t, c.kernel.Hold(held))
	}
	start := time.Now()
	inject.Run(t, "offcpu", "sleep", "100", micros(over), "0", "1", "16")
	c.arrived()
	n := c.counters().Rules["storm"]
	most := uint64(21 + time.Since(start)/time.Second)
	assert.Check(t, n.Outliers >= 20 && n.Outliers <= most && n.Limited != 0,
		"%d told, %d limited; want 20 to %d told", n.Outliers, n.Limited, most)
}

// A rule that is held fires nothing, over new rules too, and goes on afterwards.
func TestHold(t *testing.T) {
	list := twoRules()
	list[0].Timeout = list[0].Threshold
	c := watch(t, list, nil)
	naps := func() { inject.Run(t, "offcpu", "sleep", "8", micros(over), "0", "1", "4") }
	count := func() uint64 { c.arrived(); return c.counters().Rules["storm"].Outliers }
	naps()
	first := count()
	assert.Assert(t, first != 0, "nothing is told")
	for _, step := range []func() error{
		func() error { return c.kernel.Hold([]string{"storm"}) },
		func() error { return c.kernel.Swap(list) },
		func() error { return c.kernel.Hold([]string{"storm", "legit"}) },
	} {
		assert.NilError(t, step())
		naps()
		n := count()
		assert.Check(t, n == first, "%d told while it is held", n-first)
	}
	assert.NilError(t, c.kernel.Hold(nil))
	naps()
	legit := inject.Run(t, "syscall", "sleep", "4", micros(over), "0", "1", "1")
	assert.Check(t, count() != first, "nothing is told after it is resumed")
	n := c.counters().Rules["legit"].Outliers
	assert.Check(t, n == uint64(len(legit)), "%d of %d told of the other one", n, len(legit))
}
