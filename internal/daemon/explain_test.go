package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// Whether a niceness can be taken back is as the capabilities say, here of
// other processes. Asking changes nothing.
func TestCanRaisePriority(t *testing.T) {
	if os.Getenv("TAILCAM_TEST_RAISE_PRIORITY") != "" {
		if canRaisePriority() {
			t.Log("can raise")
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("to drop capabilities needs root")
	}
	for _, tc := range []struct {
		bounds string
		want   bool
	}{{"-sys_nice", false}, {"+sys_nice", true}} {
		cmd := exec.Command("prlimit", "--nice=0:0", "setpriv", "--bounding-set="+tc.bounds, os.Args[0], "-test.run", "^TestCanRaisePriority$", "-test.v")
		cmd.Env = append(os.Environ(), "TAILCAM_TEST_RAISE_PRIORITY=1")
		out, err := cmd.CombinedOutput()
		assert.NilError(t, err, "%s", out)
		got := strings.Contains(string(out), "can raise")
		assert.Check(t, got == tc.want, "with capabilities %s: %t, want %t: %s", tc.bounds, got, tc.want, out)
	}
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	assert.NilError(t, err)
	canRaisePriority()
	after, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	assert.Check(t, err == nil && after == before,
		"asking has changed the niceness: %d, before %d; %v", 20-after, 20-before, err)
}

// TestExplainingKeepsThreads: threads that have explained go on, with the niceness that they had.
// A snapshot on an overloaded machine would wait for new ones.
func TestExplainingKeepsThreads(t *testing.T) {
	if !canRaisePriority() {
		t.Skip("to give a niceness back needs CAP_SYS_NICE")
	}
	seen := map[string]bool{}
	threads := func() (list []string) {
		entries, err := os.ReadDir("/proc/self/task")
		assert.NilError(t, err)
		for _, e := range entries {
			seen[e.Name()] = true
			list = append(list, e.Name())
		}
		return list
	}
	ordinary, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	assert.NilError(t, err)
	threads()
	before := len(seen)
	d := &daemon{}
	for range 50 {
		_, err := d.explainInBackground(nil, nil, nil) // panics, as there is nothing to explain
		assert.Assert(t, err != nil && !d.explaining.late())
		for _, name := range threads() {
			tid, err := strconv.Atoi(name)
			assert.NilError(t, err)
			nice, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
			if _, gone := os.Stat(filepath.Join("/proc/self/task", name)); gone == nil {
				assert.Check(t, err == nil && nice == ordinary, "thread %d has niceness %d; %v", tid, 20-nice, err)
			}
		}
	}
	assert.Check(t, len(seen)-before < 20, "%d new threads for 50 explanations", len(seen)-before)
}
