package daemon

import (
	"encoding/json"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestCheck: exit statuses and texts, with and without the kernel.
func TestCheck(t *testing.T) {
	needRoot(t)
	dir := publicDir(t, "")
	bad := writeFile(t, filepath.Join(dir, "bad.yaml"), "rules:\n  - name: a\n    track: wakeups\n    threshold: 5\n  - name: a\n    track: block\n    threshold: 1ms\n", 0o644)
	good := writeFile(t, filepath.Join(dir, "good.yaml"), rulesFile(
		napRule("nap", 1000), entry("sleep", "offcpu", "10ms", "{comm: x}"),
		entry("late", "wakeup", "10ms", "{comm: x}"), entry("disk", "block", "10ms", "{op: read}"),
	), 0o644)
	empty := writeFile(t, filepath.Join(dir, "empty.yaml"), "", 0o644)
	config := writeFile(t, filepath.Join(dir, "tailcam.yaml"), "rules: "+good, 0o644)
	for _, c := range []struct {
		args []string
		code int
		out  []string // in standard output
		err  []string // lines of standard error begin with these
	}{
		{[]string{"check", good}, 0, []string{"ok: 4 rules", "nap", "offcpu", good + ":2"}, nil},
		{[]string{"check", "--load", good}, 0, []string{"ok: 4 rules, loaded and attached on this kernel, then detached"}, nil},
		{[]string{"check", "../../../configs/rules.d"}, 0, []string{"ok:"}, nil},
		{[]string{"check", "--load", "../../../configs/rules.d"}, 0, []string{"ok:"}, nil},
		{[]string{"check", bad}, 1, nil, []string{
			bad + `:3:12: unknown track "wakeups", did you mean "wakeup"; allowed: `, bad + ":4:16: threshold 5 has no unit; allowed: ",
			bad + `:5:11: duplicate name "a", first used at ` + bad + ":2:11",
		}},
		{[]string{"check", "--load", bad}, 1, nil, []string{bad + ":3:12:", bad + ":4:16:", bad + ":5:11:"}},
		{[]string{"check", good, empty}, 1, nil, []string{empty + ":1:1: file is empty"}},
		{[]string{"check", filepath.Join(dir, "none.yaml")}, 1, nil, []string{dir + "/none.yaml: cannot open: no such file or directory"}},
		{[]string{"check", "--config", config}, 0, []string{"ok: 4 rules", good + ":2"}, nil},
		{[]string{"check", "--config", bad}, 1, nil, []string{bad + ":2:5: rules has the wrong type"}},
		{[]string{"chek", good}, 2, nil, []string{`tailcam: unknown command "chek": did you mean "check"?`}},
	} {
		a := tailcam(t, c.args...)
		assert.Check(t, a.code == c.code, "%q: exit status %d, not %d\n%s", c.args, a.code, c.code, a.err)
		for _, want := range c.out {
			assert.Check(t, strings.Contains(a.out, want), "%q: %q is not in %q", c.args, want, a.out)
		}
		got := strings.Split(strings.TrimSuffix(a.err, "\n"), "\n")
		if a.err == "" {
			got = nil
		}
		if len(got) != len(c.err) {
			t.Errorf("%q: %d lines of errors, not %d: %q", c.args, len(got), len(c.err), a.err)
			continue
		}
		for i, want := range c.err {
			assert.Check(t, strings.HasPrefix(got[i], want), "%q: %q does not begin with %q", c.args, got[i], want)
		}
	}
	a := asNobody(t, 65534, built.tailcam, "check", good)
	assert.Check(t, a.code == 0, "check without rights: exit status %d, %q", a.code, a.err)
	for _, verb := range [][]string{{"check", "--load", good}, {"run", "--rules", good}} {
		a := asNobody(t, 65534, append([]string{built.tailcam}, verb...)...)
		assert.Check(t, a.code == 1 && strings.Contains(a.err, "needs root, or the capabilities CAP_BPF and CAP_PERFMON"),
			"%s without rights: exit status %d, %q", verb, a.code, a.err)
	}
}

// TestWait: 0 with an outlier, 3 without, 1 for a rule that is not there.
func TestWait(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid), napRule("quiet", newUID())))
	a := d.verb("wait", "--rule", "quiet", "--timeout", "300ms")
	assert.Check(t, a.code == 3 && a.out == "" && strings.Contains(a.err, "no outlier within 300ms"),
		"without an outlier: %+v", a)
	if a := d.verb("wait", "--rule", "qiet"); a.code != 1 || !strings.Contains(a.err, `unknown rule "qiet": the daemon has nap, quiet`) {
		t.Errorf("of an unknown rule: %+v", a)
	}
	for _, output := range []string{"json", "text"} {
		waited := make(chan answer)
		go func() { waited <- d.verb("wait", "--rule", "nap", "-o", output) }()
		// It may not listen yet: outliers until it has seen one.
		var a answer
		for got := false; !got; {
			naps(t, uid, 1, 5*time.Millisecond, 1)
			select {
			case a = <-waited:
				got = true
			case <-time.After(50 * time.Millisecond):
			}
		}
		assert.Check(t, a.code == 0, "with an outlier: %+v", a)
		if output == "text" {
			assert.Check(t, strings.Contains(a.out, "inj-syscall") && strings.Contains(a.out, "clock_nanosleep"),
				"printed %q", a.out)
			continue
		}
		o := lines[events.Outlier](t, a.out)
		assert.Check(t, len(o) == 1 && o[0].Task.UID == uid && o[0].Rule == "nap", "printed %q", a.out)
	}
	// A waiting client hears of the daemon's end.
	waited := make(chan answer)
	go func() { waited <- d.verb("wait", "--rule", "quiet") }()
	eventually(t, "the client is connected", func() bool { return connections(t, d.socket) > 0 })
	d.stop(syscall.SIGTERM)
	if a := <-waited; a.code != 1 || !strings.Contains(a.err, "the daemon closed the stream") && !strings.Contains(a.err, "stopped before it replied") {
		t.Errorf("at the daemon's end: %+v", a)
	}
	a = d.verb("status")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "daemon not reachable at "+d.socket) &&
		strings.Contains(a.err, "tailcam run"), "without a daemon: %+v", a)
}

