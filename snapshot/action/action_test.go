package action

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// long is a time limit that a test never reaches unless something hangs.
const long = time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		os.Exit(Supervise(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func outlier() events.Outlier {
	return events.Outlier{
		Time: time.Date(2026, 11, 20, 23, 15, 2, 123456789, time.UTC),
		Rule: "wakeup", Track: "wakeup", Cause: events.CauseThreshold,
		DelayNS: 20_010_000, ThresholdNS: 5_000_000, CPU: 2,
		Task: events.Task{PID: 42, TID: 43, Comm: "odd $(x) name"},
	}
}

func item(timeout time.Duration, run ...string) Item {
	return Item{Action: rules.Action{Run: run, Timeout: timeout, On: rules.OnSnapshot}, Outlier: outlier()}
}

func sh(script string, args ...string) []string {
	return append([]string{"/bin/sh", "-c", script, "sh"}, args...)
}

// runJob runs one job to its end and returns the results in order.
func runJob(t *testing.T, o Options, j Job) []Result {
	t.Helper()
	var results []Result
	o.Concurrency, o.Supervisor = 1, "/proc/self/exe"
	o.OnResult = func(r Result) { results = append(results, r) }
	r := New(o)
	done := make(chan struct{})
	j.Done = func() { close(done) }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	assert.Assert(t, r.Submit(j), "job refused")
	<-done
	cancel()
	assert.NilError(t, <-ended)
	return results
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	assert.NilError(t, err)
	return string(b)
}

func TestInputs(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SECRET", "of the daemon")
	runJob(t, Options{}, Job{ID: "the-id", Dir: dir, Items: []Item{
		item(long, sh(`cat >in; env >env; pwd -P >cwd; echo "$1"; echo oops >&2`, "a b;c")...),
	}})

	in := read(t, dir, "in")
	var got events.Outlier
	assert.NilError(t, json.Unmarshal([]byte(in), &got))
	assert.Check(t, strings.HasSuffix(in, "}\n") && got.Task.Comm == "odd $(x) name" && got.DelayNS == 20_010_000,
		"standard input is %q", in)
	env := strings.Split(read(t, dir, "env"), "\n")
	for _, want := range []string{
		"PATH=" + searchPath, "TAILCAM_RULE=wakeup", "TAILCAM_TRACK=wakeup", "TAILCAM_CAUSE=threshold",
		"TAILCAM_DELAY_NS=20010000", "TAILCAM_THRESHOLD_NS=5000000", "TAILCAM_PID=42", "TAILCAM_TID=43",
		"TAILCAM_COMM=odd $(x) name", "TAILCAM_CPU=2", "TAILCAM_TIME=2026-11-20T23:15:02.123456789Z",
		"TAILCAM_SNAPSHOT=" + dir, "TAILCAM_SNAPSHOT_ID=the-id",
	} {
		assert.Check(t, slices.Contains(env, want), "%s is missing in the environment %q", want, env)
	}
	assert.Check(t, !slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, "SECRET=") }),
		"the daemon's environment leaked")
	real, err := filepath.EvalSymlinks(dir)
	assert.NilError(t, err)
	cwd := read(t, dir, "cwd")
	assert.Check(t, cwd == real+"\n", "working directory %q", cwd)
	log := read(t, dir, "action-0.log")
	for _, want := range []string{"# tailcam: action 0 of rule wakeup", "\na b;c\n", "\noops\n", "\n# exit status 0 after "} {
		assert.Check(t, strings.Contains(log, want), "%q is missing in the log:\n%s", want, log)
	}
}

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name    string
		item    Item
		started bool
		ok      bool
		status  int
		text    string
	}{
		{"good", item(long, "/bin/true"), true, true, 0, "exit status 0"},
		{"by name", item(long, "true"), true, true, 0, "exit status 0"},
		{"status", item(long, sh("exit 3")...), true, false, 3, "exit status 3"},
		{"signal", item(long, sh("kill -SEGV $$")...), true, false, -1, "killed by signal 11 (segmentation fault)"},
		{"missing", item(long, "/no/such"), false, false, -1, "did not start: program /no/such does not exist"},
		{"empty", item(long), false, false, -1, "did not start: run is empty"},
		{"unread input", item(long, "/bin/true", strings.Repeat("x", 1000)), true, true, 0, "exit status 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			res := runJob(t, Options{}, Job{Dir: dir, Items: []Item{c.item}})[0]
			assert.Check(t, res.Started == c.started && res.OK() == c.ok && res.Status == c.status &&
				strings.HasPrefix(res.String(), c.text), "got %+v: %s", res, res.String())
			log := read(t, dir, "action-0.log")
			assert.Check(t, strings.Contains(log, "# "+c.text), "log:\n%s", log)
		})
	}
}

