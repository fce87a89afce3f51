package daemon

import (
	_ "embed"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/tracker/events"
)

//go:embed testdata/stuck.py
var stuckProgram string

// TestStuckFor: work that has not ended says whom it is for, as surely as that is known. Now and
// then this kernel hides a wake-up from tracers: then nobody is named, and it is done again.
func TestStuckFor(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	script := writeFile(t, filepath.Join(dir, "stuck.py"), stuckProgram, 0o644)
	python := needTool(t, "python3", "python3")
	d := start(t, rulesFile("  - {name: stuck, track: offcpu, timeout: 300ms, when: {comm: [stuck-asked, stuck-room, stuck-locked, stuck-child]}, "+
		"snapshot: {after: 5ms, every: 1ms, burst: 20}}\n"))
	const tries = 5
	for _, c := range []struct {
		kind, says string
		confidence explain.Confidence
	}{
		{"asked", "waiting for stuck-peer", explain.Guess},
		{"room", "waiting for stuck-peer", explain.Guess},
		{"locked", "waiting for a lock of a file that stuck-peer", explain.Inferred},
		{"child", "waiting for stuck-peer", explain.Inferred},
	} {
		for try := 1; ; try++ {
			cmd := exec.CommandContext(t.Context(), python, script, c.kind, filepath.Join(dir, "locked"))
			text, err := cmd.CombinedOutput()
			assert.NilError(t, err, "%s", text)
			o := explainedOutlier(d, "stuck", func(o *events.Outlier) bool {
				return o.Task.PID == cmd.Process.Pid && o.Cause == events.CauseTimeout
			})
			t.Logf("%s: %s", c.kind, o.Explained.Verdict)
			if strings.Contains(o.Explained.Verdict, c.says) {
				assert.Check(t, o.Explained.Confidence == string(c.confidence) && strings.HasPrefix(o.Explained.By, "stuck-peer"), "%+v", o.Explained)
				assert.Check(t, (c.confidence == explain.Guess) == strings.Contains(o.Explained.Verdict, "(a guess: "), o.Explained.Verdict)
				break
			}
			assert.Check(t, o.Explained.Cause == string(explain.Unexplained), "%+v", o.Explained)
			assert.Assert(t, try < tries, "%s is not told", c.kind)
		}
	}
}
