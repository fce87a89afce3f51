package daemon

import (
	"os"
	"os/exec"
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