// alive tells whether a process is there and not merely unreaped.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

// waitDead returns when a process is gone; a signal takes a moment. If it lives
// on, the test hangs into its own time limit.
func waitDead(pid int) {
	for alive(pid) {
		time.Sleep(time.Millisecond)
	}
}

func pidIn(t *testing.T, path ...string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(read(t, path...)))
	assert.NilError(t, err)
	return n
}

func TestTimeoutKillsTheGroup(t *testing.T) {
	dir := t.TempDir()
	// A grandchild that ignores SIGTERM, and a leader that does too.
	script := `trap "" TERM; (sleep 1000 & echo $! >grandchild; echo ready >>started; wait) & echo $$ >leader; wait; sleep 1000`
	res := runJob(t, Options{Grace: 50 * time.Millisecond}, Job{Dir: dir, Items: []Item{item(time.Second, sh(script)...)}})[0]
	assert.Check(t, res.TimedOut && !res.OK() && res.Signal == syscall.SIGKILL, "got %+v", res)
	for _, who := range []string{"leader", "grandchild"} {
		waitDead(pidIn(t, dir, who))
	}
	log := read(t, dir, "action-0.log")
	assert.Check(t, strings.Contains(log, "over its time limit"), "log:\n%s", log)
}

func TestTermComesFirst(t *testing.T) {
	dir := t.TempDir()
	// The shell ends at once; its child needs a moment to tidy up.
	script := `(trap "sleep 0.3; echo tidy >tidied; exit" TERM; while :; do sleep 0.05; done) & while :; do sleep 0.05; done`
	res := runJob(t, Options{Grace: long}, Job{Dir: dir, Items: []Item{item(time.Second, sh(script)...)}})[0]
	assert.Check(t, res.TimedOut && res.Signal == syscall.SIGTERM, "got %+v", res)
	got := read(t, dir, "tidied")
	assert.Check(t, got == "tidy\n", "the child wrote %q", got)
}

func TestBackgroundEndsWithTheAction(t *testing.T) {
	dir := t.TempDir()
	res := runJob(t, Options{}, Job{Dir: dir, Items: []Item{item(long, sh(`sleep 1000 & echo $! >child; exit 0`)...)}})[0]
	assert.Check(t, res.OK(), "got %+v", res)
	waitDead(pidIn(t, dir, "child"))
}

func TestOutputIsBounded(t *testing.T) {
	dir := t.TempDir()
	res := runJob(t, Options{MaxOutput: 1000}, Job{Dir: dir, Items: []Item{
		item(long, sh(`head -c 300000 /dev/zero | tr '\0' y`)...),
	}})[0]
	if !res.OK() || res.Dropped != 299_000 {
		t.Errorf("dropped %d: %s", res.Dropped, res.String())
	}
	log := read(t, dir, "action-0.log")
	if n := strings.Count(log, "yyyyyyyyyy"); n != 100 || !strings.Contains(log, "# output truncated: 299000 bytes more were dropped\n") {
		t.Errorf("kept %d tens of bytes:\n%s", n, log[max(0, len(log)-300):])
	}
}

func TestWithoutSnapshot(t *testing.T) {
	res := runJob(t, Options{}, Job{Items: []Item{item(long, sh(`pwd; echo "[$TAILCAM_SNAPSHOT]"`)...)}})[0]
	assert.Check(t, res.Output == "/\n[]\n", "output %q", res.Output)
}

func TestOrderWithinOneJob(t *testing.T) {
	dir := t.TempDir()
	res := runJob(t, Options{}, Job{Dir: dir, Items: []Item{
		item(long, sh(`sleep 0.1; echo one >>order`)...),
		item(long, sh(`echo two >>order; exit 1`)...),
		item(long, sh(`echo three >>order`)...),
	}})
	got := read(t, dir, "order")
	assert.Check(t, got == "one\ntwo\nthree\n", "order %q", got)
	assert.Check(t, !res[1].OK() && res[2].OK() && res[2].Index == 2, "results %+v", res)
}

func waiting(r *Runner) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.jobs)
}

