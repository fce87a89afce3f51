package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot/action"
	"github.com/tailcam/tailcam/tracker/events"
)

// actionResults waits until the actions of a snapshot have ended, and returns their results.
func actionResults(t *testing.T, dir string) []events.ActionResult {
	t.Helper()
	path := filepath.Join(dir, action.ResultsFile)
	eventually(t, "the actions have ended", func() bool { return present(path) })
	var file struct {
		Version int
		Actions []events.ActionResult
	}
	assert.NilError(t, json.Unmarshal([]byte(readText(t, path)), &file))
	assert.Check(t, file.Version == 1)
	return file.Actions
}

func present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func words(list []events.ActionResult) string {
	var words []string
	for i := range list {
		words = append(words, list[i].Result)
	}
	return strings.Join(words, " ")
}

// TestActionsOfTriggers: snapshots that no rule asks for have actions, too, if these ask for
// them; conditions, chains and limits hold, and their results are found everywhere.
func TestActionsOfTriggers(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, "")
	tell := script(t, h, "tell", `echo "$TAILCAM_RULE|$TAILCAM_REASON|$TAILCAM_VERDICT|$TAILCAM_BY_KIND" >told-$1`)
	explains := script(t, h, "explains", "exec "+built.tailcam+" explain . >explained.txt")
	fails := script(t, h, "fails", "exit 7")
	writeFile(t, h.rules, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms, every: 1s, burst: 10}", "actions:",
		"  - {run: ["+tell+", rule], if: {cause: timer, min_share: 0.5}}",
		"  - {run: ["+tell+", another], if: {cause: lock}}",
		"  - {run: ["+fails+"], on_failure: stop, every: 1h, per: [cause, comm]}",
		"  - {run: ["+tell+", never]}",
	))+strings.Join([]string{
		"actions:",
		"- {run: [" + explains + "], on: [snapshot, trigger]}",
		"- {run: [" + tell + ", trigger], on: trigger, if: {rule: manual}}",
		"- {run: [" + tell + ", once], on: trigger, every: 1h}",
		"",
	}, "\n"), 0o644)
	d := h.start(t)

	asleep := background(t, "sleep", "600")
	time.Sleep(300 * time.Millisecond) // a time to explain
	var taken struct{ ID, Dir, Verdict string }
	text := d.ok("snapshot", "-o", "json", "--reason", "seen by hand", "--pid", strconv.Itoa(asleep), "--last", "200ms")
	assert.NilError(t, json.Unmarshal([]byte(text), &taken), "%s", text)
	assert.Check(t, words(actionResults(t, taken.Dir)) == "succeeded succeeded succeeded", "%+v", actionResults(t, taken.Dir))
	told := readText(t, taken.Dir, "told-trigger")
	assert.Check(t, strings.HasPrefix(told, "manual|seen by hand|"+taken.Verdict+"|"), "%q", told)
	explained := readText(t, taken.Dir, "explained.txt")
	assert.Check(t, strings.Contains(explained, taken.Verdict), "explained by the action's user: %q", explained)

	// Without a target there is no verdict; and what ran once has run.
	again := strings.TrimSpace(d.ok("snapshot"))
	assert.Check(t, words(actionResults(t, again)) == "succeeded succeeded", "%+v", actionResults(t, again))
	told = readText(t, again, "told-trigger")
	assert.Check(t, strings.HasPrefix(told, "manual|taken by hand||"), "%q", told)

	for i := range 2 { // the second time, the failing one has run for the same key
		naps(t, uid, 1, 5*time.Millisecond, 1)
		o := settled(t, d, "nap", i+1)[i]
		eventually(t, "its snapshot is there", func() bool { return len(d.list()) == 3+i })
		dir := filepath.Join(h.snaps, *o.Snapshot)
		want := []string{"succeeded failed not_run succeeded", "succeeded succeeded succeeded"}[i]
		assert.Check(t, words(actionResults(t, dir)) == want, "%+v", actionResults(t, dir))
		assert.Check(t, !present(filepath.Join(dir, "told-another")) && present(filepath.Join(dir, "told-never")) == (i == 1))
		told := readText(t, dir, "told-rule")
		assert.Check(t, strings.HasPrefix(told, "nap||") && !strings.HasPrefix(told, "nap|||"), "%q", told)
		if i == 0 {
			eventually(t, "the event has the results", func() bool {
				return words(d.events("nap")[0].Actions) == want
			})
		}
	}
	eventually(t, "all have ended", func() bool { return d.status().Actions.Running == 0 })
	s := d.status().Actions
	assert.DeepEqual(t, s.Rules, []api.ActionCounts{
		{Rule: "manual", Succeeded: 5, Limited: 1},
		{Rule: "nap", Succeeded: 5, Failed: 1, NotRun: 1, Limited: 1, Unmatched: 2},
	})
	assert.Check(t, len(s.Last) == 12 && s.Last[6].Text == "exit status 7" && s.Last[6].Program == fails, "%+v", s.Last)
	text = d.ok("status")
	assert.Check(t, strings.Contains(text, "fails: exit status 7"), "%s", text)
	assert.Check(t, strings.Contains(d.ok("events"), "fails: exit status 7"))

	// A reload changes them; one with an error changes nothing.
	writeFile(t, h.rules, rulesFile(napRule("nap", uid))+"actions:\n- {run: ["+tell+", trigger], on: trigger, if: {caus: lock}}\n", 0o644)
	out := d.verb("check", h.rules)
	assert.Check(t, out.code == 1 && strings.Contains(out.err, `unknown key "caus", did you mean "cause"; allowed: rule, `), "%+v", out)
	writeFile(t, h.rules, rulesFile(napRule("nap", uid))+"actions:\n- {run: ["+tell+", changed], on: trigger, max_memory: 64MiB}\n", 0o644)
	d.reload(reloaded)
	dir := strings.TrimSpace(d.ok("snapshot"))
	assert.Check(t, words(actionResults(t, dir)) == "succeeded" && present(filepath.Join(dir, "told-changed")))
}
