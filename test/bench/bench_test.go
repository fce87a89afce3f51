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
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(o.output)
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"sched_switch wakeup", "sched_waking everything", "sys_enter everything",
		"sched_switch " + sRunqslower, "hackbench with " + sShipped,
	} {
		if r := find(t, rows, name); r.NsGross <= 0 {
			t.Errorf("%s was not measured: %+v", name, r)
		}
	}
}

// TestInterrupted leaves nothing behind when it is stopped at once.
func TestInterrupted(t *testing.T) {
	o := small(t, "^wakeup$")
	o.loops = 1_000_000
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("interrupted by the test"))
	defer cancel()
	if err := run(ctx, o); err == nil {
		t.Fatal("an interrupted run reported success")
	}
	if _, err := os.Stat(o.output); err == nil {
		t.Error("an interrupted run wrote results")
	}
}
