package action

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/tailcam/tailcam/tracker/events"
)

// hostile is text that a task can put into its name.
const hostile = "a\"b\\c\n<!channel>&\x1b[2J\xff`$(id)`\r\nBcc: all@example.org"

// told runs a shipped script with a hostile verdict.
func told(t *testing.T, dir string, run ...string) (Result, string) {
	t.Helper()
	run[0] = shipped(t, run[0])
	it := item(long, run...)
	it.Outlier.Task.Comm = hostile
	it.Outlier.Explained = &events.Explained{Verdict: hostile + " waited", Advice: "ask " + hostile, Cause: "lock", By: hostile, ByKind: "task"}
	res := runJob(t, Options{}, Job{ID: scriptID, Dir: dir, Items: []Item{it}})[0]
	return res, read(t, dir, "action-0.log")
}

func TestNotify(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	var body []byte
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		assert.Check(t, is.Equal(r.Header.Get("Content-Type"), "application/json"))
		w.WriteHeader(status)
	}))
	defer server.Close()
	conf := filepath.Join(t.TempDir(), "notify.conf")
	for _, of := range []struct {
		format string
		text   func(m map[string]any) any
	}{
		{"slack", func(m map[string]any) any { return m["text"] }},
		{"teams", func(m map[string]any) any {
			card := m["attachments"].([]any)[0].(map[string]any)["content"].(map[string]any)
			return card["body"].([]any)[0].(map[string]any)["text"]
		}},
	} {
		assert.NilError(t, os.WriteFile(conf, []byte("FORMAT="+of.format+"\nURL='"+server.URL+"/?key=\"secret\"'\n"), 0o600))
		res, log := told(t, snapshotDir(t), "notify.sh", "-c", conf)
		assert.Assert(t, res.OK(), "%s\n%s", res.String(), log)
		assert.Check(t, !strings.Contains(log, "secret"), "the log has the URL: %s", log)
		var m map[string]any
		assert.NilError(t, json.Unmarshal(body, &m), "%s", body)
		text, ok := of.text(m).(string)
		assert.Check(t, ok && strings.Contains(text, `a"b\c?&lt;!channel&gt;&amp;?[2J?`) && strings.Contains(text, " waited") &&
			strings.Contains(text, scriptID), "%s: %q", of.format, text)
	}
	res, log := told(t, snapshotDir(t), "notify.sh", "-n", "-c", conf)
	assert.Check(t, res.OK() && strings.Contains(log, `"AdaptiveCard"`), "%s\n%s", res.String(), log)

	status = http.StatusForbidden
	res, log = told(t, snapshotDir(t), "notify.sh", server.URL)
	assert.Check(t, !res.OK() && strings.Contains(log, "403"), "%s\n%s", res.String(), log)
	res, log = told(t, snapshotDir(t), "notify.sh", "file:///etc/passwd")
	assert.Check(t, !res.OK() && strings.Contains(log, "invalid URL"), "%s\n%s", res.String(), log)
}

// TestMail reads what the script hands to sendmail.
func TestMail(t *testing.T) {
	dir := snapshotDir(t)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "explain.txt"), []byte("where it went\n\x1b[2J"), 0o640))
	sendmail := filepath.Join(t.TempDir(), "sendmail")
	assert.NilError(t, os.WriteFile(sendmail, []byte("#!/bin/sh\nprintf '%s\\n' \"$*\" >to\ncat >mail\n"), 0o755))
	res, log := told(t, dir, "mail.sh", "-s", sendmail, "ops@example.org", "root")
	assert.Assert(t, res.OK(), "%s\n%s", res.String(), log)
	assert.Check(t, is.Equal(read(t, dir, "to"), "-oi -- ops@example.org root\n"))
	head, body, _ := strings.Cut(read(t, dir, "mail"), "\n\n")
	assert.Check(t, strings.HasPrefix(head, "To: ops@example.org, root\nSubject: tailcam on ") &&
		!strings.Contains(head, "\nBcc"), "header:\n%s", head)
	assert.Check(t, strings.Contains(body, " waited\n") && strings.Contains(body, "where it went\n[2J") &&
		!strings.Contains(body, "\nBcc"), "body:\n%s", body)
	res, log = told(t, snapshotDir(t), "mail.sh", "-s", sendmail, "-oQ/tmp")
	assert.Check(t, !res.OK() && strings.Contains(log, "invalid address"), "%s\n%s", res.String(), log)
}

