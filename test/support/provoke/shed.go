package provoke

import (
	"os"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// Shed demands that nothing is recorded of groups that are shed, all is of others,
// and what only they need is detached until they are back.
func Shed(t *testing.T) {
	groups := map[string][]trace.Type{
		"sched":   {trace.SchedSwitch, trace.SchedWaking},
		"process": {trace.ProcessFork, trace.ProcessExec, trace.ProcessExit},
		"timer":   {trace.HrtimerEntry, trace.HrtimerExit},
	}
	history := Start(t, []string{"sched", "process", "timer"}, 0)
	all := len(history.Kernel.Programs())
	count := func(seen map[string]int) {
		for _, e := range history.Take() {
			for name, types := range groups {
				if slices.Contains(types, e.Type) {
					seen[name]++
				}
			}
		}
	}
	for _, shed := range [][]string{{"sched"}, {"process", "timer"}, {"sched", "process", "timer"}, nil, {"timer"}, nil} {
		assert.NilError(t, history.Kernel.Shed(&tracker.Shedding{Groups: shed}))
		count(map[string]int{}) // of what was before
		seen := map[string]int{}
		const least = 20 // times, whatever has been seen
		end := time.Now().Add(Patience)
		for i := 0; i < least || len(seen) < len(groups)-len(shed) && time.Now().Before(end); i++ {
			process, err := os.StartProcess("/proc/self/exe", []string{"true", "-test.run=^$"}, &os.ProcAttr{})
			assert.NilError(t, err)
			_, err = process.Wait()
			assert.NilError(t, err)
			time.Sleep(5 * time.Millisecond)
			count(seen)
		}
		for name := range groups {
			assert.Check(t, is.Equal(!slices.Contains(shed, name), seen[name] > 0), "shed %v: %d events of %s", shed, seen[name], name)
		}
	}
	assert.Check(t, is.Len(history.Kernel.Programs(), all))
	assert.NilError(t, history.Kernel.Shed(&tracker.Shedding{Groups: []string{"sched", "process", "timer"}}))
	assert.Check(t, is.Len(history.Kernel.Programs(), 0))
}
