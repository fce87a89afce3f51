package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestStopAndStart ends the daemon in every way, while it has much to do, and
// starts the next one at once in the same place. stop holds that nothing stays.
func TestStopAndStart(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, rulesFile(
		napRule("nap", uid, "stacks: [kernel, user]", "snapshot: {after: 50ms, every: 200ms, burst: 3}"),
		entry("sleep", "offcpu", "1ms", "{uid: "+strconv.Itoa(uid)+"}", "stacks: [kernel, user, waker]", "snapshot: {after: 50ms, every: 200ms}"),
		entry("late", "wakeup", "1ms", "{uid: "+strconv.Itoa(uid)+"}"),
		entry("disk", "block", "1ms", "{op: read}", "snapshot: false"),
	))
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM} {
		d := h.start(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			naps(t, uid, 200, 5*time.Millisecond, 4)
		}()
		eventually(t, "it has taken a snapshot", func() bool { return len(d.list()) > 0 })
		d.stop(s)
		<-done
		complete(t, h.snaps)
	}
}

// TestStopStopped: a daemon that stands still ends as soon as it may run.
func TestStopStopped(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("nap", newUID())))
	d.pause()
	left := heldBy(t, d.pid())
	d.signal(syscall.SIGTERM)
	d.resume()
	eventually(t, "it ends", d.ended)
	code, how := d.main.Exit()
	assert.Check(t, code == 0, "ended with %s", how)
	left.gone(t)
}

// TestSecondDaemon: two daemons share neither a socket nor a store.
func TestSecondDaemon(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("nap", newUID())))
	a := tailcam(t, d.command()[1:]...)
	want := "another daemon is running, pid " + strconv.Itoa(d.pid())
	assert.Check(t, a.code == 1 && strings.Contains(a.err, want),
		"on the same socket: exit status %d, %q does not say %q", a.code, a.err, want)
	h := *d.home
	h.socket = filepath.Join(d.dir, "other.sock")
	a = tailcam(t, h.command()[1:]...)
	want = "another tailcam uses this directory"
	assert.Check(t, a.code == 1 && strings.Contains(a.err, want),
		"in the same store: exit status %d, %q does not say %q", a.code, a.err, want)
	_, err := os.Lstat(h.socket)
	assert.Check(t, os.IsNotExist(err), "the refused daemon has left a socket: %v", err)
	d.status() // the first one still answers
}

// TestStartFails: what is wrong is one line, and nothing stays.
func TestStartFails(t *testing.T) {
	needRoot(t)
	h := newHome(t, rulesFile(napRule("nap", newUID(), "tresholds: 5ms")))
	a := tailcam(t, h.command()[1:]...)
	assert.Check(t, a.code == 1 && strings.Contains(a.err, h.rules+":7:5: unknown key \"tresholds\""),
		"bad rules: exit status %d, %q", a.code, a.err)
	writeFile(t, h.rules, rulesFile(napRule("nap", newUID())), 0o644)
	writeFile(t, h.socket, "not a socket", 0o644)
	a = tailcam(t, h.command()[1:]...)
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "is not a socket") &&
		readText(t, h.socket) == "not a socket", "a file in the socket's place: exit status %d, %q", a.code, a.err)
	assert.NilError(t, os.Remove(h.socket))
	h.start(t)
}

// TestReload: SIGHUP reads the rules again. Bad ones change nothing, and
// counters of rules that stay go on.
func TestReload(t *testing.T) {
	needRoot(t)
	uid := newUID()
	h := newHome(t, rulesFile(napRule("stays", uid, "snapshot: false"), napRule("goes", uid, "snapshot: false")))
	d := h.start(t)
	reload := func(rules, says string) {
		t.Helper()
		writeFile(t, h.rules, rules, 0o644)
		d.reload(says)
	}
	check := func(name string, n int) {
		t.Helper()
		settled(t, d, name, n)
		r := d.status().rule(name)
		assert.Check(t, r.Outliers == uint64(n), "rule %s tells of %d outliers, not %d", name, r.Outliers, n)
	}
	naps(t, uid, 3, 5*time.Millisecond, 1)
	check("stays", 3)
	check("goes", 3)

	reload(rulesFile(napRule("new", uid, "snapshot: false"), napRule("stays", uid, "snapshot: false")), reloaded)
	got := names(d)
	assert.Check(t, got == "new stays", "rules after a reload: %s", got)
	naps(t, uid, 4, 5*time.Millisecond, 1)
	check("new", 4)
	check("stays", 7)

	reload("rules: [{name: x, track: syscall, threshold: 5}]", "the running rules are unchanged")
	assert.Check(t, d.log.has(h.rules+":1:46: threshold 5 has no unit"), "the log does not say what is wrong")
	reload(rulesFile(napRule("stays", uid, "snapshot: false"), entry("late", "wakeup", "1s", "{uid: 1}")), reloaded)
	got = names(d)
	assert.Check(t, got == "stays late", "rules after a bad reload and a good one: %s", got)
	naps(t, uid, 2, 5*time.Millisecond, 1)
	check("stays", 9)
}

// TestReloadUnderFire: outliers that come while the rules are swapped are
// counted once, neither lost nor twice.
func TestReloadUnderFire(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "snapshot: false")), "--outliers-rate", "0")
	const n = 900
	done := make(chan struct{})
	go func() {
		defer close(done)
		naps(t, uid, n, 5*time.Millisecond, 4)
	}()
	for i := 0; ; i++ {
		d.reload(reloaded)
		select {
		case <-done:
			t.Logf("%d reloads", i)
		default:
			continue
		}
		break
	}
	s := d.status()
	r := s.rule("nap")
	assert.Check(t, r.Outliers+r.Lost == n, "%d outliers and %d lost are not %d", r.Outliers, r.Lost, n)
	// The rest may be on its way for a moment, not for long.
	got := 0
	for range 50 {
		if got = len(d.events("nap")); uint64(got)+s.rule("nap").Lost >= n {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	lost := s.rule("nap").Lost
	assert.Check(t, uint64(got)+lost == n,
		"%d outliers are published and %d counted as lost, injected were %d", got, lost, n)
}

// asNobody runs a program without any rights.
func asNobody(t *testing.T, gid int, argv ...string) answer {
	t.Helper()
	return asUser(t, 65534, gid, argv...)
}
