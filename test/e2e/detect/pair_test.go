package detect

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
)

// pairRules reads rules as a rule file has them.
func pairRules(t *testing.T, yaml string) []rules.Rule {
	t.Helper()
	list, err := rules.Parse(t.Name(), []byte(yaml), &rules.LocalMachine{})
	assert.NilError(t, err)
	return list
}

func TestPairByThread(t *testing.T) {
	h := hold(t, "syscall", "sleep", "8", micros(20*time.Millisecond), "20", micros(time.Millisecond), "2")
	own := "when: {pid: " + strconv.Itoa(h.PID()) + "}"
	c := watch(t, pairRules(t, `
rules:
  - name: raw
    track: pair
    entry: raw_tracepoint:sys_enter
    exit: raw_tracepoint:sys_exit
    key: tid
    entry_when: args.id == `+strconv.Itoa(calls(t, "clock_nanosleep")[0])+`
    threshold: 5ms
    `+own+`
    labels: {call: args.id, ret: exit.args.ret}
  - name: record
    track: pair
    entry: tracepoint:syscalls:sys_enter_clock_nanosleep
    exit: tracepoint:syscalls:sys_exit_clock_nanosleep
    key: [tid, pid]
    threshold: 5ms
    `+own+`
    labels: {flags: args.flags, ret: exit.args.ret}
`), &tracker.Options{})
	h.LetGo()
	events := h.Wait()
	must, _, either := inject.Split(events, 5*time.Millisecond, time.Millisecond)
	seen := map[string]int{}
	for _, o := range c.settle() {
		seen[o.Rule]++
		assert.Check(t, o.Key["tid"] == uint64(o.Task.TID) && o.Labels["ret"] == int64(0),
			"key %v, labels %v of task %+v", o.Key, o.Labels, o.Task)
		assert.Check(t, slices.ContainsFunc(slices.Concat(must, either), func(e inject.Event) bool {
			return e.TID == o.Task.TID && o.StartMono >= e.Start && o.EndMono <= e.End
		}), "not injected: %+v", o)
		assert.Check(t, o.Rule != "record" || o.Key["pid"] == uint64(o.Task.PID),
			"key %v of task %+v", o.Key, o.Task)
	}
	n := seen["raw"]
	assert.Check(t, n == seen["record"] && n >= len(must) && n <= len(must)+len(either) && len(must) != 0,
		"reported %v of %d", seen, len(must))
}
