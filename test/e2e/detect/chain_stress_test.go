package detect

import (
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// afterStage is what may follow a stage of a chain.
var afterStage = map[string][]string{
	"irq":       {"timer", "raise", "wakeup"},
	"timer":     {"raise", "wakeup"},
	"raise":     {"softirq"},
	"softirq":   {"raise", "wakeup"},
	"wakeup":    {"run"},
	"run":       {"user", "preempted", "lock", "wakeup", "raise"},
	"user":      {"preempted", "lock", "wakeup", "raise"},
	"preempted": {"run", "user"},
	"lock":      {"run", "user"},
}

// wellFormed demands that each stage can follow the one before it, that a task
// goes on as itself, and that the end is one of the task at the end.
func wellFormed(t *testing.T, o *events.Outlier) {
	t.Helper()
	way := stagesOf(t, o)
	stages := o.Chain.Stages
	for i := range stages[1:] {
		a, b := &stages[i], &stages[i+1]
		assert.Check(t, slices.Contains(afterStage[a.Stage], b.Stage), "%s after %s: %s", b.Stage, a.Stage, way)
		goesOn := slices.Contains([]string{"run", "user", "preempted", "lock"}, b.Stage)
		assert.Check(t, !goesOn || a.Task != nil && b.Task != nil && a.Task.TID == b.Task.TID &&
			a.Task.PID == b.Task.PID, "%s of %+v after %s of %+v: %s", b.Stage, b.Task, a.Stage, a.Task, way)
	}
	last := stages[len(stages)-1]
	assert.Check(t, last.Task != nil && last.Task.TID == o.Task.TID, "ends at %+v with %+v: %s", o.Task, last, way)
	assert.Check(t, o.Chain.End != "run" || last.Stage == "wakeup", "runs after %s: %s", last.Stage, way)
}

// Many chains at once, of tasks that wake each other on all CPUs, are each of
// one piece, and nothing of them stays.
func TestChainStress(t *testing.T) {
	needRoot(t)
	all := chainRule("all", time.Microsecond, rules.Origins, rules.Ends, "inj-*")
	all.Stacks = nil
	c := watch(t, []rules.Rule{all}, &tracker.Options{Buffer: 64 << 20})
	var work sync.WaitGroup
	for _, args := range [][]string{
		{"chain", "pipe", "4", "150", "0"},
		{"chain", "pipe", "6", "150", "100"},
		{"chain", "herd", "40", "20", "0"},
		{"chain", "udp", "2", "200", "0"},
	} {
		work.Go(func() { inject.Run(t, args...) })
	}
	work.Wait()
	reports := c.settle()
	ends := map[string]int{}
	for _, o := range reports {
		wellFormed(t, o)
		ends[o.Chain.End]++
	}
	t.Logf("ends %v, %+v, %+v", ends, c.counters().Trackers[rules.Chain], c.counters().Lost)
	for _, end := range rules.Ends {
		assert.Check(t, ends[string(end)] >= 500, "only %d chains to %s", ends[string(end)], end)
	}
	c.carriesNothing()
}

// Tasks that are killed in the middle of their chain take it along.
func TestChainKilled(t *testing.T) {
	needRoot(t)
	c := watch(t, []rules.Rule{chainRule("never", time.Hour, rules.Origins, rules.Ends, "inj-*")}, nil)
	const tries = 10
	for i := 0; i < tries || c.counters().Reclaimed == 0 && i < 5*tries; i++ {
		cmd := exec.CommandContext(t.Context(), inject.Build(t), "chain", "pipe", "3", "100", micros(40*time.Millisecond))
		assert.NilError(t, cmd.Start())
		// Its second thread works most of the time, with the chain.
		time.Sleep(time.Duration(80+7*(i%tries)) * time.Millisecond)
		assert.Check(t, cmd.Process.Kill())
		assert.Check(t, cmd.Wait() != nil, "it was not killed")
	}
	c.carriesNothing()
	c.settle()
	if n := c.counters().Reclaimed; n == 0 {
		t.Error("no task died with a chain")
	} else {
		t.Logf("%d tasks died with a chain", n)
	}
}
