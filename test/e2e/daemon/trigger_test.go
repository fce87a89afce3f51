package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
)

// timeBefore has a thread's last time explained, and returns its parts.
func timeBefore(d *running, pid int, last time.Duration) explain.Result {
	d.t.Helper()
	var taken struct{ ID, Dir, Verdict string }
	text := d.ok("snapshot", "-o", "json", "--pid", strconv.Itoa(pid), "--last", last.String())
	assert.NilError(d.t, json.Unmarshal([]byte(text), &taken), "%s", text)
	m, err := snapshot.ReadMeta(taken.Dir)
	assert.NilError(d.t, err)
	assert.Assert(d.t, len(m.Outliers) == 1 && m.Outliers[0].Task.TID == pid && m.Outliers[0].DelayNS == int64(last), "%+v", m.Outliers)
	data, err := os.ReadFile(filepath.Join(taken.Dir, snapshot.ExplainJSONFile))
	assert.NilError(d.t, err)
	r := addsUp(d.t, m, data)
	assert.Assert(d.t, len(r.Outliers) == 1 && r.Outliers[0].Verdict == taken.Verdict, "%+v of %q", r, text)
	assert.Check(d.t, strings.HasPrefix(taken.Verdict, "the last "), "%q", taken.Verdict)
	return r.Outliers[0]
}

// background runs a program until the test ends.
func background(t *testing.T, argv ...string) int {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// TestTrigger: what a thread did before a trigger is explained, whether it ran, slept all
// the time without any event of it, or waited for another.
func TestTrigger(t *testing.T) {
	needRoot(t)
	const last = 600 * time.Millisecond
	asleep := background(t, "sleep", "600")
	busy := background(t, "sh", "-c", "while :; do :; done")
	waits := background(t, "sh", "-c", "while :; do sleep 0.2; done")
	d := start(t, rulesFile(napRule("nap", newUID())))
	time.Sleep(2 * last)

	r := timeBefore(d, asleep, last)
	assert.Check(t, len(r.Parts) == 1 && r.Parts[0].Cause == explain.Timer && strings.Contains(r.Verdict, "nanosleep"), "asleep: %q, %+v", r.Verdict, r.Parts)

	r = timeBefore(d, busy, last)
	for _, p := range r.Parts {
		switch p.Cause {
		case explain.Timer, explain.Task, explain.Locked, explain.Unexplained: // a lock of the kernel, briefly
			assert.Check(t, p.NS < int64(last)/10, "a loop that never sleeps: %q, %+v", r.Verdict, p)
		}
	}

	r = timeBefore(d, waits, last)
	assert.Check(t, strings.Contains(r.Verdict, "sleep "), "a shell that waits for sleep(1): %q", r.Verdict)

	text := d.ok("snapshot", "--explain", "--pid", strconv.Itoa(asleep), "--last", "300ms")
	assert.Check(t, strings.Contains(text, d.snaps) && strings.Contains(text, "the last 300.0 ms of sleep"), "%s", text)
	assert.Check(t, d.status().rule("nap").Outliers == 0, "a trigger counted as an outlier of a rule")
}

// TestTriggerRefused: what is wrong with a request is told, and takes no snapshot.
func TestTriggerRefused(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("nap", newUID())))
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--pid", "4194304"}, 1, "no thread 4194304"},
		{[]string{"--pid", "1", "--tid", strconv.Itoa(os.Getpid())}, 1, "of process 1"},
		{[]string{"--pid", "-4"}, 1, "must be positive"},
		{[]string{"--tid", "1", "--last", "0s"}, 1, "no positive duration"},
		{[]string{"--after", "10h"}, 1, "at most 1m0s"},
		{[]string{"--last", "3s"}, 2, "--last needs --pid or --tid"},
		{[]string{"--explain"}, 2, "--explain needs --pid or --tid"},
	} {
		got := d.verb(append([]string{"snapshot"}, c.args...)...)
		assert.Check(t, got.code == c.status && strings.Contains(got.err, c.want), "%q: %+v", c.args, got)
	}
	assert.Check(t, len(d.list()) == 0, "%+v", d.list())
}

// post sends a request over the socket, with what any HTTP client has.
func (d *running) post(path, body string) (status int, text string) {
	d.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket)
	}}}
	resp, err := client.Post("http://tailcam"+path, "application/json", strings.NewReader(body))
	assert.NilError(d.t, err)
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	assert.NilError(d.t, err)
	return resp.StatusCode, string(read)
}

// TestTriggerFromProgram: a program asks over the socket with what any HTTP client has,
// does not wait, and finds the snapshot by the id in the reply.
func TestTriggerFromProgram(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("nap", newUID())))
	body := fmt.Sprintf(`{"tid": %d, "last": "100ms", "after": "200ms", "reason": "slow request", "no_wait": true}`, os.Getpid())
	status, text := d.post("/v1/trigger", body)
	var reply api.Triggered
	assert.NilError(t, json.Unmarshal([]byte(text), &reply), "%d %s", status, text)
	assert.Assert(t, reply.ID != "" && reply.Dir == "", "%s", text)
	eventually(t, "the snapshot", func() bool { return len(d.list()) == 1 })
	m, err := snapshot.ReadMeta(filepath.Join(d.snaps, reply.ID))
	assert.NilError(t, err)
	assert.Check(t, m.Reason == "slow request" && len(m.Outliers) == 1 && m.Outliers[0].Task.TID == os.Getpid(), "%+v", m)
	assert.Check(t, m.Window.ToMonoNS == m.Outliers[0].EndMono+uint64(200*time.Millisecond), "%+v", m.Window)
}
