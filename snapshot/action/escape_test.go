package action

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// marked lists the living processes with a text among their arguments.
func marked(t *testing.T, mark string) []int {
	t.Helper()
	var pids []int
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	assert.NilError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), mark) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		assert.NilError(t, err)
		if pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestNothingOutlivesAnAction: whatever an action does to get away, all of it has
// ended when its result is told.
func TestNothingOutlivesAnAction(t *testing.T) {
	for name, script := range map[string]string{
		"session":         `setsid sleep "$1" & sleep 0.1`,
		"double fork":     `(setsid sh -c 'setsid sleep "$1" & exit' sh "$1" &); sleep 0.2`,
		"closed output":   `setsid sh -c 'exec <&- >&- 2>&-; trap "" TERM HUP INT; while :; do sleep "$1"; done' sh "$1" & sleep 0.2`,
		"over time":       `setsid sh -c 'trap "" TERM; while :; do sleep "$1"; done' sh "$1" & trap "" TERM; while :; do sleep "$1"; done`,
		"always another":  `f() { setsid sh -c 'while :; do (sleep "$1" &); sleep 0.02; done' sh "$1" & }; f "$1"; f "$1"; sleep 0.3`,
		"kills its group": `setsid sleep "$1" & sleep 0.1; kill -9 0`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mark := strconv.Itoa(100000+os.Getpid()) + "." + strconv.Itoa(len(name))
			res := runJob(t, Options{Grace: 50 * time.Millisecond}, Job{Dir: dir, Items: []Item{item(2*time.Second, sh(script, mark)...)}})[0]
			assert.Check(t, res.Started, "%+v", res)
			if left := marked(t, mark); len(left) > 0 {
				t.Errorf("%d processes are left: %v", len(left), left)
				for _, pid := range left {
					unix.Kill(pid, unix.SIGKILL)
				}
			}
		})
	}
}

// TestLogIsTaken: what lies at the name of a log keeps no action from running,
// and is not written into.
func TestLogIsTaken(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(t.TempDir(), "other")
	assert.NilError(t, os.WriteFile(other, []byte("mine"), 0o644))
	assert.NilError(t, os.Symlink(other, filepath.Join(dir, "action-0.log")))
	assert.NilError(t, os.MkdirAll(filepath.Join(dir, "action-1.log", "full"), 0o755))
	assert.NilError(t, unix.Mkfifo(filepath.Join(dir, "action-2.log"), 0o644))
	var items []Item
	for range 3 {
		items = append(items, item(long, sh("echo said")...))
	}
	for i, res := range runJob(t, Options{}, Job{Dir: dir, Items: items}) {
		name := "action-" + strconv.Itoa(i) + ".log"
		if i == 1 {
			found, err := filepath.Glob(filepath.Join(dir, "action-1.*.log"))
			assert.Assert(t, err == nil && len(found) == 1, "%v, %v", found, err)
			name = filepath.Base(found[0])
		}
		log := read(t, dir, name)
		assert.Check(t, res.OK() && strings.Contains(log, "said\n"), "%s: %+v\n%s", name, res, log)
	}
	got := read(t, other)
	assert.Check(t, got == "mine", "the file that a link leads to is %q", got)
}

// TestHungAction: an action that hangs in the kernel costs its time limit and the
// grace, and holds up neither later ones nor the stop.
func TestHungAction(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	assert.NilError(t, os.WriteFile(source, make([]byte, 1<<20), 0o644))
	fs := stuckfs.Mount(t, "file", source)
	fs.Hang()
	t.Cleanup(fs.Answer)
	results := make(chan Result, 2)
	r := New(Options{
		Concurrency: 1, Grace: 50 * time.Millisecond, Supervisor: "/proc/self/exe",
		OnResult: func(res Result) { results <- res },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	hung := item(500*time.Millisecond, "dd", "if="+fs.Path(), "of=/dev/null", "bs=4096", "count=1", "iflag=direct")
	assert.Assert(t, r.Submit(Job{Items: []Item{hung, item(long, "true")}}), "job refused")
	res := <-results
	assert.Check(t, res.TimedOut && res.Err != nil && strings.Contains(res.Err.Error(), "stuck in the kernel"),
		"the hung one: %+v", res)
	res = <-results
	assert.Check(t, res.OK(), "the one after it: %+v", res)
	cancel()
	assert.Check(t, <-ended)
	n := r.Stats().Hung["wakeup"]
	assert.Check(t, n == 1, "%d are counted as hung", n)
}

// TestSupervisorEndsWithTheDaemon: an action does not go on when the daemon was killed.
func TestSupervisorEndsWithTheDaemon(t *testing.T) {
	if text := os.Getenv("TEST_ACTION_MARK"); text != "" {
		runJob(t, Options{}, Job{Items: []Item{item(long, sh(`setsid sleep "$1" & sleep "$1"`, text)...)}})
		return
	}
	mark := strconv.Itoa(200000+os.Getpid()) + ".5"
	proc, err := os.StartProcess("/proc/self/exe", []string{"test", "-test.run=^TestSupervisorEndsWithTheDaemon$"}, &os.ProcAttr{
		Env: append(os.Environ(), "TEST_ACTION_MARK="+mark), Files: []*os.File{nil, nil, os.Stderr},
	})
	assert.NilError(t, err)
	wait := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
			assert.Assert(t, !time.Now().After(end), "not in time: %s", what)
		}
	}
	wait("both run", func() bool { return len(marked(t, mark)) >= 3 })
	proc.Kill()
	proc.Wait()
	wait("all have ended", func() bool { return len(marked(t, mark)) == 0 })
}
