package guest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/inject"
)

// TestIdle keeps the promise that the shipped rules are silent on an idle
// machine: minutes of nothing make no outlier and no snapshot. After that one
// latency proves that the daemon was not deaf.
func TestIdle(t *testing.T) {
	inGuest(t)
	if !strings.HasSuffix(os.Getenv("TAILCAM_GUEST_KERNEL"), "-idle") {
		t.Skip("the clock of this guest does not jump while it idles")
	}
	const idle = 4 * time.Minute
	dir := t.TempDir()
	socket, snaps := filepath.Join(dir, "s.sock"), filepath.Join(dir, "snaps")
	env := []string{"PATH=/bin"} // tailcam takes TAILCAM_GUEST for a key of its configuration
	daemon := exec.Command("/bin/tailcam", "run", "--rules", "../../../configs/rules.d",
		"--socket-path", socket, "--snapshots-dir", snaps, "--snapshots-min-free", "0", "--budget-cpu", "100%", "--budget-softirqs", "off") // emulated CPUs are slow
	var log bytes.Buffer
	daemon.Stdout, daemon.Stderr, daemon.Env = &log, &log, env
	assert.NilError(t, daemon.Start())
	ask := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("/bin/tailcam", append(args, "--socket", socket)...)
		cmd.Env = env
		out, err := cmd.Output()
		assert.NilError(t, err, "tailcam %v: %v\n%s", args, err, out)
		return string(out)
	}
	t.Cleanup(func() {
		assert.Check(t, daemon.Process.Signal(syscall.SIGTERM))
		begin := time.Now()
		err := daemon.Wait()
		t.Logf("ended after %v", time.Since(begin))
		assert.Check(t, err == nil && !t.Failed(), "the daemon: %v\n%s", err, &log)
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		assert.Assert(t, !time.Now().After(end), "the daemon does not answer")
	}
	// It answers before its programs are loaded, which takes a minute here. Asking costs seconds.
	for end := time.Now().Add(10 * time.Minute); strings.Contains(ask("status", "-o", "json"), `"attaching"`); time.Sleep(5 * time.Second) {
		assert.Assert(t, !time.Now().After(end), "it is not attached to the functions of system calls")
	}
	assert.Check(t, strings.Contains(log.String(), "attached to system calls"), "%s", &log)
	assert.Check(t, !strings.Contains(ask("status", "-o", "json"), "sys_enter"), "it is attached to every system call")
	time.Sleep(5 * time.Second) // what starting it and asking it has caused
	before := ask("events", "-o", "json")
	time.Sleep(idle)
	after := ask("events", "-o", "json") // what it knows of earlier ones may have been completed since
	seen := eventIDs(before)
	assert.Check(t, is.DeepEqual(eventIDs(after), seen), "%v of nothing made outliers:\n%s", idle, after)
	list := ask("list", "snapshots", "-o", "json")
	assert.Check(t, before != "" || list == "", "snapshots were taken:\n%s", list)
	t.Logf("while it started: %q", before)

	inject.Run(t, "wakeup", "1", "50000", "0", "1", "1")
	for end := time.Now().Add(time.Minute); !strings.Contains(ask("events", "-o", "json"), `"comm":"inj-wakeup"`); time.Sleep(100 * time.Millisecond) {
		assert.Assert(t, !time.Now().After(end), "a wake-up that took 50 ms is not reported")
	}
}

// eventIDs lists the ids of outliers that tailcam events prints.
func eventIDs(text string) (list []string) {
	for _, m := range eventID.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

var eventID = regexp.MustCompile(`(?m)^\{"schema":"[^"]*","id":"([^"]*)"`)
