package daemon

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// actionLog waits until an action of a snapshot has ended, and returns what
// was kept of it.
func actionLog(t *testing.T, dir string, index int) string {
	t.Helper()
	var text string
	eventually(t, "the action has ended", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "action-"+strconv.Itoa(index)+".log"))
		assert.Assert(t, err == nil || os.IsNotExist(err), "%v", err)
		text = string(data)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		last := lines[len(lines)-1]
		return strings.HasPrefix(last, "# ") && strings.Contains(last, " after ") || strings.Contains(text, "did not start")
	})
	return text
}

func readText(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	assert.NilError(t, err)
	return string(data)
}

// TestAction: what an action is given, as whom it runs, and that its time
// limit ends all of it.
func TestAction(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, "")
	tell := script(t, h, "tell", `cat >in-$1; env >env-$1; pwd -P >cwd-$1; id -un >user-$1; ls >ls-$1; read slack </proc/self/timerslack_ns; echo "$slack" >slack-$1; echo "$2"; echo oops >&2; exit 3`)
	hold := script(t, h, "hold", `trap "" TERM; sleep 1000 & echo $! >child; echo $$ >leader; wait; sleep 1000`)
	quoted := `"two words; $HOME"`
	writeFile(t, h.rules, rulesFile(napRule("nap", uid, "snapshot: {after: 5ms, every: 1h}", "actions:",
		"  - run: ["+tell+", nobody, "+quoted+"]",
		"  - {run: ["+hold+"], timeout: 500ms}",
		"  - {run: ["+tell+", root, "+quoted+"], user: root}",
	)), 0o644)
	d := h.start(t)
	naps(t, uid, 1, 5*time.Millisecond, 1)
	o := settled(t, d, "nap", 1)[0]
	eventually(t, "the snapshot is there", func() bool { return len(d.list()) == 1 })
	dir := d.list()[0].Dir

	log := actionLog(t, dir, 2)
	assert.Check(t, strings.Contains(log, "\ntwo words; $HOME\n") && strings.Contains(log, "\noops\n") &&
		strings.Contains(log, "\n# exit status 3 after "), "action-2.log:\n%s", log)
	for _, who := range []string{"nobody", "root"} {
		given := lines[events.Outlier](t, readText(t, dir, "in-"+who))
		assert.Assert(t, len(given) == 1 && given[0].Explained != nil && given[0].Explained.Verdict != "",
			"standard input of %s, without a verdict: %+v", who, given)
		assert.Check(t, readText(t, dir, "slack-"+who) == "50000\n", "%s has the timers of the daemon", who)
		given[0].Explained, o.Explained = nil, nil     // the event may have been told before it was explained,
		given[0].Completed, o.Completed = false, false // and once more when its stacks were named
		given[0].Cursor, o.Cursor = "", ""             // is of the stream alone
		given[0].Dir, o.Dir = "", ""                   // likewise: where a snapshot is
		usual := given[0].Usual                        // is of the snapshot alone
		assert.Check(t, usual != nil && usual.Count >= 1 && usual.P99NS >= usual.MedianNS && usual.P99NS > 0, "such delays are usually %+v", usual)
		given[0].Usual = nil
		o.Actions = nil // these, as they end
		assert.Check(t, reflect.DeepEqual(given[0], o), "standard input of %s: %+v\nthe event: %+v", who, given, o)
		got := strings.TrimSpace(readText(t, dir, "user-"+who))
		assert.Check(t, got == who, "runs as %s, not as %s", got, who)
		got = strings.TrimSpace(readText(t, dir, "cwd-"+who))
		assert.Check(t, got == dir, "runs in %s, not in %s", got, dir)
		ls := readText(t, dir, "ls-"+who)
		assert.Check(t, strings.Contains(ls, snapshot.MetaFile+"\n") && strings.Contains(ls, "trace\n"),
			"%s finds %q in the snapshot", who, ls)
		environment(t, strings.Split(readText(t, dir, "env-"+who), "\n"), &o, dir)
	}

	log = actionLog(t, dir, 1)
	assert.Check(t, strings.Contains(log, "over its time limit"), "action-1.log:\n%s", log)
	for _, who := range []string{"leader", "child"} {
		pid, err := strconv.Atoi(strings.TrimSpace(readText(t, dir, who)))
		assert.NilError(t, err)
		eventually(t, "the "+who+" of an action over its limit has ended", func() bool {
			return syscall.Kill(pid, 0) != nil
		})
	}
	checkSnapshot(t, dir)
}

