package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/cleanup"
	cgroups "github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker/events"
)

// targetOf triggers with flags of snapshot, and returns whose time is explained.
func targetOf(d *running, flags ...string) *events.Outlier {
	d.t.Helper()
	var taken api.Triggered
	text := d.ok(append([]string{"snapshot", "-o", "json", "--last", "100ms"}, flags...)...)
	assert.NilError(d.t, json.Unmarshal([]byte(text), &struct {
		*api.Triggered
		Verdict string `json:"verdict"`
	}{Triggered: &taken}), "%s", text)
	m, err := snapshot.ReadMeta(taken.Dir)
	assert.NilError(d.t, err)
	assert.Assert(d.t, len(m.Outliers) == 1 && m.Outliers[0].Explained != nil, "%q: %+v", flags, m.Outliers)
	return &m.Outliers[0]
}

// TestTriggerTarget: a trigger for what runs in a cgroup or unit explains a thread there, rather
// one that is blocked, and none of a cgroup beside it.
func TestTriggerTarget(t *testing.T) {
	needRoot(t)
	root := cgroups.NeedHierarchy(t)
	blockedProgram := buildC(t, "blocked")
	paths := map[string]string{}
	for _, name := range []string{"idle", "busy"} {
		paths[name] = fmt.Sprintf("/tailcam-target-%d-%s.service", os.Getpid(), name)
		assert.NilError(t, os.Mkdir(root+paths[name], 0o755))
		cleanup.RemoveCgroup(t, root+paths[name])
	}
	idle := hogIn(t, root+paths["idle"], "sleep 600")
	hogIn(t, root+paths["busy"], "sleep 600")
	hogIn(t, root+paths["busy"], "sh -c 'while sleep 0.01; do :; done'")
	blocked := hogIn(t, root+paths["busy"], blockedProgram)
	eventually(t, "it is blocked", func() bool { return child.States(blocked) == "D" })
	eventually(t, "the other one sleeps", func() bool {
		return readText(t, filepath.Join("/proc", strconv.Itoa(idle)), "comm") == "sleep\n" && child.States(idle) == "S"
	})
	d := start(t, rulesFile(napRule("nap", newUID())))

	for _, c := range []struct {
		flags []string
		want  int
	}{
		{[]string{"--cgroup", paths["idle"]}, idle},
		{[]string{"--cgroup", paths["busy"]}, blocked},
		{[]string{"--cgroup", fmt.Sprintf("/tailcam-target-%d-*", os.Getpid())}, blocked},
		{[]string{"--unit", paths["idle"][1:]}, idle},
		{[]string{"--unit", paths["busy"][1:], "--cgroup", "/**"}, blocked},
	} {
		o := targetOf(d, c.flags...)
		assert.Check(t, o.Task.TID == c.want && strings.Contains(o.Explained.Verdict, fmt.Sprintf(" %d: ", c.want)), "%q: %+v", c.flags, o)
	}
	before := len(d.list())
	for _, flags := range [][]string{{"--unit", "tailcam-no-such.service"}, {"--cgroup", paths["idle"], "--unit", paths["busy"][1:]}, {"--pod", "no-such"}} {
		a := d.verb(append([]string{"snapshot"}, flags...)...)
		assert.Check(t, a.code == 1 && strings.Contains(a.err, "no thread now with "), "%q: %+v", flags, a)
	}
	a := d.verb("snapshot", "--activity", "checkout")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "activity: ") && strings.Contains(a.err, "activities.enabled"), "%+v", a)
	for body, want := range map[string]string{
		`{"unit": "web"}`: `has no type; allowed: a unit with its type`, `{"tid": 1, "pod": "a"}`: "cannot be combined with pod",
		`{"cgroup": "/[a]"}`: "contains a bracket", `{"units": "a.service"}`: "units",
	} {
		status, text := d.post("/v1/trigger", body)
		assert.Check(t, status == 400 && strings.Contains(text, want), "%s: %d %s", body, status, text)
	}
	assert.Check(t, len(d.list()) == before, "%+v", d.list())
}

// TestTriggerActivity: a trigger for an activity, by hand and by a rule, explains the thread that
// works for it now, and says so.
func TestTriggerActivity(t *testing.T) {
	needRoot(t)
	python := needTool(t, "python3", "python3")
	modules, err := filepath.Abs("../../../clients/python")
	assert.NilError(t, err)
	script := writeFile(t, filepath.Join(t.TempDir(), "slowthread.py"), slowThreadProgram, 0o644)
	d := start(t, rulesFile(healthRule(`{activity: "check*"}`)), "--activities-enabled", "true")
	tids := map[string]int{}
	for _, name := range []string{"checkout", "search"} {
		cmd := exec.CommandContext(t.Context(), python, script, d.socket, name)
		cmd.Env = append(cmd.Environ(), "PYTHONPATH="+modules, "PYTHONDONTWRITEBYTECODE=1")
		tid, err := strconv.Atoi(child.Talk(t, cmd).Line())
		assert.NilError(t, err)
		tids[name] = tid
	}
	for name, tid := range tids {
		eventually(t, "the daemon knows of "+name, func() bool { return d.verb("snapshot", "--activity", name).code == 0 })
		o := targetOf(d, "--activity", name[:5]+"*")
		assert.Check(t, o.Task.TID == tid && o.Activity != nil && o.Activity.Name == name, "%s: %+v", name, o)
	}
	a := d.verb("snapshot", "--activity", "refund")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, `no thread now with activity "refund"`), "%+v", a)
	o := explainedOutlier(d, "health", func(o *events.Outlier) bool { return o.Task.TID != 0 })
	assert.Check(t, o.Task.TID == tids["checkout"] && o.Activity.Name == "checkout" && o.Explained != nil, "%+v", o)
}
