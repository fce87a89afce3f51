package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
)

func (f *fake) SetThreshold(req *api.ThresholdRequest, by string) (api.ThresholdInfo, error) {
	if req.Threshold == "0" {
		return api.ThresholdInfo{}, errors.New("rule wakeup: threshold is zero")
	}
	info := api.ThresholdInfo{ID: 4, Rule: req.Rule, When: req.When, ThresholdNS: 2e6, By: "uid 7"}
	if req.For != "" {
		info.LeftNS = int64(10 * time.Minute)
	}
	if req.Timeout != "" {
		info.TimeoutNS = 1e9
	}
	return info, nil
}

func (f *fake) Thresholds() []api.ThresholdInfo {
	return []api.ThresholdInfo{
		{ID: 12, Rule: "wakeup", When: map[string][]string{"pid": {"1234"}, "comm": {"pg*", "\x1b[31mx"}}, ThresholdNS: 2e6, LeftNS: 599e9, By: "uid 0"},
		{ID: 3, Rule: "disk", TimeoutNS: 1e9},
	}
}

func (f *fake) ClearThresholds(_ string, id int) ([]api.ThresholdInfo, error) {
	list := f.Thresholds()
	if id == 99 {
		return nil, errors.New("rule wakeup has no threshold 99 set: see tailcam threshold list")
	}
	return list, nil
}

func (f *fake) ResetRatchet(rule string) error { return errors.New("rule " + rule + " has no ratchet") }

func (f *fake) Pause(*api.PauseRequest, string) error { return nil }

func (f *fake) Reload(check bool) *api.Reload {
	out := &api.Reload{Check: check, OK: check, Changed: true, Rules: []api.ReloadRule{{
		Rule: "disk", Outcome: api.ReloadChanged, Source: "/r.yaml:2:5", Changes: []api.ReloadChange{{Key: "threshold_ns", Before: "5", After: "7"}},
	}}}
	if !check {
		out.Files = []api.ReloadFile{{File: "/b.yaml", Outcome: api.ReloadKept, Rules: []string{"wakeup"}, Errors: []string{"/b.yaml:1:1: file is empty"}}}
		out.Keys = []api.ReloadKey{{Key: "recorder.size", Outcome: api.ReloadRefused, Before: "1", After: "2", Reason: "restart tailcam"}}
	}
	return out
}

func (f *fake) Resume(rule string) error { return errors.New("rule " + rule + " is not paused") }