// environment holds that an action's environment is as documented, and nothing else.
func environment(t *testing.T, env []string, o *events.Outlier, dir string) {
	t.Helper()
	for name, want := range map[string]string{
		"RULE": o.Rule, "TRACK": o.Track, "CAUSE": string(o.Cause), "COMM": o.Task.Comm,
		"DELAY_NS": strconv.FormatInt(o.DelayNS, 10), "THRESHOLD_NS": strconv.FormatInt(o.ThresholdNS, 10),
		"PID": strconv.Itoa(o.Task.PID), "TID": strconv.Itoa(o.Task.TID), "CPU": strconv.Itoa(o.CPU),
		"TIME": o.Time.Format(time.RFC3339Nano), "SNAPSHOT": dir, "SNAPSHOT_ID": *o.Snapshot,
	} {
		assert.Check(t, slices.Contains(env, "TAILCAM_"+name+"="+want),
			"TAILCAM_%s=%s is not in the environment %q", name, want, env)
	}
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		// The shell adds these.
		assert.Check(t, v == "" || strings.HasPrefix(name, "TAILCAM_") || slices.Contains([]string{"PATH", "PWD", "OLDPWD", "SHLVL", "_"}, name),
			"%s is in an action's environment", name)
	}
}

// TestActionsEndWithTheDaemon: a running action does not outlive it for long.
func TestActionsEndWithTheDaemon(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, "")
	hold := script(t, h, "hold", `echo $$ >`+h.dir+`/pid.new; mv `+h.dir+`/pid.new `+h.dir+`/pid; sleep 3; echo done >`+h.dir+`/done`)
	writeFile(t, h.rules, rulesFile(napRule("nap", uid, "snapshot: false",
		"actions: [{run: "+hold+", on: outlier, user: root}]")), 0o644)
	d := h.start(t)
	naps(t, uid, 1, 5*time.Millisecond, 1)
	eventually(t, "the action runs", func() bool {
		_, err := os.Stat(filepath.Join(h.dir, "pid"))
		return err == nil
	})
	d.stop(syscall.SIGTERM)
	// It was given the time to end by itself.
	got := readText(t, h.dir, "done")
	assert.Check(t, got == "done\n", "the action was ended early: %q", got)
}

// TestShippedActions runs the example scripts that come with tailcam.
func TestShippedActions(t *testing.T) {
	needRoot(t)
	paths, err := filepath.Glob("../../../configs/actions/*")
	assert.NilError(t, err)
	if len(paths) == 0 {
		t.Skip("there are no configs/actions yet")
	}
	uid := newUID()
	h := newHome(t, "")
	got := receive(t)
	target := filepath.Join(h.dir, "target")
	assert.NilError(t, os.Mkdir(target, 0o777))
	assert.NilError(t, os.Chmod(target, 0o777))
	var actions []string
	for _, path := range paths {
		name := filepath.Base(path)
		copied := writeFile(t, filepath.Join(h.dir, name), readText(t, path), 0o755)
		switch name {
		case "ship.sh":
			actions = append(actions, "  - run: ["+copied+", "+target+"]", "  - run: ["+copied+", \""+got.url+"\"]")
		case "notify.sh":
			actions = append(actions, "  - run: ["+copied+", \""+got.url+"\"]")
		case "save-top.sh":
			actions = append(actions, "  - run: ["+copied+"]")
		} // the others need tools: see the tests of snapshot/action
	}
	writeFile(t, h.rules, rulesFile(napRule("nap", uid, append([]string{"snapshot: {after: 5ms, every: 1h}", "actions:"}, actions...)...)), 0o644)
	d := h.start(t)
	naps(t, uid, 1, 5*time.Millisecond, 1)
	eventually(t, "the snapshot is there", func() bool { return len(d.list()) == 1 })
	dir := d.list()[0].Dir
	for i, a := range actions {
		log := actionLog(t, dir, i)
		assert.Check(t, strings.Contains(log, "\n# exit status 0 after "), "%s\n%s", a, log)
	}
	entries, err := os.ReadDir(target)
	assert.Check(t, err == nil && len(entries) != 0, "nothing was shipped to %s: %v", target, err)
	assert.Check(t, got.bytes() != 0, "nothing was shipped by HTTP")
	checkSnapshot(t, dir)
}

// receiver is an HTTP server that takes whatever it is sent.
type receiver struct {
	url string
	mu  sync.Mutex
	n   int64
}

func (r *receiver) bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func receive(t *testing.T) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	r := &receiver{url: "http://" + l.Addr().String() + "/"}
	srv := &http.Server{ReadHeaderTimeout: hang, Handler: http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		n, _ := io.Copy(io.Discard, q.Body) // what came is what counts
		r.mu.Lock()
		r.n += n
		r.mu.Unlock()
	})}
	go srv.Serve(l)                   // ends with the test
	t.Cleanup(func() { srv.Close() }) // ends with the test
	return r
}
