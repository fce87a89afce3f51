package daemon

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	slow "github.com/tailcam/tailcam/internal/inject"
)

// TestSchema: the JSON of an outlier of each tracker has the fields that the
// documentation promises, with values that make sense.
func TestSchema(t *testing.T) {
	needRoot(t)
	disk, err := slow.Slow(t.Context())
	assert.NilError(t, err)
	defer func() {
		assert.Check(t, disk.Close())
	}()
	d := start(t, rulesFile(
		entry("wakeup", "wakeup", "10ms", "{comm: "+slow.CommVictim+"}", "stacks: [kernel, waker]"),
		entry("offcpu", "offcpu", "10ms", "{comm: "+slow.CommBlocked+", state: uninterruptible}", "stacks: [kernel, user, waker]"),
		entry("syscall", "syscall", "10ms", "{comm: "+slow.CommSyscall+", syscall: pread64}", "stacks: [kernel, user]"),
		entry("block", "block", "10ms", "{device: "+disk.Device()+"}"),
	))
	const delay = 25 * time.Millisecond
	inject := map[string]func() (slow.Truth, error){
		"wakeup":  func() (slow.Truth, error) { return slow.Wakeup(t.Context(), delay) },
		"offcpu":  func() (slow.Truth, error) { return disk.Blocked(t.Context(), delay) },
		"syscall": func() (slow.Truth, error) { return disk.Syscall(t.Context(), delay) },
		"block":   func() (slow.Truth, error) { return disk.Read(t.Context(), delay) },
	}
	// caused is one latency of a tracker, and its outlier: of that thread and time.
	caused := func(name string) (found map[string]any, truth slow.Truth) {
		truth, err := inject[name]()
		assert.NilError(t, err, "%s", name)
		eventually(t, "the outlier of "+name+" is published", func() bool {
			for line := range strings.Lines(d.ok("events", "--rule", name, "-o", "json")) {
				var o map[string]any
				assert.NilError(t, json.Unmarshal([]byte(line), &o))
				if number(t, o, "task", "tid") == float64(truth.TID) && o["task"].(map[string]any)["comm"] == truth.Comm &&
					number(t, o, "start_mono_ns") <= float64(truth.EndMono) && number(t, o, "end_mono_ns") >= float64(truth.StartMono) {
					found = o
				}
			}
			return found != nil
		})
		return found, truth
	}
	for name := range inject {
		o, truth := caused(name)
		for try := 0; try < 9 && name == "wakeup" && ranInstead(o) != slow.CommHog; try++ { // others go before a hog
			o, truth = caused(name)
		}
		promised(t, name, o, truth)
	}
}

func ranInstead(o map[string]any) any {
	onCPU, _ := o["on_cpu"].(map[string]any)
	return onCPU["comm"]
}

// promised holds one outlier against the documented fields and the injector.
func promised(t *testing.T, name string, o map[string]any, truth slow.Truth) {
	t.Helper()
	fields := []string{
		"time", "rule", "track", "cause", "delay_ns", "threshold_ns", "key", "task", "cpu",
		"stacks", "snapshot", "suppressed",
	}
	switch name {
	case "wakeup":
		fields = append(fields, "waker", "on_cpu")
	case "offcpu":
		fields = append(fields, "waker", "syscall", "state")
	case "syscall":
		fields = append(fields, "syscall")
	case "block":
		fields = append(fields, "block")
	}
	for _, f := range fields {
		_, ok := o[f]
		assert.Check(t, ok, "an outlier of %s has no %s: %v", name, f, o)
	}
	for f, want := range map[string]string{"rule": name, "track": name, "cause": "threshold"} {
		assert.Check(t, o[f] == want, "an outlier of %s has %s %v", name, f, o[f])
	}
	at, err := time.Parse(time.RFC3339Nano, o["time"].(string))
	assert.Check(t, err == nil && at.Location() == time.UTC, "time %v: %v", o["time"], err)
	pid := number(t, o, "task", "pid")
	assert.Check(t, pid == float64(truth.PID), "an outlier of %s is of process %v, not %d", name, pid, truth.PID)
	got := number(t, o, "delay_ns")
	assert.Check(t, got <= float64(truth.Delay()) && got >= float64(truth.Delay())/2,
		"an outlier of %s took %v ns, injected were %v", name, got, truth.Delay())
	assert.Check(t, number(t, o, "threshold_ns") == 1e7, "threshold_ns is %v", o["threshold_ns"])
	assert.Check(t, name != "block" || o["block"].(map[string]any)["device"] == truth.Device,
		"block is %v, injected on %s", o["block"], truth.Device)
	if name == "block" {
		keys(t, o["block"], "device", "sector", "bytes", "op")
	}
	if name == "syscall" || name == "offcpu" {
		keys(t, o["syscall"], "nr", "name")
		got := o["syscall"].(map[string]any)["name"]
		assert.Check(t, got == "pread64", "the system call of %s is %v", name, got)
	}
	if name == "wakeup" {
		keys(t, o["waker"], "pid", "comm")
		keys(t, o["on_cpu"], "pid", "comm")
		got := ranInstead(o)
		assert.Check(t, got == slow.CommHog, "instead ran %v, injected was %s", got, slow.CommHog)
	}
	stacks, _ := o["stacks"].(map[string]any)
	// A request completes far from the task that asked for it: it has no stack.
	frames, _ := stacks["kernel"].([]any)
	assert.Check(t, len(frames) != 0 || name == "block",
		"an outlier of %s has no kernel stack: %v", name, o["stacks"])
	for f := range stacks {
		assert.Check(t, slices.Contains([]string{"kernel", "user", "waker", "sources"}, f),
			"stacks of %s: %s", name, f)
	}
	// One for each frame, or none at all.
	sources, _ := stacks["sources"].(map[string]any)
	for f, list := range sources {
		frames, _ := stacks[f].([]any)
		got, ok := list.([]any)
		assert.Check(t, ok && len(got) == len(frames), "sources of %s: %v of frames %v", f, list, frames)
	}
}

func keys(t *testing.T, value any, names ...string) {
	t.Helper()
	m, ok := value.(map[string]any)
	for _, n := range names {
		_, has := m[n]
		assert.Check(t, ok && has, "%s is missing in %v", n, value)
	}
}

// number is a number inside of an object; absent: -1.
func number(t *testing.T, o map[string]any, path ...string) float64 {
	t.Helper()
	var at any = o
	for _, p := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return -1
		}
		at = m[p]
	}
	n, ok := at.(float64)
	if !ok {
		return -1
	}
	return n
}