func TestThreshold(t *testing.T) {
	_, socket := serve(t)
	for _, k := range []struct {
		args   string
		status int
		want   string
	}{
		{"threshold set wakeup --when pid=1234 2ms --for 10m", exitOK, `ID  RULE    WHEN      THRESHOLD  TIMEOUT    LEFT  BY
 4  wakeup  pid=1234        2ms        -  10m00s  uid 7
`},
		{"threshold set wakeup 2ms --when op=read --when op=write,flush --timeout 1s", exitOK, `ID  RULE    WHEN                 THRESHOLD  TIMEOUT  LEFT  BY
 4  wakeup  op=read,write,flush        2ms       1s     -  uid 7
`},
		{"threshold list", exitOK, `ID  RULE    WHEN                         THRESHOLD  TIMEOUT   LEFT  BY
12  wakeup  comm=pg*,\x1b[31mx pid=1234        2ms        -  9m59s  uid 0
 3  disk    all                                  -       1s      -
`},
		{"threshold clear wakeup", exitOK, "2 cleared\n"},
		{"threshold clear --all", exitOK, "2 cleared\n"},
		{"pause disk --for 1h", exitOK, ""},
		{"threshold set nosuch 2ms", exitError, "tailcam: unknown rule \"nosuch\": the daemon has wakeup, disk\n"},
		{"threshold set wakeup 0", exitError, "tailcam: rule wakeup: threshold is zero\n"},
		{"threshold set wakeup 2ms --when pid", exitUsage, "tailcam: invalid --when \"pid\": must be a condition such as pid=1234 or comm=postgres,redis*\n"},
		{"threshold set wakeup soon", exitUsage, "tailcam: invalid THRESHOLD \"soon\": must be a duration such as 2ms\n"},
		{"threshold set", exitUsage, "tailcam: missing argument: RULE: see \"tailcam threshold set --help\"\n"},
		{"threshold set wakeup 2ms --for=", exitUsage, "tailcam: invalid argument \"\" for \"--for\" flag: must be a duration with a unit, such as 90m, 36h or 7d: see \"tailcam threshold set --help\"\n"},
		{"threshold clear", exitUsage, "tailcam: specify one of RULE, RULE ID, RULE --ratchet, --all: see \"tailcam threshold clear --help\"\n"},
		{"threshold clear wakeup --all", exitUsage, "tailcam: specify one of RULE, RULE ID, RULE --ratchet, --all: see \"tailcam threshold clear --help\"\n"},
		{"threshold clear wakeup two", exitUsage, "tailcam: invalid id \"two\": see \"tailcam threshold list\"\n"},
		{"threshold clear wakeup 99", exitError, "tailcam: rule wakeup has no threshold 99 set: see tailcam threshold list\n"},
		{"threshold clear wakeup --ratchet", exitError, "tailcam: rule wakeup has no ratchet\n"},
		{"pause", exitUsage, "tailcam: missing argument: RULE: see \"tailcam pause --help\"\n"},
		{"pause disk --for 0", exitUsage, "tailcam: invalid argument \"0\" for \"--for\" flag: must be a duration with a unit, such as 90m, 36h or 7d: see \"tailcam pause --help\"\n"},
		{"pause dusk", exitError, "tailcam: unknown rule \"dusk\": the daemon has wakeup, disk\n"},
		{"resume disk", exitError, "tailcam: rule disk is not paused\n"},
	} {
		args := strings.Fields(k.args)
		status, stdout, stderr := invoke(t, append(args, "--socket", socket)...)
		diff := cmp.Diff(k.want, stdout+stderr)
		assert.Check(t, status == k.status && diff == "", "%s: status %d\n%s", k.args, status, diff)
	}
	for args, want := range map[string]string{
		"threshold":     "tailcam: missing command: set, list or clear: see \"tailcam threshold --help\"\n",
		"threshold lst": "tailcam: unknown command \"lst\": did you mean \"set\"? see \"tailcam threshold --help\"\n",
	} {
		status, _, stderr := invoke(t, strings.Fields(args)...)
		assert.Check(t, status == exitUsage && stderr == want, "%s: status %d, %s", args, status, stderr)
	}
	status, stdout, _ := invoke(t, "threshold", "list", "-o", "json", "--socket", socket)
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n == 2 && strings.Contains(stdout, `"left_ns":599000000000`),
		"json: status %d, %s", status, stdout)
}

func TestThresholdCompletion(t *testing.T) {
	_, socket := serve(t)
	for args, want := range map[string]string{
		"threshold set":                   "wakeup disk :4",
		"threshold clear":                 "wakeup disk :4",
		"pause":                           "wakeup disk :4",
		"resume":                          "wakeup disk :4",
		"resume disk":                     ":4",
		"threshold set wakeup 2ms --when": "comm= not_comm= pid= not_pid= tid= not_tid= uid= not_uid= cgroup= not_cgroup= thread= unit= not_unit= container= not_container= pod= not_pod= namespace= not_namespace= preempted= cpu= not_cpu= :6",
	} {
		words := strings.Fields(args)
		verb := 1
		if words[0] == "threshold" {
			verb = 2
		}
		_, stdout, _ := invoke(t, slices.Concat([]string{"__complete"}, words[:verb], []string{"--socket", socket}, words[verb:], []string{""})...)
		assert.Check(t, is.Equal(strings.Join(strings.Fields(stdout), " "), want), "%s", args)
	}
}

func TestRuntimeNotes(t *testing.T) {
	record, none := int64(12.3e6), int64(0)
	for _, k := range []struct {
		rule api.RuleInfo
		want string
	}{
		{api.RuleInfo{}, ""},
		{api.RuleInfo{Paused: true, Set: 2}, "paused; 2 runtime thresholds"},
		{api.RuleInfo{Paused: true, PausedLeftNS: 61e9, RatchetNS: &record}, "paused, 1m01s left; ratchet: above 12.3ms"},
		{api.RuleInfo{RatchetNS: &none}, "ratchet: no record yet"},
		{
			api.RuleInfo{Storm: &api.StormInfo{LeftNS: 9e9, PerSecond: 48000, ConsiderNS: 12e6}},
			"paused automatically, 9.00s left: 48,000 outliers/s; consider threshold 12ms",
		},
	} {
		assert.Check(t, is.Equal(ruleNote(&k.rule).Text, k.want))
	}
}
