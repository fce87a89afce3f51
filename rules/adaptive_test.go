package rules

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

const (
	adaptiveAllowed = "; allowed: quantile, times, floor, ceiling, window, min_samples"
	numberAllowed   = "; allowed: a number, such as 0.999"
)

// adaptive is a rule with an adaptive threshold; more of it may follow.
func adaptive(threshold, more string) string {
	return "rules: [{name: a, track: block, threshold: {" + threshold + "}" + more + "}]"
}

var badAdaptive = []struct{ yaml, want string }{
	{adaptive("", ""), "f:1:44: threshold has no quantile; allowed: a quantile above 0.5 and below 1, such as 0.999"},
	{adaptive("quantil: 0.9", ""), `f:1:44: threshold has no quantile; allowed: a quantile above 0.5 and below 1, such as 0.999` +
		"\n" + `f:1:45: unknown key "quantil", did you mean "quantile"` + adaptiveAllowed},
	{adaptive("quantile: 0.5", ""), "f:1:55: quantile is 0.5; allowed: a number above 0.5 and below 1, such as 0.999"},
	{adaptive("quantile: 1", ""), "f:1:55: quantile is 1; allowed: a number above 0.5 and below 1, such as 0.999"},
	{adaptive("quantile: .inf", ""), "f:1:55: quantile is a number" + numberAllowed},
	{adaptive("quantile: 99%", ""), "f:1:55: quantile is a string" + numberAllowed},
	{adaptive("quantile: [0.9]", ""), "f:1:55: quantile is a list" + numberAllowed},
	{adaptive("quantile: 0.9, times: 0.5", ""), "f:1:67: times is 0.5; allowed: a number from 1 to 1000, the multiple of the quantile"},
	{adaptive("quantile: 0.9, times: 2ms", ""), "f:1:67: times is a string" + numberAllowed},
	{adaptive("quantile: 0.9, floor: 5", ""), "f:1:67: floor 5 has no unit" + durationAllowed},
	{adaptive("quantile: 0.9, floor: 5ms, ceiling: 4ms", ""), "f:1:81: ceiling 4ms is below the floor; allowed: at least the floor, 5ms"},
	{adaptive("quantile: 0.9, window: 9s", ""), "f:1:68: window 9s is too short; allowed: a duration from 10s to 24h, such as 5ms"},
	{adaptive("quantile: 0.9, window: 25h", ""), "f:1:68: window 25h is too long; allowed: a duration from 10s to 24h, such as 5ms"},
	{adaptive("quantile: 0.9, min_samples: 0", ""), "f:1:73: min_samples is 0; allowed: an integer from 1 to 1000000000"},
	{adaptive("quantile: 0.999, min_samples: 500", ""),
		"f:1:75: min_samples is 500, too few for the quantile 0.999; allowed: an integer from 1000 to 1000000000"},
	{"rules: [{name: a, track: block, threshold: true}]",
		"f:1:44: threshold is a boolean; allowed: a duration from 1us to 1h, such as 5ms, or a mapping with quantile"},
	{adaptive("quantile: 0.9, floor: 50ms", ", timeout: 20ms"),
		"f:1:83: timeout 20ms is below the threshold; allowed: at least the threshold, 50ms, or no threshold"},
	{adaptive("quantile: 0.9", ", histogram: {by: device}"),
		"f:1:9: a threshold with quantile cannot have a histogram by device; allowed: by: override, or a separate rule for this histogram"},

	{rule("wakeup", "histogram: 5"), "f:1:61: histogram is a number; allowed: true, false, or a mapping with by, classes"},
	{rule("wakeup", "histogram: {}"), "f:1:61: histogram is an empty mapping; allowed: true, false, or a mapping with by, classes"},
	{rule("wakeup", "histogram: {classes: 5}"), "f:1:61: histogram has no by; allowed: by: cgroup, override"},
	{rule("wakeup", "histogram: {by: device}"), `f:1:66: unknown by "device"; allowed: cgroup, override`},
	{rule("block", "histogram: {by: [device, cgroup]}"), "f:1:65: by has 2 values; allowed: one value"},
	{rule("block", "histogram: {by: device, classes: 0}"), "f:1:82: classes is 0; allowed: an integer from 1 to 256"},
	{rule("block", "histogram: {by: override, classes: 9}"), "f:1:75: classes does not apply to by: override; allowed: by: override without classes"},
}

func TestBadAdaptive(t *testing.T) {
	for _, tt := range badAdaptive {
		_, err := Parse("f", []byte(tt.yaml), testMachine{})
		if err == nil {
			t.Errorf("%s\nis taken", tt.yaml)
			continue
		}
		if err.Error() != tt.want {
			t.Errorf("%s\ngot:  %s\nwant: %s", tt.yaml, strings.ReplaceAll(err.Error(), "\n", "\n      "), tt.want)
		}
	}
}

func TestAdaptive(t *testing.T) {
	list, err := Parse("f", []byte(`
rules:
  - {name: whole, track: block, threshold: {quantile: 0.99, times: 3, floor: 2ms, ceiling: 1s, window: 1h, min_samples: 5000}}
  - {name: short, track: syscall, threshold: {quantile: 0.999}, histogram: true}
  - name: some
    track: block
    threshold: 10ms
    overrides:
      - {when: {op: [read]}, threshold: {quantile: 0.99}}
      - {when: {op: [flush]}, threshold: 1s}
  - {name: fixed, track: offcpu, threshold: 1s, histogram: {by: cgroup, classes: 40}}
  - {name: plain, track: wakeup, threshold: 1s, histogram: false}
`), testMachine{})
	assert.NilError(t, err)
	whole, short, some, fixed, plain := &list[0], &list[1], &list[2], &list[3], &list[4]
	want := (Adaptive{0.99, 3, 2 * time.Millisecond, time.Second, time.Hour, 5000})
	assert.Check(t, whole.Adaptive != nil && *whole.Adaptive == want, "got %+v, want %+v", whole.Adaptive, want)
	want = (Adaptive{0.999, 2, time.Millisecond, time.Hour, 10 * time.Minute, 10000})
	assert.Check(t, short.Adaptive != nil && *short.Adaptive == want, "got %+v, want %+v", short.Adaptive, want)
	got := whole.Adaptive.String() + ", " + short.Adaptive.String()
	assert.Check(t, got == "3x p99, 2x p99.9", "in short: %s", got)
	h := whole.Histogram
	assert.Check(t, h != nil && h.By == NoClass && whole.Threshold == 0 && whole.IsAdaptive(),
		"an adaptive rule: %+v", whole)
	assert.Check(t, some.Adaptive == nil && some.Overrides[0].Adaptive != nil && some.Histogram != nil &&
		some.Histogram.By == ByOverride && some.IsAdaptive(), "a rule with an adaptive override: %+v", some)
	l := some.LimitsOf(0)
	assert.Check(t, l.Threshold == 0, "an adaptive override without samples has the threshold %v", l.Threshold)
	h = fixed.Histogram
	assert.Check(t, h != nil && *h == (Histogram{ByCgroup, 40}) && !fixed.IsAdaptive(), "by cgroup: %+v", h)
	assert.Check(t, plain.Histogram == nil, "histogram: false gives %+v", plain.Histogram)
}
