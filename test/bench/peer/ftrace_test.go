package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// instances are those of ftrace that this package has made, whose script lives or not.
func instances(t *testing.T, alive bool) string {
	t.Helper()
	var ours []string
	for _, name := range strings.Fields(withTracefs(t, "ls /sys/kernel/tracing/instances")) {
		if pid, ok := strings.CutPrefix(name, "tailcam-bench-"); ok {
			if _, err := os.Stat("/proc/" + pid); alive == (err == nil) {
				ours = append(ours, name)
			}
		}
	}
	return strings.Join(ours, " ")
}

// setEvents are those that an instance records.
func setEvents(t *testing.T, instance string) string {
	t.Helper()
	return withTracefs(t, "cat /sys/kernel/tracing/instances/"+instance+"/set_event")
}

// withTracefs is what a command prints where tracefs is mounted.
func withTracefs(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("/bin/sh", "-c", `exec unshare --mount /bin/sh -c "$0" sh `+command, inTracefs).CombinedOutput()
	assert.NilError(t, err, "%s: %v\n%s", command, err, out)
	return string(out)
}

// TestFtraceGoes removes its instance when it is stopped, and when the run is interrupted.
func TestFtraceGoes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts tracefs")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rare := []string{"block:block_rq_remap"} // of stacked disks
	p, err := Ftrace(t.Context(), 1<<16, rare)
	assert.NilError(t, err)
	name := fmt.Sprintf("tailcam-bench-%d", p.PID())
	assert.Check(t, strings.Contains(instances(t, true), name), "there is no instance %s to record into", name)
	for _, on := range []bool{false, true} {
		assert.NilError(t, p.Record(t.Context(), on))
		recorded := strings.Contains(setEvents(t, name), rare[0])
		assert.Check(t, recorded == on, "told to record: %t, it does: %t", on, recorded)
	}
	assert.Check(t, p.Stop())
	left := instances(t, false)
	assert.Check(t, left == "", "left after it was stopped: %s", left)

	ctx, cancel := context.WithCancel(t.Context())
	p, err = Ftrace(ctx, 1<<16, rare)
	assert.NilError(t, err)
	cancel()
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		t.Error("it goes on after the run was interrupted")
	}
	left = instances(t, false)
	assert.Check(t, left == "", "left after an interruption: %s", left)
	_, err = Ftrace(t.Context(), 1<<16, []string{"no:event"})
	assert.Check(t, err != nil, "records an event that there is not")
	left = instances(t, false)
	assert.Check(t, left == "", "left after it failed: %s", left)
}
