package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestReload: what a reload did, and would do, in words and in the exit status.
func TestReload(t *testing.T) {
	_, socket := serve(t)
	const changed = "changed: rule disk (/r.yaml:2:5)\n    threshold_ns: 5 -> 7\n"
	for _, c := range []struct {
		args   string
		status int
		out    string
		err    string
	}{
		{"check --diff --socket " + socket, exitOK, changed + "ok: all changes apply without a restart\n", ""},
		{"reload --socket " + socket, exitError,
			"refused: key recorder.size: restart tailcam\n    1 -> 2\n" + changed + "in part: the rest is as before: see the errors\n",
			"/b.yaml:1:1: file is empty\n/b.yaml: not used; its earlier rules stay: wakeup\n"},
		{"check --diff x", exitUsage, "", "tailcam: check --diff takes no paths: the daemon reads its own files\n"},
		{"reload x", exitUsage, "", "tailcam: \"tailcam reload\" takes no arguments, got \"x\": see \"tailcam reload --help\"\n"},
	} {
		status, stdout, stderr := invoke(t, strings.Fields(c.args)...)
		assert.Check(t, status == c.status && stdout == c.out && stderr == c.err, "%s: status %d\n%s%s", c.args, status, stdout, stderr)
	}
	status, stdout, _ := invoke(t, "reload", "-o", "json", "--socket", socket)
	assert.Check(t, status == exitError && isJSONLines(t, stdout) == 1, "json: status %d, %s", status, stdout)
}
