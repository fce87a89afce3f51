package daemon

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/pack"
)

// TestPackRedacted: a real program's name, its arguments, the files that it reads and its
// user stand in the snapshot, and in no byte of the redacted pack; what is explained of it
// is the same, and other programs read the trace.
func TestPackRedacted(t *testing.T) {
	needRoot(t)
	const last = 300 * time.Millisecond
	dir, pid, secrets := secretive(t)
	d := start(t, rulesFile(napRule("nap", newUID())), "--recorder-size", "16MiB", "--recorder-events", "sched,irq,timer,block,workqueue,process,syscall")
	time.Sleep(2 * last)

	var taken struct{ Dir string }
	text := d.ok("snapshot", "-o", "json", "--pid", strconv.Itoa(pid), "--last", last.String())
	assert.NilError(t, json.Unmarshal([]byte(text), &taken), "%s", text)
	plain, redacted := filepath.Join(dir, "plain.tailcam"), filepath.Join(dir, "redacted.tailcam")
	d.ok("snapshots", "pack", taken.Dir, "-O", plain)
	listed := d.verb("snapshots", "pack", taken.Dir, "--redact", "-O", redacted)
	assert.Assert(t, listed.code == 0 && strings.Contains(listed.err, "commands "), "%+v", listed)
	assert.Check(t, is.DeepEqual(secretsIn(t, plain, secrets), secrets), "the search must find them before")
	assert.Check(t, is.DeepEqual(secretsIn(t, redacted, secrets), []string(nil)))

	explained := func(file string) explain.Result {
		var r explain.Report
		assert.NilError(t, json.Unmarshal([]byte(d.ok("explain", file, "-o", "json")), &r))
		assert.Assert(t, is.Len(r.Outliers, 1))
		return r.Outliers[0]
	}
	a, b := explained(plain), explained(redacted)
	assert.Assert(t, is.Len(b.Parts, len(a.Parts)), "%q, %q", a.Verdict, b.Verdict)
	for i := range a.Parts {
		x, y := &a.Parts[i], &b.Parts[i]
		assert.Check(t, x.Cause == y.Cause && x.NS == y.NS && x.Count == y.Count && (x.By == nil) == (y.By == nil), "%+v, %+v", x, y)
	}
	assert.Check(t, is.Len(b.Path, len(a.Path)))
	assert.Check(t, is.Contains(b.Verdict, b.Task.Called()))
	t.Logf("%s\n%s", a.Verdict, b.Verdict)
	for _, args := range [][]string{{taken.Dir}, {taken.Dir, "--redact"}} {
		cmd := exec.Command(built.tailcam, append([]string{"snapshots", "pack", "-O", "-"}, args...)...)
		out, err := cmd.Output()
		assert.NilError(t, err)
		t.Logf("%s: %s of CPU time, %d KiB at most, %d bytes", cmd.Args[4:], cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(),
			cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss, len(out))
	}
}

// secretive runs a program, until the test ends, that has names of which none may be found
// where names were redacted, and returns its directory.
func secretive(t *testing.T) (dir string, pid int, secrets []string) {
	t.Helper()
	dir = publicDir(t, "")
	shell, file := filepath.Join(dir, "acmebillingd"), filepath.Join(dir, "acme-invoices.db")
	data, err := os.ReadFile("/bin/dash")
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(shell, data, 0o755))
	assert.NilError(t, os.WriteFile(file, []byte("one\n"), 0o600))
	secrets = []string{"acmebillingd", "acme-invoices.db", "acme-argument-hunter22", "/home/annabel/ledger", "annabel", "10.77.66.55"}
	pid = background(t, shell, "-c", "while :; do read x <"+file+"; sleep 0.02; done", "acme-argument-hunter22", "/home/annabel/ledger", "10.77.66.55")
	return dir, pid, secrets
}

// secretsIn unpacks a pack, and lists the secrets in its files and their names; other
// programs must be able to read the trace.
func secretsIn(t *testing.T, file string, secrets []string) (found []string) {
	t.Helper()
	dir := t.TempDir()
	in, err := os.Open(file)
	assert.NilError(t, err)
	defer in.Close()
	_, err = pack.Read(in, dir)
	assert.NilError(t, err)
	has := map[string]bool{}
	assert.NilError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if e.Name() == "metadata" {
			plain := plainTrace(t, filepath.Dir(filepath.Dir(filepath.Dir(path))))
			out, err := exec.Command(needTool(t, "babeltrace2", "babeltrace2"), plain).Output()
			assert.NilError(t, err)
			assert.Check(t, bytes.Count(out, []byte("\n")) > 100, "babeltrace2 finds few events")
		}
		data, err := os.ReadFile(path)
		for _, s := range secrets {
			if bytes.Contains(data, []byte(s)) || bytes.Contains([]byte(path), []byte(s)) {
				has[s] = true
			}
		}
		return err
	}))
	for _, s := range secrets {
		if has[s] {
			found = append(found, s)
		}
	}
	return slices.Clip(found)
}
