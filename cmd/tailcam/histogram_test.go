package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
)

func TestHistogram(t *testing.T) {
	_, socket := serve(t)
	status, stdout, stderr := invoke(t, "histogram", "--socket", socket)
	assert.Check(t, status == exitOK && stderr == "" && strings.HasPrefix(stdout, "NAME   CLASS  ") &&
		strings.Count(stdout, "\n") == 5, "status %d, stderr %q\n%s", status, stderr, stdout)
	status, stdout, stderr = invoke(t, "histogram", "disk", "--socket", socket)
	for _, part := range []string{"FROM", strings.Repeat("█", barWidth) + "\n", "▏\n", "disk  vda", "disk  other", "3ns", "7 unclassified"} {
		assert.Check(t, strings.Contains(stdout, part),
			"status %d, stderr %q: no %q in\n%s", status, stderr, part, stdout)
	}
	status, stdout, _ = invoke(t, "histogram", "-o", "json", "--socket", socket)
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n == 4 && strings.Contains(stdout, `"p999_ns"`),
		"json: status %d, %s", status, stdout)
	status, _, stderr = invoke(t, "histogram", "dusk", "--socket", socket)
	assert.Check(t, status == exitError && stderr == "tailcam: no histogram \"dusk\": must be one of block, disk\n",
		"unknown: status %d, stderr %q", status, stderr)
}

func TestAdaptiveRules(t *testing.T) {
	a := api.AdaptiveInfo{Quantile: 0.999, Times: 2, MinSamples: 10000, Samples: 500, Quiet: true}
	r := api.RuleInfo{Adaptive: &a, Overrides: []api.OverrideInfo{{Index: 2, Adaptive: api.AdaptiveInfo{
		Quantile: 0.99, Times: 1.5, Samples: 20000, QuantileNS: 2e6, ThresholdNS: 3e6,
	}}}}
	got := []string{thresholdCell(&r).Text, ruleNote(&r).Text}
	a.Quiet, a.QuantileNS, r.ThresholdNS = false, 4e6, 8e6
	got = append(got, thresholdCell(&r).Text, ruleNote(&r).Text)
	want := []string{
		"quiet", "500 of 10,000 samples; override 2 ~3.00ms: 1.5x p99 2.00ms of 20,000 samples",
		"~8.00ms", "2x p99.9 4.00ms of 500 samples; override 2 ~3.00ms: 1.5x p99 2.00ms of 20,000 samples",
	}
	assert.Check(t, is.DeepEqual(want, got))
}
