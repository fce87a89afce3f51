package daemon

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	client "github.com/tailcam/tailcam/clients/go"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/child"
)

//go:embed testdata/slowthread.py
var slowThreadProgram string

// slowThreadVerb is with what the test's program is a slow thread, as testdata/slowthread.c is.
const slowThreadVerb = "slow-thread"

// slowThread is that program.
func slowThread(socket string) int {
	runtime.LockOSThread()
	_ = os.WriteFile("/proc/thread-self/comm", []byte("slow-go"), 0) // the test misses it
	nap := syscall.NsecToTimespec(int64(300 * time.Millisecond))
	_ = syscall.Nanosleep(&nap, nil) // as long as it is
	id, err := client.TriggerThread(socket, "slow request", &client.TriggerOptions{Last: 600 * time.Millisecond, After: 20 * time.Millisecond})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(syscall.Gettid(), id)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// TestTriggerNamesThread: a thread that was slow asks with the client of each language, and its
// own time is explained, also if it knows itself by another id.
func TestTriggerNamesThread(t *testing.T) {
	needRoot(t)
	unshare := needTool(t, "unshare", "util-linux")
	python := needTool(t, "python3", "python3")
	modules, err := filepath.Abs("../../../clients/python")
	assert.NilError(t, err)
	self, err := os.Executable()
	assert.NilError(t, err)
	compiled := buildC(t, "slowthread", "-pthread", "-I../../../clients/c")
	script := writeFile(t, filepath.Join(t.TempDir(), "slowthread.py"), slowThreadProgram, 0o644)
	d := start(t, rulesFile(napRule("nap", newUID())))

	for comm, argv := range map[string][]string{
		"slow-c": {compiled, d.socket}, "slow-go": {self, slowThreadVerb, d.socket}, "slow-python": {python, script, d.socket},
	} {
		for _, within := range [][]string{nil, {unshare, "--pid", "--fork", "--kill-child", "--mount-proc"}} {
			argv := append(within, argv...)
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Env = append(cmd.Environ(), "PYTHONPATH="+modules, "PYTHONDONTWRITEBYTECODE=1")
			p := child.Talk(t, cmd)
			itself, id, _ := strings.Cut(p.Line(), " ")
			dir := filepath.Join(d.snaps, id)
			eventually(t, "the snapshot of "+comm, func() bool { _, err := os.Stat(dir); return id != "" && err == nil })

			m, err := snapshot.ReadMeta(dir)
			assert.NilError(t, err)
			assert.Assert(t, len(m.Outliers) == 1, "%s: %+v", comm, m.Outliers)
			o := &m.Outliers[0]
			ids := namespaced(t, o.Task.TID)
			assert.Check(t, o.Task.Comm == comm && ids[len(ids)-1] == itself, "%s %s: %+v, %v", comm, itself, o.Task, ids)
			assert.Check(t, (len(ids) == 2) == (within != nil), "%s: %v", comm, ids)
			assert.Check(t, o.DelayNS == int64(600*time.Millisecond) && m.Window.ToMonoNS == o.EndMono+uint64(20*time.Millisecond), "%+v", m.Window)
			assert.Assert(t, o.Explained != nil, comm)
			who, _, _ := strings.Cut(o.Explained.Verdict, ":") // with the program's name, if it is another
			assert.Check(t, strings.HasPrefix(who, "the last 600.0 ms of "+comm+" ") && strings.HasSuffix(who, fmt.Sprintf(" %d", o.Task.TID)), "%q", o.Explained.Verdict)
			assert.NilError(t, p.End())
		}
	}
	assert.Check(t, d.status().rule("nap").Outliers == 0, "a trigger counted as an outlier of a rule")
}

// namespaced are the ids of a thread, in each of its pid namespaces.
func namespaced(t *testing.T, tid int) []string {
	t.Helper()
	for line := range strings.Lines(readText(t, filepath.Join("/proc", strconv.Itoa(tid)), "status")) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.Fields(ids)
		}
	}
	t.Fatalf("thread %d has no ids", tid)
	return nil
}

// TestTriggerNotOwn: who asks for the time of a thread of its own gets no other's.
func TestTriggerNotOwn(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("nap", newUID())))
	for body, want := range map[string]string{
		`{"self": true, "tid": 1}`:           "has no thread that it knows as 1",
		`{"self": true, "tid": 1, "pid": 1}`: "cannot be combined with pid",
		`{"self": true, "tid": -1}`:          "must be positive",
		`{"self": true, "last": "nonsense"}`: "no positive duration",
		`{"self": "yes"}`:                    "self",
		fmt.Sprintf(`{"self": true, "tid": %d}`, background(t, "sleep", "600")): "has no thread",
	} {
		status, text := d.post("/v1/trigger", body)
		assert.Check(t, status == 400 && strings.Contains(text, want), "%s: %d %s", body, status, text)
	}
	assert.Check(t, len(d.list()) == 0, "%+v", d.list())
}
