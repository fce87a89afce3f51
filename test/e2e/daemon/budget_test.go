package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
)

// TestBudget: under a load that costs more than the budget, the group that is
// worth least is shed, log, status and snapshots say so, and it comes back after
// the load.
func TestBudget(t *testing.T) {
	needRoot(t)
	budget := "1.5%"
	if underUnit { // whose prices are assumed, and lower
		budget = "1%"
	}
	d := start(t, rulesFile(
		entry("slow", "wakeup", "1h", "{comm: [nobody-has-this]}", "priority: 90"),
		entry("blocked", "offcpu", "1h", "{comm: [nobody-has-this]}", "priority: 10"),
	), "--budget-cpu", budget, "--recorder-events", "sched,irq,process,syscall")
	const group = "group syscall"
	cost := func() *api.CostStatus {
		s := d.status()
		return s.Cost
	}
	stop := load(t)
	soon := func(what string, limit, every time.Duration, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(limit); !holds(); time.Sleep(every) {
			if time.Now().After(end) {
				t.Fatalf("not within %s: %s; %+v", limit, what, cost())
			}
		}
	}
	soon("system calls are shed", time.Minute, 500*time.Millisecond, func() bool { return d.shed(group) != nil })
	c := cost()
	assert.Check(t, c.CPUs > 0 && c.BudgetCPU > 0.009 && c.BudgetCPU < 0.06 && c.Steps > 0, "%+v", c)
	assert.Check(t, c.MemoryBytes > c.MapBytes && c.MapBytes > 0, "%+v", c)
	assert.Check(t, is.Equal(c.HeapLimit, c.BudgetMemory-c.MapBytes), "%+v", c)
	if underUnit { // which lacks CAP_SYS_ADMIN
		assert.Check(t, !c.Measured && c.PriceScale > 0, "prices are not scaled to this machine: %+v", c)
	} else {
		assert.Check(t, c.Measured && c.PriceScale == 0, "prices are not measured: %+v", c)
	}
	assert.Check(t, is.Equal(group, c.Shed[0].Part), "the first that is shed: %+v", c.Shed)
	for _, s := range c.Shed {
		assert.Check(t, s.Why != "" && s.Times > 0 && !s.Since.IsZero(), "%+v", s)
	}
	assert.Check(t, d.log.count(`"part":"group syscall"`) > 0, "the log says nothing of it")
	text := d.ok("status")
	assert.Check(t, strings.Contains(text, "shed since ") && strings.Contains(text, group), text)

	dir := strings.TrimSpace(d.ok("snapshot", "--reason", "budget"))
	m, err := snapshot.ReadMeta(d.root + dir)
	assert.NilError(t, err)
	inShed := func(s snapshot.ShedPart) bool { return s.Part == group && s.FromMonoNS < s.ToMonoNS }
	assert.Check(t, slices.ContainsFunc(m.Shed, inShed), "%+v", m.Shed)
	assert.Check(t, strings.Contains(strings.Join(m.Notes, "\n"), "tailcam did without "+group), "%q", m.Notes)

	stop()
	// To answer costs the daemon, too: asked twice a second, it stays above the budget.
	told := 0
	soon("everything is back, and the log says so", 10*time.Minute, 100*time.Millisecond, func() bool {
		before := told
		told = d.log.count("back within the budget")
		return told > before && len(cost().Shed) == 0
	})
	c = cost()
	assert.Check(t, c.Returns >= c.Steps, "%d returns of %d steps", c.Returns, c.Steps)
}

// shed is what the daemon tells of a part that is shed; nil: it is not.
func (d *running) shed(part string) *api.ShedInfo {
	c := d.status().Cost
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.Shed, func(s api.ShedInfo) bool { return s.Part == part })
	if i < 0 {
		return nil
	}
	return &c.Shed[i]
}

// behind demands that hooks are detached that cost more than a limit of their own, while work passes them.
func (d *running) behind(hooks, key string, work func()) {
	d.t.Helper()
	for end := time.Now().Add(time.Minute); ; work() {
		if s := d.shed(hooks); s != nil {
			assert.Check(d.t, s.Times > 0 && strings.Contains(s.Why, key), "%+v", s)
			return
		}
		assert.Assert(d.t, time.Now().Before(end), "%s are attached still: %+v", hooks, d.status().Cost)
	}
}
