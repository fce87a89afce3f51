package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// small are the options of a run that takes seconds.
func small(t *testing.T, only string) *options {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs and reads their statistics")
	}
	if _, err := exec.LookPath("hackbench"); err != nil {
		t.Skip("needs hackbench (apt-get install rt-tests)")
	}
	t.Chdir("../..")
	return &options{
		rounds: 1, loops: 20, calls: 1000, reads: 10, budget: time.Minute,
		only: regexp.MustCompile(only), output: filepath.Join(t.TempDir(), "bench.json"),
	}
}

// TestRun measures tailcam itself, without other tools, and looks at the
// result's form, not at its numbers.
func TestRun(t *testing.T) {
	o := small(t, "^wakeup$|^everything$|^runqslower|^rules and")
	assert.NilError(t, run(t.Context(), o))
	b, err := os.ReadFile(o.output)
	assert.NilError(t, err)
	var rows []row
	assert.NilError(t, json.Unmarshal(b, &rows))
	for _, name := range []string{
		"sched_switch wakeup", "sched_waking everything", "sys_enter everything",
		"sched_switch " + sRunqslower, "hackbench with " + sShipped,
	} {
		r := find(t, rows, name)
		assert.Check(t, r.NsGross > 0, "%s was not measured: %+v", name, r)
	}
}

// TestInterrupted leaves nothing behind when it is stopped at once.
func TestInterrupted(t *testing.T) {
	o := small(t, "^wakeup$")
	o.loops = 1_000_000
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("interrupted by the test"))
	defer cancel()
	assert.Assert(t, run(ctx, o) != nil, "an interrupted run reported success")
	_, err := os.Stat(o.output)
	assert.Check(t, err != nil, "an interrupted run wrote results")
}
