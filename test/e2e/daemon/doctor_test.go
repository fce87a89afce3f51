package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/doctor"
)

// configured writes a configuration file that has the paths of a home, and more.
func (h *home) configured(t *testing.T, more string) (file string) {
	t.Helper()
	return writeFile(t, filepath.Join(h.dir, "tailcam.yaml"), fmt.Sprintf("rules: %s\nsocket: {path: %s}\n"+
		"snapshots: {dir: %s, min_free: 0}\nbudget: {cpu: 100%%, softirqs: off}\nrecorder: {cover: 0s}\n%s",
		h.rules, h.socket, h.snaps, more), 0o600)
}

// found returns the results of one check.
func found(list []doctor.Result, check string) []doctor.Result {
	return slices.DeleteFunc(slices.Clone(list), func(r doctor.Result) bool { return r.Check != check })
}

// has reports whether a check has a result with this status and text.
func has(list []doctor.Result, check string, status doctor.Status, text string) bool {
	return slices.ContainsFunc(found(list, check), func(r doctor.Result) bool {
		return r.Status == status && strings.Contains(r.What+" "+r.Why, text)
	})
}

// examine runs tailcam doctor.
func examine(t *testing.T, config string) (list []doctor.Result, code int) {
	t.Helper()
	a := tailcam(t, "doctor", "-o", "json", "--config", config)
	assert.Assert(t, a.err == "", "%s", a.err)
	list = lines[doctor.Result](t, a.out)
	failed := slices.ContainsFunc(list, func(r doctor.Result) bool { return r.Status == doctor.Fail })
	assert.Check(t, failed == (a.code == 1), "exit status %d: %+v", a.code, list)
	for _, r := range list {
		assert.Check(t, r.Check != "" && r.What != "" && !strings.Contains(r.What, "\n"), "%+v", r)
		assert.Check(t, r.Status == doctor.OK || r.Do != "" || r.Check == "processes", "nothing to do: %+v", r)
	}
	return list, a.code
}

// TestDoctor: what works is told without a daemon, with one, with one that hangs, and
// with files that are wrong.
func TestDoctor(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "the configuration is a file of the test")
	h := newHome(t, rulesFile(napRule("nap", newUID()), entry("late", "wakeup", "1h", "{comm: x}")))
	config := h.configured(t, "")

	list, code := examine(t, config)
	assert.Check(t, is.Equal(code, 0), "%+v", list)
	assert.Check(t, has(list, "daemon", doctor.Warn, "not reachable at "+h.socket), "%+v", list)
	assert.Check(t, has(list, "load", doctor.OK, "2 rules loaded and attached"), "%+v", list)
	for _, check := range []string{"configuration", "rules", "capabilities", "limits", "kernel", "btf", "hooks", "declared hooks",
		"tracefs", "cgroup", "perf", "snapshots", "unit", "tracers", "clock"} {
		assert.Check(t, len(found(list, check)) > 0, "no check of %s: %+v", check, list)
	}
	_, err := os.Stat(h.snaps)
	assert.Check(t, is.ErrorIs(err, os.ErrNotExist), "it made the directory of snapshots")

	d := h.exec(t, []string{built.tailcam, "run", "--config", config})
	list, code = examine(t, config)
	assert.Check(t, is.Equal(code, 0), "%+v", list)
	assert.Check(t, has(list, "daemon", doctor.OK, fmt.Sprintf("pid %d", d.pid())), "%+v", list)
	assert.Check(t, has(list, "socket", doctor.OK, d.socket) || has(list, "socket", doctor.Warn, "no group"), "%+v", list)
	assert.Check(t, has(list, "snapshots", doctor.OK, "0 of 100 snapshots"), "%+v", list)
	assert.Check(t, len(found(list, "load")) == 0, "it loads the rules although a daemon runs")
	d.ok("pause", "late")
	list, _ = examine(t, config)
	assert.Check(t, has(list, "rule late", doctor.Warn, "paused"), "%+v", list)
	a := d.verb("doctor", "--config", config)
	assert.Check(t, is.Contains(a.out, "do:  tailcam resume late\n"))
	assert.Check(t, is.Contains(a.out, " 0 failed\n"))

	d.pause()
	list, code = examine(t, config)
	d.resume()
	assert.Check(t, is.Equal(code, 1))
	assert.Check(t, has(list, "daemon", doctor.Fail, fmt.Sprintf("does not answer: pid %d", d.pid())), "%+v", list)
	assert.Check(t, len(found(list, "load")) == 0, "it loads the rules although a daemon runs")
	d.stop(syscall.SIGTERM)

	writeFile(t, h.rules, "rules:\n  - name: a\n    track: wakeups\n    threshold: 5\n", 0o644)
	list, code = examine(t, config)
	assert.Check(t, is.Equal(code, 1))
	assert.Check(t, has(list, "rules", doctor.Fail, h.rules+":3:12: unknown track"), "%+v", list)
	assert.Check(t, len(found(list, "rules")) == 2, "one for each error: %+v", list)
	list, code = examine(t, writeFile(t, filepath.Join(h.dir, "bad.yaml"), "recorder: {size: 3}\nsockt: {}\n", 0o600))
	assert.Check(t, is.Equal(code, 1))
	assert.Check(t, has(list, "configuration", doctor.Fail, "bad.yaml:2:1"), "%+v", list)
	assert.Check(t, len(found(list, "kernel")) == 1, "the other checks go on: %+v", list)

	writeFile(t, h.rules, rulesFile(napRule("nap", newUID())), 0o644)
	writeFile(t, h.snaps+"-file", "", 0o600)
	full := writeFile(t, filepath.Join(h.dir, "full.yaml"), strings.Replace(readText(t, config), h.snaps, h.snaps+"-file", 1), 0o600)
	list, code = examine(t, full)
	assert.Check(t, is.Equal(code, 1))
	assert.Check(t, has(list, "snapshots", doctor.Fail, "is not a directory"), "%+v", list)

	a = asNobody(t, 65534, built.tailcam, "doctor", "-o", "json")
	list = lines[doctor.Result](t, a.out)
	assert.Check(t, has(list, "capabilities", doctor.Warn, "needs root"), "%+v", list)
}