func TestPerfRecord(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("perf"); err != nil {
		t.Skip("perf is not installed")
	}
	dir := snapshotDir(t)
	res, log := script(t, dir, "perf-record.sh", "1")
	assert.Assert(t, res.OK(), "%s\n%s", res.String(), log)
	files, err := filepath.Glob(filepath.Join(strings.ReplaceAll(dir, "[", "?"), "perf.*", "perf.data"))
	assert.NilError(t, err)
	assert.Assert(t, len(files) == 1, "wrote %q", files)
	out, err := exec.Command("perf", "script", "-i", files[0], "-F", "comm,pid,event").CombinedOutput()
	assert.Check(t, err == nil && len(out) != 0, "perf script: %v\n%s", err, out)
	res, log = script(t, snapshotDir(t), "perf-record.sh", "1; id")
	assert.Check(t, !res.OK() && strings.Contains(log, "invalid SECONDS"), "%s\n%s", res.String(), log)
}

// mountTracefs mounts it unless perf, which does so by itself, has done it.
const mountTracefs = "mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing; "

// noInstances waits until no script has an instance of tracefs.
func noInstances(t *testing.T) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if left := instances(t); strings.Contains(left, "tailcam-") {
			return poll.Continue("%s is left", left)
		}
		return poll.Success()
	}, poll.WithTimeout(long))
}

// instances lists the instances of tracefs, mounted where nobody else sees it.
func instances(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("unshare", "--mount", "sh", "-c",
		mountTracefs+"ls /sys/kernel/tracing/instances").Output()
	assert.NilError(t, err)
	return string(out)
}

// TestExtraTrace: the kernel's tracer saw the slow process, and nothing of it stays, also if
// the action is ended early.
func TestExtraTrace(t *testing.T) {
	needRoot(t)
	pid := sleeper(t, "/bin/sh", "-c", "while :; do sleep 0.01; done")
	trace := func(limit time.Duration, args ...string) (Result, string, string) {
		dir := snapshotDir(t)
		it := item(limit, append([]string{shipped(t, "extra-trace.sh")}, args...)...)
		it.Outlier.Task.PID, it.Outlier.Task.TID = pid, pid
		it.Outlier.Explained = &events.Explained{By: hostile + " 999999999", ByKind: "task"} // has exited
		res := runJob(t, Options{}, Job{ID: scriptID, Dir: dir, Items: []Item{it}})[0]
		files, err := filepath.Glob(filepath.Join(strings.ReplaceAll(dir, "[", "?"), "extra-trace.*", "trace.txt.gz"))
		assert.NilError(t, err)
		text := ""
		if len(files) == 1 {
			out, err := exec.Command("gzip", "-dc", files[0]).Output()
			assert.NilError(t, err)
			text = string(out)
		}
		return res, read(t, dir, "action-0.log"), text
	}
	res, log, text := trace(long, "1")
	assert.Assert(t, res.OK(), "%s\n%s", res.String(), log)
	assert.Check(t, strings.Contains(log, "of 1 threads and what they started"), "%s", log)
	assert.Check(t, strings.Contains(text, fmt.Sprintf("prev_comm=sh prev_pid=%d", pid)) && strings.Contains(text, "prev_comm=sleep"), "%s", text)
	for line := range strings.Lines(text) { // of it, what it started, and who ran before or after these
		assert.Check(t, !strings.Contains(line, "sched_switch") || strings.Contains(line, "comm=sh ") || strings.Contains(line, "comm=sleep "), "%s", line)
	}
	res, log, text = trace(long, "-a", "1", "sched:sched_waking", "sched:nothing")
	assert.Check(t, res.OK() && strings.Contains(log, "of all tasks") && strings.Contains(log, "# this kernel has no event sched:nothing"), "%s\n%s", res.String(), log)
	assert.Check(t, strings.Contains(text, "sched_waking") && !strings.Contains(text, "sched_switch"), "%s", text)

	res, log, _ = trace(time.Second, "60")
	assert.Check(t, res.TimedOut, "%s\n%s", res.String(), log)
	noInstances(t)

	for _, bad := range []string{"0", "61", "1; id", "$(id)", "-f"} {
		res, log, _ = trace(long, bad)
		assert.Check(t, !res.OK() && strings.Contains(log, "invalid "), "%q: %s\n%s", bad, res.String(), log)
	}
	for _, bad := range []string{"../x", "a:b:c", ":a", "sched_switch", "sched:*"} {
		res, log, _ = trace(long, "1", bad)
		assert.Check(t, !res.OK() && strings.Contains(log, "invalid "), "%q: %s\n%s", bad, res.String(), log)
	}
}

