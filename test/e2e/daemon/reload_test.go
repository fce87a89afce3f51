package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
)

// TestReloadFiles: a bad file keeps its rules and holds up no other; what cannot change
// is named; the exit status, status and the log say how it ended.
func TestReloadFiles(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, "")
	file := func(name string) string { return filepath.Join(h.dir, "d", name) }
	put := func(name, text string) { writeFile(t, file(name), text, 0o644) }
	assert.NilError(t, os.Mkdir(filepath.Join(h.dir, "d"), 0o755))
	assert.NilError(t, os.Chmod(filepath.Join(h.dir, "d"), 0o755))
	h.rules = filepath.Join(h.dir, "d")
	config := writeFile(t, filepath.Join(h.dir, "tailcam.yaml"), "snapshots: {keep: {count: 7}}", 0o644)
	put("a.yaml", rulesFile(napRule("one", uid, "snapshot: false")))
	put("b.yaml", rulesFile(napRule("two", uid, "snapshot: false")))
	d := h.start(t, "--config", config)
	reload := func(code int, args ...string) *api.Reload {
		t.Helper()
		a := tailcam(t, append(args, "--socket", h.socket)...)
		assert.Equal(t, a.code, code, "%v: %s%s", args, a.out, a.err)
		return d.status().Reload
	}
	assert.Check(t, reload(0, "check", "--diff") == nil, "check --diff counts as a reload")
	r := reload(0, "reload")
	assert.Assert(t, r.OK && !r.Changed, "%+v", r)

	// One file is bad, one changes, one is new, and one key cannot change.
	put("a.yaml", "rules: [{name: one, track: wakeups}]")
	put("b.yaml", rulesFile(napRule("two", uid, "snapshot: false\n    priority: 60")))
	put("c.yaml", rulesFile(napRule("three", uid, "snapshot: false")))
	writeFile(t, config, "snapshots: {keep: {count: 9}}\nrecorder: {backend: perf}", 0o644)
	a := tailcam(t, "check", "--diff", "--socket", h.socket)
	assert.Check(t, a.code == 1 && strings.Contains(a.out, "priority: 50 -> 60"), "%s%s", a.out, a.err)
	assert.Equal(t, names(d), "one two")
	r = reload(1, "reload")
	assert.Equal(t, names(d), "one two three")
	outcomes := map[string]string{}
	for _, f := range r.Files {
		outcomes[filepath.Base(f.File)] = f.Outcome
	}
	for _, rule := range r.Rules {
		outcomes[rule.Rule] = rule.Outcome
	}
	for _, k := range r.Keys {
		outcomes[k.Key] = k.Outcome
	}
	assert.DeepEqual(t, outcomes, map[string]string{
		"a.yaml": "kept", "b.yaml": "read", "c.yaml": "read", "two": "changed", "three": "added",
		"snapshots.keep.count": "changed", "recorder.backend": "refused",
	})
	assert.Check(t, !r.OK && r.Changed, "%+v", r)
	assert.Check(t, d.log.has(file("a.yaml")+`:1:28: unknown track`) && d.log.has("reloaded in part"), "the log does not say what is wrong")
	naps(t, uid, 3, 5*time.Millisecond, 1)
	for _, name := range []string{"one", "two", "three"} {
		settled(t, d, name, 3)
	}

	// SIGHUP does the same, and all is well once the files are.
	assert.NilError(t, os.Remove(file("a.yaml")))
	writeFile(t, config, "snapshots: {keep: {count: 9}}", 0o644)
	d.reload(reloaded)
	assert.Equal(t, names(d), "two three")
	assert.Check(t, d.status().Reload.OK)

	// A configuration with an error keeps all keys; the rules are read.
	writeFile(t, config, "snapshots: {keep: {count: none}}", 0o644)
	put("c.yaml", rulesFile(napRule("four", uid, "snapshot: false")))
	r = reload(1, "reload")
	assert.Check(t, strings.Contains(strings.Join(r.Errors, "\n"), config+":1:27: "), "%+v", r.Errors)
	assert.Equal(t, names(d), "two four")
	var out api.Reload
	a = tailcam(t, "reload", "-o", "json", "--socket", h.socket)
	assert.NilError(t, json.Unmarshal([]byte(a.out), &out), "%s", a.out)
}

func names(d *running) string {
	var all []string
	for _, r := range d.status().Rules {
		all = append(all, r.Name)
	}
	return strings.Join(all, " ")
}

// TestReloadWatch: files that change are reloaded where reload.watch says so.
func TestReloadWatch(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, "")
	h.rules = filepath.Join(h.dir, "d")
	assert.NilError(t, os.Mkdir(h.rules, 0o755))
	assert.NilError(t, os.Chmod(h.rules, 0o755))
	writeFile(t, filepath.Join(h.rules, "a.yaml"), rulesFile(napRule("one", uid, "snapshot: false")), 0o644)
	d := h.start(t, "--reload-watch=true")
	eventually(t, "the files are watched", func() bool { return d.log.has("watching files for changes") })
	runs := func(want string) {
		t.Helper()
		eventually(t, "the rules are "+want, func() bool { return names(d) == want })
	}
	// Written under another name and renamed; then in place; then bad; then gone.
	hidden := writeFile(t, filepath.Join(h.rules, ".b.yaml.new"), rulesFile(napRule("two", uid, "snapshot: false")), 0o644)
	assert.NilError(t, os.Rename(hidden, filepath.Join(h.rules, "b.yaml")))
	runs("one two")
	writeFile(t, filepath.Join(h.rules, "a.yaml"), rulesFile(napRule("three", uid, "snapshot: false")), 0o644)
	runs("three two")
	writeFile(t, filepath.Join(h.rules, "a.yaml"), "rules: 5", 0o644)
	eventually(t, "the bad file is told", func() bool { return d.log.has("rules is a number") })
	runs("three two")
	assert.NilError(t, os.Remove(filepath.Join(h.rules, "a.yaml")))
	runs("two")
	// A new directory of the same name.
	assert.NilError(t, os.Rename(h.rules, h.rules+".old"))
	assert.NilError(t, os.Mkdir(h.rules, 0o755))
	writeFile(t, filepath.Join(h.rules, "c.yaml"), rulesFile(napRule("four", uid, "snapshot: false")), 0o644)
	runs("four")
}