// TestResize: more jobs run at once as soon as they may, and fewer when some have ended;
// none is lost.
func TestResize(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	r := New(Options{Concurrency: 1, Queue: 3})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	released := make(chan struct{}, 100)
	job := Job{
		Items: []Item{item(long, sh(`until [ -e "$1" ]; do sleep 0.01; done`, gate)...)},
		Done:  func() { released <- struct{}{} },
	}
	for range 3 {
		assert.Assert(t, r.Submit(job))
	}
	r.Set(&Options{Concurrency: 3, Queue: 1})
	for waiting(r) > 0 {
		time.Sleep(time.Millisecond)
	}
	assert.Check(t, r.Submit(job) && !r.Submit(job), "the queue has another length than asked for")
	r.Set(&Options{Concurrency: 1, Queue: 16})
	for range 4 {
		assert.Assert(t, r.Submit(job))
	}
	assert.NilError(t, os.WriteFile(gate, nil, 0o600))
	for range 3 + 2 + 4 { // with the one that was refused
		<-released
	}
	cancel()
	assert.NilError(t, <-ended)
	s := r.Stats()
	assert.Check(t, s.Succeeded["wakeup"] == 8 && s.Skipped["wakeup"] == 1, "%+v", s)
}

func TestFullQueueIsCountedExactly(t *testing.T) {
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	r := New(Options{Concurrency: 1, Queue: 2})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()

	released := make(chan struct{}, 100)
	job := func() Job {
		it := item(long, sh(`until [ -e "$1" ]; do sleep 0.01; done`, gate)...)
		other := item(long, "/bin/true")
		other.Outlier.Rule = "other"
		return Job{Items: []Item{it, it, other}, Done: func() { released <- struct{}{} }}
	}
	// One blocks in the worker; wait until it has left the queue.
	assert.Assert(t, r.Submit(job()), "first refused")
	for waiting(r) > 0 {
		time.Sleep(time.Millisecond)
	}
	accepted := 1
	for range 10 {
		if r.Submit(job()) {
			accepted++
		}
	}
	assert.Check(t, accepted == 3, "%d accepted, want one running and two waiting", accepted)
	s := r.Stats()
	assert.Check(t, s.Skipped["wakeup"] == 16 && s.Skipped["other"] == 8, "skipped %v", s.Skipped)
	assert.Check(t, len(released) == 8, "%d refused jobs were released", len(released))
	assert.NilError(t, os.WriteFile(gate, nil, 0o600))
	for range 8 + 3 {
		<-released
	}
	cancel()
	assert.Check(t, <-ended)
	assert.Check(t, !r.Submit(job()), "accepted after the end")
	s = r.Stats()
	assert.Check(t, s.Skipped["wakeup"] == 18 && s.Skipped["other"] == 9, "skipped %v", s.Skipped)
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	dir := t.TempDir()
	var res Result
	r := New(Options{Concurrency: 1, StopTimeout: 10 * time.Millisecond, OnResult: func(x Result) { res = x }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.Submit(Job{Dir: dir, Items: []Item{item(long, sh(`echo $$ >pid.tmp; mv pid.tmp pid; sleep 1000`)...), item(long, "/bin/true")}})
	for {
		if _, err := os.Stat(filepath.Join(dir, "pid")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	assert.Check(t, is.ErrorContains(<-ended, "10ms"), "error")
	assert.Check(t, res.Stopped, "result %+v", res)
	waitDead(pidIn(t, dir, "pid"))
	s := r.Stats()
	assert.Check(t, s.Skipped["wakeup"] == 1, "skipped %v", s.Skipped)
}

func TestSelect(t *testing.T) {
	a := rules.Action{Run: []string{"/a"}, On: rules.OnSnapshot}
	b := rules.Action{Run: []string{"/b"}, On: rules.OnOutlier}
	byName := map[string]*rules.Rule{
		"x": {Name: "x", Actions: []rules.Action{a, b}},
		"y": {Name: "y", Actions: []rules.Action{a}},
	}
	find := func(name string) *rules.Rule { return byName[name] }
	outliers := []events.Outlier{{Rule: "x", CPU: 1}, {Rule: "x", CPU: 2}, {Rule: "gone"}, {Rule: "y"}}
	items, _ := Select(rules.OnSnapshot, outliers, find, nil)
	assert.Check(t, len(items) == 2 && items[0].Outlier.CPU == 1 && items[1].Outlier.Rule == "y", "got %+v", items)
	items, _ = Select(rules.OnOutlier, outliers, find, nil)
	assert.Check(t, len(items) == 1 && items[0].Action.Run[0] == "/b", "got %+v", items)
}
