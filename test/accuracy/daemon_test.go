package accuracy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// hang is how long anything may take that has to happen.
const hang = 30 * time.Second

// camera is a running daemon with a rule for each scenario.
type camera struct {
	cmd    *exec.Cmd
	snaps  string
	socket string
	log    child.Output
	done   chan struct{}
	stolen time.Duration // what the hypervisor had taken before
}

// watch starts a daemon with these rules, and what it records as shipped. It is stopped at the end of the test.
func watch(t *testing.T, rules string, flags ...string) *camera {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yaml")
	assert.NilError(t, os.WriteFile(file, []byte(rules), 0o600))
	c := &camera{snaps: filepath.Join(dir, "snaps"), socket: filepath.Join(dir, "s.sock"), done: make(chan struct{}), stolen: provoke.Stolen(t)}
	c.cmd = exec.Command(built.tailcam, "run", "--rules", file, "--budget-cpu", "100%", "--budget-softirqs", "off", "--budget-locks", "off",
		"--socket-path", c.socket,
		"--snapshots-dir", c.snaps, "--snapshots-min-free", "0", "--recorder-size", "16MiB")
	c.cmd.Args = append(c.cmd.Args, flags...)
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	assert.NilError(t, child.Start(c.cmd))
	go func() {
		defer close(c.done)
		c.cmd.Wait() // looked at in ProcessState
	}()
	t.Cleanup(func() {
		c.cmd.Process.Signal(syscall.SIGTERM)
		<-c.done
		if !c.cmd.ProcessState.Success() || t.Failed() {
			t.Logf("the daemon: %v\n%s", c.cmd.ProcessState, &c.log)
		}
	})
	for end := time.Now().Add(hang); !strings.Contains(c.log.String(), `"message":"watching"`); time.Sleep(5 * time.Millisecond) {
		select {
		case <-c.done:
			t.Fatalf("the daemon ended: %v\n%s", c.cmd.ProcessState, &c.log)
		default:
		}
		assert.Assert(t, !time.Now().After(end), "the daemon does not watch\n%s", &c.log)
	}
	return c
}

// find waits for the snapshot of a latency, and returns what it says of it.
func (c *camera) find(rule string, tr *truth, patience time.Duration) (*explain.Result, string, error) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		dirs, err := filepath.Glob(filepath.Join(c.snaps, "[0-9]*"))
		if err != nil {
			return nil, "", err
		}
		var best *explain.Result
		var where string
		for _, dir := range dirs {
			report, err := readReport(dir)
			if err != nil {
				return nil, "", err
			}
			for i := range report.Outliers {
				r := &report.Outliers[i]
				if r.Rule == rule && (tr.Victim == 0 || r.Task.TID == tr.Victim) && tr.overlap(r) > tr.overlap(best) {
					best, where = r, dir
				}
			}
		}
		if best != nil && 2*tr.overlap(best) > tr.End-tr.Start {
			return best, where, nil
		}
		if time.Now().After(end) {
			return nil, "", fmt.Errorf("no snapshot of it in %s", patience)
		}
	}
}

// readReport returns an empty one of what is not complete yet.
func readReport(dir string) (*explain.Report, error) {
	var report explain.Report
	body, err := os.ReadFile(filepath.Join(dir, snapshot.ExplainJSONFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &report, nil
	}
	if err == nil {
		err = json.Unmarshal(body, &report)
	}
	return &report, err
}

// overlap is for how long an outlier and the truth are about the same time.
func (tr *truth) overlap(r *explain.Result) uint64 {
	if r == nil {
		return 0
	}
	from, to := max(tr.Start, r.StartMonoNS), min(tr.End, r.EndMonoNS)
	return to - min(from, to)
}