// TestExtraTraceKilled: what a script has left that was killed goes with the next one.
func TestExtraTraceKilled(t *testing.T) {
	needRoot(t)
	out, err := exec.Command("unshare", "--mount", "sh", "-c",
		mountTracefs+"mkdir /sys/kernel/tracing/instances/tailcam-999999999").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	assert.Check(t, strings.Contains(instances(t), "tailcam-999999999"))
	res, log := script(t, snapshotDir(t), "extra-trace.sh", "1")
	assert.Check(t, res.OK(), "%s\n%s", res.String(), log)
	noInstances(t)
}

// sleeper starts a program as another user and ends it with the test.
func sleeper(t *testing.T, run ...string) int {
	t.Helper()
	id, err := lookup("nobody")
	assert.NilError(t, err)
	cmd := exec.Command(run[0], run[1:]...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: id.credential()}
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	return cmd.Process.Pid
}

func TestDumpStacks(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("gdb"); err != nil {
		t.Skip("gdb is not installed")
	}
	pid := sleeper(t, "/bin/sleep", "1000")
	dump := func(args ...string) (Result, string) {
		dir := snapshotDir(t)
		it := item(long, append([]string{shipped(t, "dump-stacks.sh")}, args...)...)
		it.Outlier.Task.PID = pid
		it.Outlier.Explained = &events.Explained{By: fmt.Sprintf("%s 1 %d", hostile, pid), ByKind: "task"}
		res := runJob(t, Options{}, Job{ID: scriptID, Dir: dir, Items: []Item{it}})[0]
		return res, read(t, dir, "action-0.log")
	}
	for _, args := range [][]string{nil, {"-b"}} {
		res, log := dump(args...)
		assert.Check(t, res.OK() && strings.Contains(log, "nanosleep"), "%v: %s\n%s", args, res.String(), log)
		assert.Check(t, alive(pid), "the process did not survive")
	}
}

// TestDumpStacksOfJava: the virtual machine answers, although another user asks.
func TestDumpStacksOfJava(t *testing.T) {
	needRoot(t)
	for _, tool := range []string{"java", "jstack"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	source := filepath.Join(filepath.Dir(openDir(t)), "Slow.java")
	assert.NilError(t, os.WriteFile(source, []byte(
		"class Slow { public static void main(String[] a) throws Exception { System.out.println(1); Thread.sleep(1000000); } }"), 0o644))
	java, err := exec.LookPath("java")
	assert.NilError(t, err)
	it := item(long, shipped(t, "dump-stacks.sh"))
	pid := sleeper(t, java, "-Xmx64m", source)
	it.Outlier.Task.PID = pid
	log := ""
	for begin := time.Now(); time.Since(begin) < long && alive(pid) && !strings.Contains(log, "Slow.main"); {
		dir := snapshotDir(t)
		_ = runJob(t, Options{}, Job{ID: scriptID, Dir: dir, Items: []Item{it}}) // fails until it has started
		log = read(t, dir, "action-0.log")
	}
	assert.Check(t, strings.Contains(log, "Slow.main"), "%s", log)
}

// TestBPFMaps: the script saves a map that a real BPF map's name leads to, and what is
// wrong with a name is told.
func TestBPFMaps(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("bpftool"); err != nil {
		t.Skip("bpftool is not installed")
	}
	const name = "tailcam_t.maps"
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 4})
	assert.NilError(t, err)
	defer m.Close()
	assert.NilError(t, m.Put([]byte{0xca, 0xfe, 1, 2}, []byte{0xbe, 0xef, 3, 4}))
	res, log := script(t, snapshotDir(t), "bpf-maps.sh", name, "tailcam_none")
	assert.Assert(t, res.OK(), "%s\n%s", res.String(), log)
	assert.Check(t, strings.Contains(strings.ToLower(log), "ca fe 01 02") && strings.Contains(log, "# no map has the name tailcam_none"), "%s", log)
	for _, bad := range []string{"-f", "a b", "x;id", "$(id)", ""} {
		res, log = script(t, snapshotDir(t), "bpf-maps.sh", bad)
		assert.Check(t, !res.OK() && strings.Contains(log, "invalid NAME"), "%q: %s\n%s", bad, res.String(), log)
	}
}
