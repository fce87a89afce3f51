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
)

// instances are those of ftrace that this package has made, whose script lives or not.
func instances(t *testing.T, alive bool) string {
	t.Helper()
	out, err := exec.Command("/bin/sh", "-c", `exec unshare --mount /bin/sh -c "$0" sh ls /sys/kernel/tracing/instances`, inTracefs).CombinedOutput()
	if err != nil {
		t.Fatalf("list ftrace's instances: %v\n%s", err, out)
	}
	var ours []string
	for _, name := range strings.Fields(string(out)) {
		if pid, ok := strings.CutPrefix(name, "tailcam-bench-"); ok {
			if _, err := os.Stat("/proc/" + pid); alive == (err == nil) {
				ours = append(ours, name)
			}
		}
	}
	return strings.Join(ours, " ")
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
	if err != nil {
		t.Fatal(err)
	}
	if name := fmt.Sprintf("tailcam-bench-%d", p.PID()); !strings.Contains(instances(t, true), name) {
		t.Errorf("there is no instance %s to record into", name)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if left := instances(t, false); left != "" {
		t.Errorf("left after it was stopped: %s", left)
	}

	ctx, cancel := context.WithCancel(t.Context())
	if p, err = Ftrace(ctx, 1<<16, rare); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		t.Error("it goes on after the run was interrupted")
	}
	if left := instances(t, false); left != "" {
		t.Errorf("left after an interruption: %s", left)
	}
	if _, err := Ftrace(t.Context(), 1<<16, []string{"no:event"}); err == nil {
		t.Error("records an event that there is not")
	}
	if left := instances(t, false); left != "" {
		t.Errorf("left after it failed: %s", left)
	}
}
