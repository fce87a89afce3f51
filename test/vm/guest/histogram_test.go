package guest

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/adaptive"
)

// Histograms of every kind count each call once, and a threshold that follows
// them is found and written while the rules are in use, on every kernel.
func TestTrackersHistograms(t *testing.T) {
	inGuest(t)
	for _, way := range []rules.Attach{rules.AttachFunction, rules.AttachAll} {
		t.Run(string(way), func(t *testing.T) {
			if way == rules.AttachFunction {
				needFunctions(t)
			}
			testHistograms(t, way)
		})
	}
}

func testHistograms(t *testing.T, way rules.Attach) {
	const calls = 400
	getppid, _ := rules.SyscallNumber("getppid")
	me := []uint32{uint32(os.Getpid())}
	mine := rules.Match{PID: me, Syscall: []int{getppid}}
	rule := func(name string, when rules.Match, h rules.Histogram, overrides ...rules.Override) rules.Rule {
		return rules.Rule{Name: name, Track: rules.Syscall, Attach: way, Threshold: time.Hour, When: when, Histogram: &h, Overrides: overrides}
	}
	list := []rules.Rule{
		rule("plain", mine, rules.Histogram{}),
		rule("by-call", rules.Match{PID: me, Syscall: []int{getppid}, Thread: []rules.Thread{rules.UserThread}}, rules.Histogram{By: rules.BySyscall, Classes: 256}),
		rule("by-cgroup", mine, rules.Histogram{By: rules.ByCgroup, Classes: 1}),
		rule("by-override", mine, rules.Histogram{By: rules.ByOverride}, rules.Override{
			When: rules.Match{UID: []uint32{uint32(os.Getuid())}, Comm: []string{"*"}}, Threshold: time.Minute,
		}),
		{
			Name: "follows", Track: rules.Syscall, Attach: way, When: mine, Histogram: &rules.Histogram{},
			Adaptive: &rules.Adaptive{
				Quantile: 0.9, Times: 3, Floor: time.Microsecond, Ceiling: time.Hour, Window: time.Minute, MinSamples: calls,
			},
		},
	}
	kernel, err := tracker.New(list, &tracker.Options{TrackSelf: true, Tasks: 4096})
	assert.NilError(t, err)
	defer kernel.Close()
	attach(t, kernel)
	controller := adaptive.NewController(kernel)
	now := time.Now()
	assert.NilError(t, controller.Tick(now))
	if s, ok := controller.State("follows", ""); !ok || s.Threshold != 0 {
		t.Errorf("before any call: %+v", s)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range calls {
		unix.Getppid()
	}
	assert.NilError(t, controller.Tick(now.Add(time.Second)))
	s, _ := controller.State("follows", "")
	t.Logf("%d calls: %+v", calls, s)
	assert.Check(t, s.Threshold >= time.Microsecond && s.Samples == calls, "after %d calls: %+v", calls, s)
	_, tuned, err := kernel.Adaptives()
	assert.Check(t, err == nil && len(tuned) == 1 && tuned[0].Threshold == s.Threshold,
		"the kernel side has %+v, %v", tuned, err)
	assert.NilError(t, kernel.Swap(list))
	h, err := kernel.Histograms()
	assert.NilError(t, err)
	for name, class := range map[string]string{"plain": "", "by-call": "getppid", "by-cgroup": "", "by-override": "override 1", "follows": ""} {
		found := false
		for _, c := range h.Rules[name].Classes {
			if c.Name == class || name == "by-cgroup" && c.Count > 0 {
				found = c.Count == calls && c.Min > 0 && c.Min <= c.Max && c.Quantile(0.5) <= c.Max
			}
		}
		if !found {
			t.Errorf("rule %s: %d classes, %d delays in all", name, len(h.Rules[name].Classes), h.Rules[name].All().Count)
		}
	}
	c, err := kernel.Counters()
	assert.Check(t, err == nil && c.HistogramLost <= 0, "counters: %v, %+v", err, c)
}