// connections counts the accepted connections of a socket.
func connections(t *testing.T, socket string) int {
	t.Helper()
	table, err := os.ReadFile("/proc/net/unix")
	assert.NilError(t, err)
	n := 0
	for line := range strings.Lines(string(table)) {
		// Num RefCount Protocol Flags Type St Inode Path; 03 is connected.
		if f := strings.Fields(line); len(f) == 8 && f[7] == socket && f[5] == "03" {
			n++
		}
	}
	return n
}

// TestStatus: what the daemon says of itself.
func TestStatus(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "snapshot: false"), entry("late", "wakeup", "1h", "{comm: x}")))
	naps(t, uid, 7, 5*time.Millisecond, 1)
	s := d.status()
	r := s.rule("nap")
	assert.Check(t, s.PID == d.pid() && s.UptimeNS > 0 && len(s.Programs) != 0 && r.Outliers == 7 && r.Seen >= 7 &&
		r.WorstNS >= int64(5*time.Millisecond) && r.ThresholdNS == int64(time.Millisecond), "%+v", s)
	assert.Check(t, s.Recorder.Enabled && len(s.Recorder.CPUs) != 0 &&
		s.Recorder.SizeBytes == uint64(2<<20*len(s.Recorder.CPUs)), "recorder %+v", s.Recorder)
	for _, c := range s.Recorder.CPUs {
		assert.Check(t, c.CoveredNS > 0 && c.CoveredNS <= s.UptimeNS+int64(hang),
			"CPU %d covers %d ns", c.CPU, c.CoveredNS)
	}
	for _, l := range s.Losses {
		assert.Check(t, l.Count <= 0 || l.Advice != "", "a loss without advice: %+v", l)
	}
	text := d.ok("status")
	for _, want := range []string{"nap", "late", "recorder", "losses", "ring_buffer_full", "snapshots", d.snaps} {
		assert.Check(t, strings.Contains(text, want), "%q is not in\n%s", want, text)
	}
	assert.Check(t, !strings.Contains(text, "\x1b"), "colours, though nobody looks")
	list := lines[api.RuleInfo](t, d.ok("list", "rules", "-o", "json"))
	assert.Check(t, len(list) == 2 && list[0].Name == "nap" && strings.HasPrefix(list[0].Source, d.rules+":2"),
		"list rules: %+v", list)
	for _, args := range [][]string{{"list", "rules"}, {"list", "snapshots"}, {"events"}, {"events", "-v"}} {
		out := d.ok(args...)
		assert.Check(t, out != "", "%q prints nothing", args)
	}
	a := tailcam(t, "list", "probes", "-o", "json")
	probes := lines[tracker.Probe](t, a.out)
	assert.Check(t, a.code == 0 && len(probes) >= 10, "list probes: %+v", a)
	for _, p := range probes {
		assert.Check(t, p.Available != (p.Reason != ""), "probe %+v", p)
	}
}

