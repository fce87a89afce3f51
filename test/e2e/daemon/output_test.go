package daemon

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/schema"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestExitStatuses: done, failed, misused, and nothing there, against a real daemon.
func TestExitStatuses(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid)))
	bad := writeFile(t, filepath.Join(d.dir, "bad.yaml"), "rules: [1]\n", 0o644)
	expect := func(code int, list ...string) {
		t.Helper()
		for _, line := range list {
			a := d.verb(strings.Fields(line)...)
			assert.Check(t, a.code == code, "%s: exit status %d, not %d\n%s%s", line, a.code, code, a.out, a.err)
			assert.Check(t, code == 0 || a.err != "", "%s: %q", line, a.err)
		}
	}
	// Nothing has happened yet.
	expect(0,
		"status", "events -o json", "events -o yaml", "top", "list snapshots", "snapshots list",
		"snapshots verify", "threshold list", "list rules")
	expect(3,
		"wait --timeout 50ms", "wait --rule nap --timeout 50ms -o yaml", "explain", "explain latest",
		"snapshots show", "snapshots show latest", "export latest --format json", "diff latest latest",
		"snapshots rm latest", "snapshots pin latest")
	expect(2,
		"stauts", "status extra", "status --no-such", "status -o xml", "status --color blue",
		"wait --timeout soon", "wait --timeout 5", "events -n 0", "events --since yesterday", "pause",
		"pause nap --for long", "threshold set nap soon", "threshold clear nap two", "threshold clear",
		"top --by shoe", "explain --format pdf", "export latest", "snapshots prune",
		"snapshots prune --keep-count none", "list", "snapshots rm", "check --diff --load",
		"check --diff "+bad, "reload now", "list events --for 2h", "list events --for two", "snapshot now")
	expect(1,
		"events --rule nosuch", "wait --rule nosuch", "pause nosuch", "resume nap", "threshold set nap 0s",
		"threshold clear nap 7", "histogram nosuch", "explain 1999", "explain /no/such",
		"snapshots show 1999", "export 1999 --format json", "check "+bad, "check /no/such")

	naps(t, uid, 1, 5*time.Millisecond, 1)
	settled(t, d, "nap", 1)
	eventually(t, "there is a snapshot", func() bool { return len(d.list()) == 1 })
	expect(0,
		"explain", "explain latest", "snapshots show latest", "export latest --format json",
		"diff latest latest", "snapshots verify latest", "snapshots pin latest", "snapshots unpin latest",
		"pause nap --for 1m", "resume nap", "threshold set nap 2ms --for 1h", "threshold clear nap",
		"check --diff", "reload", "snapshots rm latest")
	// Nothing was done by those that were wrong.
	assert.Check(t, len(d.list()) == 0 && len(d.events("nap")) == 1)
}

// TestOutput: what each command says of a real daemon is as its schema says, in JSON and YAML.
func TestOutput(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "histogram: true"),
		entry("late", "wakeup", "1h", "{comm: x}", "stacks: [kernel, waker]")))
	naps(t, uid, 3, 5*time.Millisecond, 1)
	settled(t, d, "nap", 3)
	byHand(d, "no outlier")
	eventually(t, "there are snapshots with an explanation", func() bool {
		list := d.list()
		return len(list) >= 2 &&
			slices.ContainsFunc(d.events("nap"), func(o events.Outlier) bool { return o.Explained != nil })
	})
	slow := d.list()[0].ID
	for _, c := range []struct{ line, schema string }{
		{"status", "status"}, {"events", "outlier"}, {"events --rule nap -n 1", "outlier"},
		{"histogram", "histogram"}, {"histogram nap", "histogram"}, {"list rules", "rule"},
		{"list probes", "probe"}, {"list events --for 0s", "event"}, {"list snapshots", "snapshot"},
		{"snapshots list", "snapshot"}, {"snapshots show", "snapshot-details"},
		{"snapshots show " + slow, "snapshot-details"}, {"snapshots verify", "verification"},
		{"snapshots pin " + slow, "pin"}, {"snapshots unpin " + slow, "pin"},
		{"explain " + slow, "explanation"}, {"explain", "explanation"},
		{"diff " + slow + " " + slow, "diff"}, {"top", "top"}, {"snapshot", "taken-snapshot"},
		{"threshold set late 30m", "threshold"}, {"threshold list", "threshold"},
		{"threshold clear late", "threshold"}, {"check " + d.rules, "check"}, {"check --diff", "reload"},
		{"reload", "reload"}, {"version", "version"},
		{"snapshots prune --dry-run --keep-count 1", "removal"}, {"snapshots rm latest", "removal"},
	} {
		args := strings.Fields(c.line)
		if c.line != "version" && c.line != "list probes" && c.line != "list events --for 0s" {
			args = append(args, "--socket", d.socket)
		}
		if c.line == "threshold clear late" {
			d.verb("threshold", "set", "late", "1h") // one for each format
		}
		n := 0
		for line := range strings.Lines(tailcam(t, append(args, "-o", "json")...).out) {
			name, err := schema.Check(schemaDir, []byte(line))
			assert.Check(t, err == nil && name == "tailcam/"+c.schema+"/v1", "%s: %s: %v", c.line, name, err)
			n++
		}
		assert.Check(t, n > 0, "%s -o json prints nothing", c.line)
		if c.line == "threshold clear late" {
			d.verb("threshold", "set", "late", "1h")
		}
		for dec := yaml.NewDecoder(strings.NewReader(tailcam(t, append(args, "-o", "yaml")...).out)); ; n-- {
			var v map[string]any
			err := dec.Decode(&v)
			if errors.Is(err, io.EOF) {
				break
			}
			assert.NilError(t, err, "%s", c.line)
			assert.Check(t, v["schema"] == "tailcam/"+c.schema+"/v1", "%s: %v", c.line, v["schema"])
		}
		assert.Check(t, n == 0, "%s: %d more as JSON than as YAML", c.line, n)
	}
	// Of one that is not valid, too.
	bad := writeFile(t, filepath.Join(d.dir, "bad.yaml"), "rules:\n  - {name: a, track: wakeups}\n", 0o644)
	a := tailcam(t, "check", bad, "-o", "json")
	name, err := schema.Check(schemaDir, []byte(a.out))
	assert.Check(t, a.code == 1 && a.err == "" && err == nil && name == "tailcam/check/v1" &&
		strings.Contains(a.out, `"file":"`+bad+`","line":2,`),
		"%+v, %v", a, err)
}
