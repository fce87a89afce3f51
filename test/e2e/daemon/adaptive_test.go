package daemon

import (
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
)

// TestAdaptiveThreshold: a threshold that follows the load is quiet at first,
// then where the load is, also after a reload; the histogram counts every call.
func TestAdaptiveThreshold(t *testing.T) {
	needRoot(t)
	uid := newUID()
	when := "{uid: " + strconv.Itoa(uid) + ", comm: inj-shift, syscall: clock_nanosleep}"
	text := rulesFile(
		entry("follows", "syscall", "{quantile: 0.95, times: 2, floor: 500us, window: 30s, min_samples: 1000}", when),
		entry("counts", "syscall", "1h", when, "histogram: {by: syscall}"),
	)
	d := newHome(t, text).start(t)
	adaptive := func() *api.AdaptiveInfo {
		t.Helper()
		r := d.status().rule("follows")
		assert.Assert(t, r.Adaptive != nil && r.ThresholdNS == r.Adaptive.ThresholdNS,
			"the rule has a threshold of %d, and %+v", r.ThresholdNS, r.Adaptive)
		return r.Adaptive
	}
	if a := adaptive(); !a.Quiet || a.Samples != 0 || a.MinSamples != 1000 {
		t.Errorf("at first: %+v", a)
	}

	events := provoke(t, uid, "shift", "4", "50000", "4", "2000")
	n := uint64(events[len(events)-1].Offset)
	eventually(t, "the threshold is found", func() bool { return adaptive().Samples == n })
	a := adaptive()
	truth := events[len(events)-1].Delay() // that one call in twenty exceeded, by the injector's clock
	t.Logf("%d calls of 2ms, every twentieth above %v: %+v", n, truth, a)
	assert.Check(t, !a.Quiet && a.QuantileNS >= 1_900_000 && a.ThresholdNS >= 3_800_000,
		"after calls of 2ms: %+v", a)
	if got := time.Duration(a.QuantileNS); got > truth*12/10 { // its calls are no longer than they are to the injector
		t.Errorf("the quantile is %v, but every twentieth call took more than %v", got, truth)
	}
	assert.Check(t, len(lines[api.HistogramInfo](t, d.ok("histogram", "-o", "json"))) >= 4,
		"tailcam histogram shows too little")
	counted := func(what string) {
		t.Helper()
		list := lines[api.HistogramInfo](t, d.ok("histogram", "counts", "-o", "json"))
		assert.Check(t, len(list) >= 2 && list[0].Count == n && list[1].Class == "clock_nanosleep" &&
			list[1].Count == n && list[0].MinNS >= 1_800_000 && list[0].Undecided == 0,
			"%s: %d calls, but the histogram is %+v", what, n, list)
	}
	counted("at the end")

	// A reload, with another rule before.
	writeFile(t, d.rules, rulesFile(entry("new", "syscall", "1h", when, "histogram: true"))+text[len("rules:\n"):], 0o644)
	d.reload(reloaded)
	now := adaptive()
	assert.Check(t, !now.Quiet && now.ThresholdNS >= a.ThresholdNS/2 && now.Samples == n,
		"before the reload %+v, after it %+v", a, now)
	counted("after a reload")
	r := d.status().rule("counts")
	assert.Check(t, r.Samples == n && r.P999NS >= 1_900_000, "status: %+v", r)
}
