package record

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/histogram"
)

var twoRules = []rules.Rule{{Name: "wakeup", Track: rules.Wakeup}, {Name: "disk-slow", Track: rules.Block}, {Name: "oom", Track: rules.Trigger}}

// withDelays is a run in which each rule has these delays, in ms.
func withDelays(outliers uint64, ms ...uint64) *Report {
	r := &Report{}
	for i := range twoRules {
		var h histogram.Histogram
		for _, d := range ms {
			h.Add(d*1e6, 1)
		}
		info := api.NewHistogram(&h, api.HistogramInfo{})
		rule := Rule{Name: twoRules[i].Name, Track: string(twoRules[i].Track), Outliers: outliers, MaxNS: int64(h.Max), Histogram: &info}
		if twoRules[i].Track == rules.Trigger {
			rule.Histogram, rule.MaxNS = nil, 0
		}
		r.Rules = append(r.Rules, rule)
	}
	return r
}

func TestExpressions(t *testing.T) {
	hundred := make([]uint64, 100)
	for i := range hundred {
		hundred[i] = uint64(i + 1)
	}
	for expression, failed := range map[string]bool{
		"count(wakeup) > 2": true, "count(wakeup)>3": false, " count( disk-slow ) >= 3 ": true, "count(oom) <= 3": true, "count(oom) < 3": false,
		"max(wakeup) > 99ms": true, "max(wakeup) > 100ms": false, "max(wakeup) >= 100ms": true,
		"p50(wakeup) > 40ms": true, "p50(wakeup) > 60ms": false, "p90(wakeup) > 80ms": true, "p90(wakeup) > 0.1s": false,
		"p99(disk-slow) > 90ms": true, "p99(disk-slow) > 1m": false, "p99.9(wakeup) > 95ms": true, "p99.9(wakeup) < 95ms": false,
	} {
		checks, err := ParseChecks([]string{expression}, twoRules, false)
		assert.NilError(t, err, "%s", expression)
		r := withDelays(3, hundred...)
		r.Judge(checks)
		assert.Check(t, r.Passed != failed && checks[0].Failed == failed, "%s: %+v", expression, checks[0])
		want := 0
		if failed {
			want = 3
		}
		assert.Check(t, is.Equal(r.Status(), want), "%s", expression)
	}
}

func TestBadExpressions(t *testing.T) {
	for expression, says := range map[string]string{
		"":                        "FUNCTION(RULE) OPERATOR LIMIT",
		"wakeup > 5ms":            "FUNCTION(RULE) OPERATOR LIMIT",
		"p99(wakeup":              "FUNCTION(RULE) OPERATOR LIMIT",
		"p98(wakeup) > 5ms":       `unknown function "p98": must be one of count, max, p50, p90, p99, p99.9, slower`,
		"p99() > 5ms":             "no rule is named: the rules are wakeup, disk-slow, oom",
		"p99(wakup) > 5ms":        `unknown rule "wakup": the rules are wakeup, disk-slow, oom`,
		"p99(oom) > 5ms":          "has no histogram: ask for count or max",
		"slower(oom)":             "has no histogram",
		"p99(wakeup)":             "must be an operator (>, >=, <, <=) and a limit",
		"p99(wakeup) = 5ms":       "must be an operator",
		"p99(wakeup) > 5":         `invalid limit "5" of p99: must be a duration, such as 5ms`,
		"p99(wakeup) > -5ms":      "must be a duration",
		"p99(wakeup) > 5ms or":    "must be a duration",
		"count(wakeup) > 5ms":     `invalid limit "5ms" of count: must be a whole number`,
		"count(wakeup) > -1":      "must be a whole number",
		"slower(wakeup)":          "slower needs --compare",
		"slower(wakeup) > 1":      "slower takes no operator",
		strings.Repeat("(", 2000): "longer than 1000 bytes",
		strings.Repeat("p", 999):  "FUNCTION(RULE)",
	} {
		_, err := ParseChecks([]string{expression}, twoRules, false)
		assert.Check(t, is.ErrorContains(err, says), "%q", expression)
		assert.Check(t, err == nil || len(err.Error()) < 1500)
	}
	_, err := ParseChecks([]string{"slower(wakeup)"}, twoRules, true)
	assert.Check(t, err)
	_, err = ParseChecks([]string{"never", "count(wakeup) > 1"}, twoRules, false)
	assert.Check(t, is.ErrorContains(err, "beside"))
}

// Without an expression, any outlier fails the run, and a rule that cannot work does not.
func TestAnyOutlierFails(t *testing.T) {
	for _, c := range []struct {
		outliers uint64
		inactive string
		command  *Command
		ended    string
		ask      []string
		want     int
	}{
		{0, "", nil, EndedDuration, nil, 0},
		{1, "", nil, EndedDuration, nil, 3},
		{1, "", &Command{Status: 7}, EndedCommand, nil, 3},
		{1, "", &Command{Status: 7}, EndedCommand, []string{Never}, 7},
		{0, "", &Command{Status: 137, Signal: "SIGKILL"}, EndedCommand, nil, 137},
		{0, "", &Command{Status: 143, Signal: "SIGTERM"}, EndedDuration, nil, 0},
		{0, "no hook", &Command{}, EndedCommand, nil, 0},
		{0, "no hook", &Command{Status: 7}, EndedCommand, []string{"count(wakeup) > 0"}, 1},
	} {
		checks, err := ParseChecks(c.ask, twoRules, false)
		assert.NilError(t, err)
		r := withDelays(c.outliers, 1, 2)
		r.Rules[0].Inactive, r.Command, r.Ended = c.inactive, c.command, c.ended
		r.Judge(checks)
		assert.Check(t, is.Equal(r.Status(), c.want), "%+v", c)
	}
	// What was paused cannot be said to have had few outliers.
	checks, err := ParseChecks([]string{"count(wakeup) > 10"}, twoRules, false)
	assert.NilError(t, err)
	r := withDelays(3)
	r.Rules[0].Paused = true
	r.Judge(checks)
	assert.Check(t, r.Status() == 1 && strings.Contains(checks[0].Text(), "paused"), "%+v", checks)
}

func FuzzExpression(f *testing.F) {
	for _, s := range []string{"p99(wakeup) > 5ms", "count(oom) <= 7", "slower(wakeup)", "max(disk-slow)>1s", "never", "((((", "p99(\x00)>\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		checks, err := ParseChecks([]string{s}, twoRules, true)
		if err != nil {
			return
		}
		r := withDelays(3, 1, 2, 3)
		r.Judge(checks)
		_ = r.Status()
		for i := range checks {
			assert.Check(t, checks[i].Limit >= 0 && checks[i].Text() != "")
		}
	})
}
