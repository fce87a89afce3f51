package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/record"
	"github.com/tailcam/tailcam/tracker/histogram"
)

const recordRules = "rules:\n  - {name: late, track: wakeup, threshold: 5ms}\n  - {name: disk, track: block, threshold: 50ms}\n"

// recorded is a run as internal/record returns it. It claims nothing about what one finds.
func recorded(outliers uint64, status int) *record.Report {
	var h histogram.Histogram
	h.Add(1e6, 100)
	info := api.NewHistogram(&h, api.HistogramInfo{Rule: "late", Tracker: "wakeup"})
	return &record.Report{
		Time: time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC), Ended: record.EndedCommand, DurationNS: 1e9, SliceNS: 1e8, Losses: []api.Loss{},
		Command: &record.Command{Args: []string{"true"}, Status: status},
		Rules: []record.Rule{
			{Name: "late", Track: "wakeup", ThresholdNS: 5e6, Outliers: outliers, MaxNS: 1e6, Histogram: &info, Slices: []record.Slice{},
				Culprits: []record.Culprit{}, Verdicts: []record.Verdict{}},
			{Name: "disk", Track: "block", ThresholdNS: 50e6, Inactive: "no hook", Slices: []record.Slice{},
				Culprits: []record.Culprit{}, Verdicts: []record.Verdict{}},
		},
	}
}

func TestRecordCommand(t *testing.T) {
	if _, err := checkPrivileges(); err != nil {
		t.Skipf("run refuses without the capabilities that it needs: %v", err)
	}
	dir := t.TempDir()
	rules, base, junit := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "base.json"), filepath.Join(dir, "junit.xml")
	assert.NilError(t, os.WriteFile(rules, []byte(recordRules), 0o600))
	var asked *record.Options
	run := func(outliers uint64, status int, fails error, args ...string) (int, string, string) {
		p := testDeps()
		asked = nil
		p.record = func(_ context.Context, o *record.Options) (*record.Report, error) {
			asked = o
			if fails != nil {
				return nil, fails
			}
			return recorded(outliers, status), nil
		}
		var stdout, stderr bytes.Buffer
		code := execute(t.Context(), newCLI(&stdout, &stderr, p), append([]string{"record", "--rules", rules}, args...))
		return code, stdout.String(), stderr.String()
	}

	code, stdout, stderr := run(0, 0, nil, "-O", base, "--junit", junit, "--for", "3s", "--", "true", "-x", "--for")
	assert.Check(t, code == 0 && stdout == "" && strings.Contains(stderr, "late"), "%d, %q, %q", code, stdout, stderr)
	assert.Check(t, asked.For == 3*time.Second && strings.Join(asked.Command, " ") == "true -x --for" && len(asked.Rules) == 2, "%+v", asked)
	written, err := os.ReadFile(base)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(isJSONLines(t, string(written)), 1))
	xml, err := os.ReadFile(junit)
	assert.Check(t, err == nil && bytes.Contains(xml, []byte(`<testsuite name="tailcam record"`)), "%s", xml)

	// The first argument that is no flag begins the command.
	_, _, _ = run(0, 0, nil, "sleep", "--for", "1s")
	assert.Check(t, strings.Join(asked.Command, " ") == "sleep --for 1s" && asked.For == 0, "%+v", asked)

	code, stdout, _ = run(2, 0, nil, "-o", "json", "--compare", base, "--fail-on", "count(late) > 1", "true")
	var r record.Report
	assert.NilError(t, json.Unmarshal([]byte(stdout), &r))
	assert.Check(t, code == 3 && isJSONLines(t, stdout) == 1 && r.ExitStatus == 3 && r.Compared != nil && len(r.Compared.Baselines) == 1, "%d, %s", code, stdout)

	for _, c := range []struct {
		outliers uint64
		status   int
		fails    error
		want     int
		args     string
		says     string
	}{
		{1, 0, nil, 3, "true", "late"},
		{0, 9, nil, 9, "true", "exit status 9"},
		{1, 9, nil, 9, "--fail-on never true", "exit status 9"},
		{1, 0, nil, 1, "--fail-on count(disk)>0 true", "cannot be judged: the rule is inactive"},
		{0, 0, errors.New("no way"), 1, "true", "tailcam: no way\n"},
		{0, 0, nil, 2, "--fail-on p99(lat)>1ms true", `unknown rule "lat": the rules are late, disk`},
		{0, 0, nil, 2, "--fail-on slower(late) true", "slower needs --compare"},
		{0, 0, nil, 2, "--for -1s true", "must not be negative"},
		{0, 0, nil, 2, "--user nobody", "--user needs a command"},
		{0, 0, nil, 1, "--compare " + dir + "/none true", "no such file"},
		{0, 0, nil, 1, "--compare " + rules + " true", "not the JSON of a run"},
		{0, 0, nil, 1, "--junit " + dir + "/none/x true", "cannot write " + dir + "/none/x"},
		{0, 0, nil, 1, "-O " + dir + " true", "it is a directory"},
	} {
		code, _, stderr := run(c.outliers, c.status, c.fails, strings.Fields(c.args)...)
		assert.Check(t, code == c.want && strings.Contains(stderr, c.says), "%s: %d, %q", c.args, code, stderr)
		if c.want == 2 || strings.Contains(c.args, dir) {
			assert.Check(t, asked == nil, "%s: it ran", c.args)
		}
	}
}
