package daemon

import (
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestBudgetKeepsRules: before a rule for waits is shed, tailcam does without who wakes whom, and the
// rule fires as before.
func TestBudgetKeepsRules(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(entry("slow", "wakeup", "20ms", "{comm: inj-wakeup, preempted: false}")),
		"--budget-cpu", "0.5%", "--recorder-events", "sched")
	begun, stop := time.Now(), load(t)
	for end := begun.Add(2 * time.Minute); d.shed("wakers") == nil; time.Sleep(500 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(end), "wakers are not shed: %+v", d.status().Cost)
		if time.Since(begun) > 45*time.Second { // it ends by itself after a minute
			stop()
			begun, stop = time.Now(), load(t)
		}
	}
	assert.Check(t, d.shed("group sched") != nil && d.shed("rule slow") == nil, "%+v", d.status().Cost.Shed)
	const delay = 60 * time.Millisecond
	provoke(t, 0, "wakeup", "10", strconv.FormatInt(delay.Microseconds(), 10), "0", "1", "4")
	assert.Assert(t, d.shed("rule slow") == nil, "the load costs too much even without wakers")
	told := 0
	for end := time.Now().Add(10 * time.Second); told == 0 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, o := range d.events("slow") {
			told++
			assert.Check(t, o.Waker == nil && o.OnCPU == nil, "woken by %+v, while %+v ran", o.Waker, o.OnCPU)
			assert.Check(t, o.DelayNS >= 20*time.Millisecond.Nanoseconds())
		}
	}
	assert.Check(t, told > 0, "no wait of %s was told of", delay)
}
