package guest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/inject"
)

// needIdle skips where minutes of nothing take minutes.
func needIdle(t *testing.T) {
	t.Helper()
	if !strings.HasSuffix(os.Getenv("TAILCAM_GUEST_KERNEL"), "-idle") {
		t.Skip("the clock of this guest does not jump while it idles")
	}
}

// TestIdle keeps the promise that the shipped rules are silent on an idle
// machine: minutes of nothing make no outlier and no snapshot. After that one
// latency proves that the daemon was not deaf.
func TestIdle(t *testing.T) {
	inGuest(t)
	needIdle(t)
	const idle = 4 * time.Minute
	dir := t.TempDir()
	socket, snaps := filepath.Join(dir, "s.sock"), filepath.Join(dir, "snaps")
	env := []string{"PATH=/bin"} // tailcam takes TAILCAM_GUEST for a key of its configuration
	daemon := exec.Command("/bin/tailcam", "run", "--rules", "../../../configs/rules.d",
		"--socket-path", socket, "--snapshots-dir", snaps, "--snapshots-min-free", "0", "--budget-cpu", "100%", "--budget-softirqs", "off", "--budget-locks", "off") // emulated CPUs are slow
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
	t.Logf("while it started: %s", ask("events", "-o", "json"))
	time.Sleep(time.Minute) // what starting it and asking it has caused, until its helpers rest
	from := time.Now()
	time.Sleep(idle)
	to := time.Now().Add(-time.Second) // asking takes an emulated CPU 20 ms at a stretch, for which others wait
	for _, kind := range [][]string{{"events"}, {"list", "snapshots"}} {
		for _, w := range happened(t, ask(append(kind, "-o", "json")...)) {
			assert.Check(t, w.end.Before(from) || w.begin.After(to), "%v of nothing made one of %v:\n%s", idle, kind, w.line)
		}
	}

	inject.Run(t, "wakeup", "1", "50000", "0", "1", "1")
	for end := time.Now().Add(time.Minute); !strings.Contains(ask("events", "-o", "json"), `"comm":"inj-wakeup"`); time.Sleep(100 * time.Millisecond) {
		assert.Assert(t, !time.Now().After(end), "a wake-up that took 50 ms is not reported")
	}
}

// happening is one line of what tailcam prints, and when that was.
type happening struct {
	begin, end time.Time
	line       string
}

// happened reads outliers or snapshots.
func happened(t *testing.T, text string) (list []happening) {
	t.Helper()
	for line := range strings.Lines(text) {
		var of struct {
			Time    time.Time
			DelayNS int64 `json:"delay_ns"` // of an outlier
		}
		assert.NilError(t, json.Unmarshal([]byte(line), &of), "in %q", line)
		assert.Assert(t, !of.Time.IsZero(), "no time in %q", line)
		list = append(list, happening{of.Time.Add(-time.Duration(of.DelayNS)), of.Time, line})
	}
	return list
}
