package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// exposure is the score of the shipped unit (`systemd-analyze security`, 252), in
// tenths: what the unit may get no worse than.
const exposure = 37

// TestUnitFile: systemd understands every line of the shipped unit and its
// drop-ins, and finds it no more open than it was.
func TestUnitFile(t *testing.T) {
	needTool(t, "systemd-analyze", "systemd")
	dir := t.TempDir()
	// Only that the program is not installed here is no mistake.
	unit := strings.ReplaceAll(readText(t, shippedUnit), "/usr/bin/tailcam", "/bin/true")
	path := writeFile(t, filepath.Join(dir, "tailcam.service"), unit, 0o644)
	assert.NilError(t, os.Mkdir(path+".d", 0o755))
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", path).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	_, score, _ := strings.Cut(string(out), "Overall exposure level for tailcam.service: ")
	score, _, _ = strings.Cut(score, " ")
	n, err := strconv.ParseFloat(score, 64)
	assert.Check(t, err == nil && int(n*10+0.5) <= exposure,
		"exposure level %q is above %d tenths\n%s", score, exposure, out)
	unexplained(t, unit, string(out))
	for _, dropIn := range []string{"", "realtime.conf", "programs.conf", "triggers.conf", "actions.conf", "offline.conf"} {
		if dropIn != "" {
			writeFile(t, filepath.Join(path+".d", dropIn), readText(t, filepath.Dir(shippedUnit), dropIn), 0o644)
		}
		out, err = exec.Command("systemd-analyze", "verify", path).CombinedOutput()
		assert.Check(t, err == nil && len(out) == 0, "%s: %v\n%s", dropIn, err, out)
	}
}

// unexplained holds that the unit says why it does not set what systemd-analyze misses.
func unexplained(t *testing.T, unit, analysis string) {
	t.Helper()
	_, why, ok := strings.Cut(unit, "\n# Not set, and why")
	assert.Assert(t, ok, "the unit does not say what it does not set")
	why, _, _ = strings.Cut(why, "\n\n")
	for line := range strings.Lines(analysis) {
		name, missing := strings.CutPrefix(line, "✗ ")
		name = strings.Fields(name + " -")[0]
		if !missing || strings.HasPrefix(name, "CapabilityBoundingSet=") {
			continue // each capability has its reason there
		}
		for _, option := range strings.Split(name, "/") {
			if _, group, ok := strings.Cut(option, "~@"); ok {
				option = "~@" + group
			} else {
				option, _, _ = strings.Cut(option, "=")
				option += "="
			}
			if strings.Contains(why, option) {
				name = ""
			}
		}
		assert.Check(t, name == "", "the unit does not set %s, and does not say why", name)
	}
}
