package daemon

import (
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/budget"
	"github.com/tailcam/tailcam/snapshot"
)

func TestParseEvents(t *testing.T) {
	const stat = "cpu  1 2 3\ncpu0 1 2 3\ncpu3 1 2 3\nintr 900 1 2 3\nctxt 800\nbtime 1\nprocesses 700\nprocs_running 1\nsoftirq 600 5 6\nfuture\n"
	const disks = "   7       0 loop0 10 0 0 0 20 0 0 0 0 0 0 30 0 0 0 40 0\n 254 0 vda 1 0 0 0 2\n\n"
	e, cpus := parseEvents([]byte(stat), []byte(disks))
	assert.Check(t, is.Equal(2, cpus))
	var want budget.Events
	want[budget.Switches], want[budget.Softirqs], want[budget.Interrupts] = 800, 600, 900
	want[budget.Forks], want[budget.Requests] = 700, 103
	assert.Check(t, is.Equal(want, e))

	e, cpus, err := readEvents()
	assert.NilError(t, err)
	assert.Check(t, cpus > 0 && e[budget.Switches] > 0 && e[budget.Softirqs] > 0 && e[budget.Interrupts] > 0 && e[budget.Forks] > 0, "%d CPUs, %v", cpus, e)
	assert.Check(t, privateMemory(os.Getpid()) > 1<<20)
	assert.Check(t, is.Equal(int64(0), privateMemory(1<<22+1)))
}

func TestShedBetween(t *testing.T) {
	d := &daemon{}
	d.cost.past = []interval{
		{part: budget.Part{Kind: budget.Group, Name: "irq"}, from: 100, to: 200, why: "it cost too much"},
		{part: budget.Part{Kind: budget.Histograms}, from: 100, why: "it cost too much"},
		{part: budget.Part{Kind: budget.Group, Name: "irq"}, from: 300, to: 400, why: "it cost too much"},
	}
	irq := func(from, to uint64) snapshot.ShedPart {
		return snapshot.ShedPart{Part: "group irq", FromMonoNS: from, ToMonoNS: to}
	}
	histograms := func(from, to uint64) snapshot.ShedPart {
		return snapshot.ShedPart{Part: "histograms", FromMonoNS: from, ToMonoNS: to}
	}
	const missing = ", so what they would have shown is missing: it cost too much"
	for _, tt := range []struct {
		from, to uint64
		parts    []snapshot.ShedPart
		note     string
	}{
		{0, 99, nil, ""},
		{120, 180, []snapshot.ShedPart{irq(120, 180), histograms(120, 180)}, "tailcam did without group irq, histograms" + missing},
		{
			150, 350, []snapshot.ShedPart{irq(150, 200), histograms(150, 350), irq(300, 350)},
			"tailcam did without group irq, histograms for a part of this history" + missing,
		},
		{201, 299, []snapshot.ShedPart{histograms(201, 299)}, "tailcam did without histograms" + missing},
	} {
		parts, note := d.shedBetween(tt.from, tt.to)
		assert.Check(t, is.DeepEqual(tt.parts, parts), "%d to %d", tt.from, tt.to)
		assert.Check(t, is.Equal(tt.note, note), "%d to %d", tt.from, tt.to)
	}
}

func TestSpend(t *testing.T) {
	var c cost
	window := func(cpu float64, measured bool) *budget.Sample {
		return &budget.Sample{CPUs: 2, Length: 10 * time.Second, Programs: []budget.ProgramCost{
			{Name: "sched_switch", CPU: cpu, Measured: measured}, {Name: "pair_entry", CPU: cpu}, {Name: "pair_entry", CPU: cpu},
		}}
	}
	c.spend(window(0.02, false))
	c.spend(window(0.04, true))
	assert.Check(t, is.DeepEqual(api.ProgramCost{
		Program: "sched_switch", CPU: 0.02, Measured: true, MeasuredNS: 4e8, AssumedNS: 2e8,
	}, *c.spent["sched_switch"]))
	assert.Check(t, is.DeepEqual(api.ProgramCost{Program: "pair_entry", CPU: 0.04, AssumedNS: 12e8}, *c.spent["pair_entry"]))
	c.spend(&budget.Sample{CPUs: 2, Length: 10 * time.Second}) // detached
	assert.Check(t, c.spent["sched_switch"].CPU == 0 && c.spent["sched_switch"].MeasuredNS == 4e8)
}
