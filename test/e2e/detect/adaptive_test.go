package detect

import (
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/adaptive"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	shiftThreads = 8
	shiftSeconds = 5 // each phase
	shiftOutlier = 50 * time.Millisecond
	// shiftFirings is what a shift may fire at most (tracker/adaptive).
	shiftFirings = 128
)

// shiftPhases are what the calls of the load take, one phase after the other.
var shiftPhases = []time.Duration{time.Millisecond, 3 * time.Millisecond, 6 * time.Millisecond}

// shiftArgs are the injector's arguments.
func shiftArgs() []string {
	args := []string{"shift", "8", micros(shiftOutlier), "5"}
	for _, p := range shiftPhases {
		args = append(args, micros(p))
	}
	return args
}

// A load whose delays shift from 1 to 3 and 6 ms: with a threshold that follows
// it, all outliers among them fire, and of the shifts themselves only a few
// delays before the threshold has followed. The same load counts the histograms
// exactly: each delay once, in the rule and in its class, over reloads, too.
func TestAdaptive(t *testing.T) {
	needRoot(t)
	h := hold(t, shiftArgs()...)
	sleep := calls(t, "clock_nanosleep")
	mine := rules.Match{PID: pidOf(h), Comm: []string{"inj-shift"}, Syscall: sleep}
	list := []rules.Rule{
		{
			Name: "follows", Track: rules.Syscall, Attach: rules.AttachAll, When: mine, Histogram: &rules.Histogram{},
			Adaptive: &rules.Adaptive{
				Quantile: 0.99, Times: 2, Floor: 100 * time.Microsecond, Ceiling: time.Second,
				Window: 10 * time.Second, MinSamples: 2000,
			},
		},
		{
			Name: "by-call", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: time.Hour,
			When: rules.Match{PID: pidOf(h), Comm: []string{"inj-shift"}}, Histogram: &rules.Histogram{By: rules.BySyscall, Classes: 4},
		},
		{
			Name: "by-cgroup", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: time.Hour, When: mine,
			Histogram: &rules.Histogram{By: rules.ByCgroup, Classes: 4},
		},
		{
			Name: "by-override", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: time.Hour, When: rules.Match{PID: pidOf(h)},
			Histogram: &rules.Histogram{By: rules.ByOverride},
			Overrides: []rules.Override{
				{When: rules.Match{Comm: []string{"nobody"}}, Threshold: time.Minute},
				{When: rules.Match{Comm: []string{"inj-shift"}, Syscall: sleep}, Threshold: time.Minute},
			},
		},
	}
	c := watch(t, list, nil)
	controller := adaptive.NewController(c.kernel)
	h.LetGo()
	var injected []inject.Event
	var followed []time.Duration
	var awake uint64 // since when it is not quiet
	swaps := 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for over := h.Ended(); injected == nil; {
		select {
		case err := <-over:
			injected = h.Events(err)
		case now := <-tick.C:
			assert.NilError(t, controller.Tick(now))
			s, _ := controller.State("follows", "")
			followed = append(followed, s.Threshold)
			if awake == 0 && s.Threshold > 0 {
				awake = linux.Monotonic()
			}
			if len(followed)%4 == 0 { // rules come and go
				swaps++
				next := slices.Clone(list)
				if swaps%2 == 1 {
					next = append([]rules.Rule{{Name: "new", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: time.Hour, When: mine, Histogram: &rules.Histogram{}}}, next...)
				}
				assert.NilError(t, c.kernel.Swap(next))
			}
		}
	}
	t.Logf("thresholds, second by second: %v", followed)
	assert.Assert(t, awake != 0, "the threshold stayed quiet")
	c.arrived()
	checkShift(t, c, injected, c.from(0), awake, slices.Max(followed))
	checkCounts(t, c, injected)
}

// checkShift holds what fired against the outliers that were planted.
func checkShift(t *testing.T, c *camera, injected []inject.Event, reports []*events.Outlier, awake uint64, highest time.Duration) {
	t.Helper()
	planted, caught, shifted, noise := 0, 0, 0, 0
	used := map[*events.Outlier]bool{}
	late := 0 // that the machine made slow, by the injector's account
	for _, e := range injected {
		if e.Kind == "late" {
			late = int(e.Offset)
		}
		// A machine that makes everything slow raises the threshold above some.
		if e.Kind != inject.Over || e.End < awake+uint64(time.Second) || e.Delay() < highest+tolerance {
			continue
		}
		planted++
		i := slices.IndexFunc(reports, func(o *events.Outlier) bool {
			return o.Task.TID == e.TID && o.StartMono >= e.Start && o.EndMono <= e.End
		})
		if i < 0 {
			t.Errorf("an outlier of %v did not fire", e.Delay())
			continue
		}
		caught++
		used[reports[i]] = true
	}
	for _, o := range reports {
		delay := time.Duration(o.DelayNS)
		switch {
		case used[o] || delay >= shiftOutlier:
		case delay < 2*shiftPhases[len(shiftPhases)-1]:
			shifted++
		default: // the machine did that
			noise++
		}
		assert.Check(t, delay >= time.Duration(o.ThresholdNS),
			"%v fired below the threshold %v", delay, time.Duration(o.ThresholdNS))
	}
	held := c.counters().Rules["follows"].HeldBack
	t.Logf("%d of %d outliers fired; %d delays of the shifts, %d held back; %d that the machine made slow, of %d", caught, planted, shifted, held, noise, late)
	assert.Check(t, planted >= 20 || highest >= shiftOutlier, "only %d outliers planted", planted)
	shifts := len(shiftPhases) - 1
	assert.Check(t, shifted <= shifts*shiftFirings+late,
		"%d delays of %d shifts fired, and %d were late", shifted, shifts, late)
}

// checkCounts holds the histograms against the number of calls.
func checkCounts(t *testing.T, c *camera, injected []inject.Event) {
	t.Helper()
	want := uint64(injected[len(injected)-1].Offset)
	all, err := c.kernel.Histograms()
	assert.NilError(t, err)
	unseen := uint64(c.unseenOf(injected))
	for name, class := range map[string]string{
		"follows": "", "by-call": "clock_nanosleep", "by-cgroup": "*", "by-override": "override 2",
	} {
		r := all.Rules[name]
		if r == nil {
			t.Errorf("rule %s has no histogram", name)
			continue
		}
		i := slices.IndexFunc(r.Classes, func(k tracker.ClassHistogram) bool { return k.Name == class || class == "*" })
		if i < 0 {
			t.Errorf("rule %s has no class %s: %d classes", name, class, len(r.Classes))
			continue
		}
		k := &r.Classes[i]
		got := k.Count + r.Undecided
		assert.Check(t, got <= want && got+unseen >= want,
			"rule %s: %d delays in class %q, %d undecided, but there were %d calls", name, k.Count, k.Name, r.Undecided, want)
		assert.Check(t, k.Min >= 900_000 && k.Max >= uint64(shiftOutlier) && k.Sum >= k.Count*k.Min &&
			k.Sum <= k.Count*k.Max, "rule %s: from %d to %d ns, %d together", name, k.Min, k.Max, k.Sum)
		p50 := time.Duration(k.Quantile(0.5))
		assert.Check(t, p50 >= 900*time.Microsecond && p50 <= shiftOutlier,
			"rule %s: half of them take up to %v", name, p50)
	}
	n := all.Trackers[rules.Syscall].Count
	assert.Check(t, n >= want, "the tracker has %d delays of at least %d", n, want)
}
