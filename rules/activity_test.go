package rules

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestActivity(t *testing.T) {
	list, err := Parse("f", []byte(`
rules:
  - name: slow
    track: activity
    threshold: {quantile: 0.999}
    timeout: 2s
    when: {name: [checkout, "pay-*"], not_name: pay-test, unit: shop.service}
    overrides: [{when: {name: "pay-*"}, threshold: 50ms}]
  - {name: other, track: wakeup, threshold: 5ms}
  - {name: promise, track: trigger, on: {slo: "p99(activity) < 20ms over 5m"}}
`), &LocalMachine{})
	assert.NilError(t, err)
	r := &list[0]
	assert.Equal(t, r.Timeout, 2*time.Second)
	assert.Assert(t, r.Stacks == nil && r.Histogram.By == ByOverride)
	assert.Equal(t, len(Activities(list)), 1)
	assert.Equal(t, len(Tracked(list)), 1)
	for name, want := range map[string]bool{"checkout": true, "pay-card": true, "pay-test": false, "search": false} {
		facts := &Facts{Name: name, Place: Place{Unit: "shop.service"}}
		assert.Equal(t, r.When.Matches(facts), want, name)
	}
	assert.Equal(t, r.LimitsFor(&Facts{Name: "pay-card"}).Threshold, 50*time.Millisecond)
	for _, key := range []string{"tid", "not_cpu", "thread", "syscall", "device", "key"} {
		for _, may := range WhenKeys(Activity) {
			assert.Assert(t, may != key, key)
		}
	}
}
