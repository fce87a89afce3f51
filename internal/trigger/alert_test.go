package trigger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
)

// TestAlert: an alert fires each rule that wants it once, and again when it begins anew;
// with the target that its labels name.
func TestAlert(t *testing.T) {
	r := run(t, "", `rules:
  - {name: a, track: trigger, on: {alert: {name: High*, labels: {severity: [page]}}}}
  - {name: b, track: trigger, on: alert, target: {pid: 1}}
  - {name: c, track: trigger, on: {alert: {name: other}}}
`)
	start := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	alert := &Alert{Fingerprint: "f", StartsAt: start, Summary: "p99 is 2 s",
		Labels: map[string]string{"alertname": "HighLatency", "severity": "page", "unit": "web.service", "pod": "a*", "namespace": "shop"}}
	for wanted := 0; wanted == 0; time.Sleep(time.Millisecond) { // until the engine runs
		var fired int
		wanted, fired = r.Alert(alert)
		assert.Check(t, wanted == fired && (wanted == 0 || wanted == 2), "%d, %d", wanted, fired)
	}
	wanted, fired := r.Alert(alert)
	assert.Check(t, wanted == 2 && fired == 0, "again: %d, %d", wanted, fired)
	for _, rule := range []string{"a", "b"} {
		f := <-r.fired
		assert.Check(t, f.Rule.Name == rule && f.Reason == "alert HighLatency (page): p99 is 2 s, since 2026-11-23T09:00:00Z", "%+v", f.Event)
		assert.DeepEqual(t, f.Target, &rules.Target{Places: rules.Places{Unit: []string{"web.service"}, Namespace: []string{"shop"}}})
	}
	alert.StartsAt = start.Add(time.Hour)
	alert.Labels["pid"] = "4711"
	_, fired = r.Alert(alert)
	assert.Check(t, fired == 2)
	assert.DeepEqual(t, (<-r.fired).Target, &rules.Target{PID: 4711})
	for _, pid := range []string{"-1", "0", "4194305000", "1 2", "x"} {
		a := Alert{Labels: map[string]string{"pid": pid}}
		assert.Check(t, a.target() == nil, pid)
	}
	wanted, _ = r.Alert(&Alert{})
	assert.Check(t, wanted == 1, "a rule for all alerts")
}

// TestManyAlerts: alerts take bounded memory, and long ones have short reasons.
func TestManyAlerts(t *testing.T) {
	var s seen
	for i := range 5 * maxSeen {
		assert.Assert(t, s.isNew(fmt.Sprint(i)) && !s.isNew(fmt.Sprint(i)))
	}
	assert.Check(t, len(s.keys) == maxSeen && len(s.order) == maxSeen)
	a := Alert{Summary: strings.Repeat("ä", 1<<20), Labels: map[string]string{"alertname": strings.Repeat("x", 1<<20)}}
	assert.Check(t, len(a.event().Reason) <= maxNotice+len("…"))
}