// TestPermissions: the socket is for root and its group.
func TestPermissions(t *testing.T) {
	needRoot(t)
	group, err := user.LookupGroup("daemon")
	if err != nil {
		t.Skipf("needs a group: %v", err)
	}
	gid, err := strconv.Atoi(group.Gid)
	assert.NilError(t, err)
	h := newHome(t, rulesFile(napRule("nap", newUID())))
	for _, c := range []struct{ name, dir string }{{"open directory", ""}, {"own directory", "run"}} {
		t.Run(c.name, func(t *testing.T) {
			own := *h
			own.socket = filepath.Join(h.dir, c.dir, "s.sock")
			d := own.start(t, "--socket-group", group.Name)
			info, err := os.Stat(d.socket)
			assert.NilError(t, err)
			st, ok := info.Sys().(*syscall.Stat_t)
			assert.Check(t, ok && info.Mode().Perm() == 0o660 && st.Uid == 0 && int(st.Gid) == gid,
				"the socket has mode %v, user %d, group %d", info.Mode(), st.Uid, st.Gid)
			verb := []string{built.tailcam, "status", "--socket", d.socket}
			if a := asNobody(t, 65534, verb...); a.code != 1 || !strings.HasPrefix(a.err, "tailcam: permission denied: "+d.socket+": use sudo, or join its group") {
				t.Errorf("without rights: %+v", a)
			}
			a := asNobody(t, gid, verb...)
			assert.Check(t, a.code == 0, "as a member of the group: %+v", a)
			// Who may not read the directory is told by the daemon what is there.
			byHand(d, "seen by the group")
			list := []string{built.tailcam, "snapshots", "list", "--socket", d.socket}
			a = asNobody(t, gid, list...)
			assert.Check(t, a.code == 0 && strings.Contains(a.out, "seen by the group"),
				"snapshots, as a member of the group: %+v", a)
			a = asNobody(t, 65534, list...)
			assert.Check(t, a.code == 1, "snapshots, without rights: %+v", a)
			if a := asNobody(t, gid, built.tailcam, "snapshots", "verify", "--socket", d.socket); a.code != 1 || !strings.Contains(a.err, "cannot read "+d.snaps+": permission denied: use sudo") {
				t.Errorf("verify, as a member of the group: %+v", a)
			}
		})
	}
}

// TestWithoutDaemon: verbs that need none.
func TestWithoutDaemon(t *testing.T) {
	needRoot(t)
	a := tailcam(t, "version")
	assert.Check(t, a.code == 0 && strings.HasPrefix(a.out, "tailcam "), "version: %+v", a)
	var v map[string]string
	if a := tailcam(t, "version", "-o", "json"); a.code != 0 || json.Unmarshal([]byte(a.out), &v) != nil || v["version"] == "" || v["kernel"] == "" {
		t.Errorf("version -o json: %+v", a)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		a := tailcam(t, "completion", shell)
		assert.Check(t, a.code == 0 && a.err == "" && strings.Contains(a.out, "tailcam"),
			"completion %s: exit status %d, %q", shell, a.code, a.err)
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		check := exec.CommandContext(t.Context(), path, "-n")
		check.Stdin = strings.NewReader(a.out)
		out, err := check.CombinedOutput()
		assert.Check(t, err, "%s -n of its completion: %v\n%s", shell, err, out)
	}
	a = tailcam(t, "version", "extra")
	assert.Check(t, a.code == 2 && a.out == "", "version extra: %+v", a)
	a = tailcam(t, "status", "--socket", "/nonexistent/s.sock")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, "daemon not reachable at /nonexistent/s.sock"),
		"status without a daemon: %+v", a)
}
