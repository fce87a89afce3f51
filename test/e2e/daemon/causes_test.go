package daemon

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/cleanup"
	cgroups "github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker/events"
)

// hogIn runs a program in a cgroup until the test ends.
func hogIn(t *testing.T, dir, script string) int {
	t.Helper()
	return background(t, "sh", "-c", `echo $$ >"$0/cgroup.procs" && exec `+script, dir)
}

// TestTriggerRules: pressure in a cgroup and an out-of-memory kill take snapshots like any
// rule's outliers, each explained for its target and followed by its actions. A reload
// changes them.
func TestTriggerRules(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "the kernel's log and the files of cgroups need the drop-in triggers.conf")
	triggerRules(t, func(rules string) *running { return start(t, rules) })
}

// triggerRules is TestTriggerRules for a daemon that begin starts.
func triggerRules(t *testing.T, begin func(rules string) *running) {
	t.Helper()
	root := cgroups.NeedHierarchy(t)
	memory := cgroups.NewCgroup(t, "memory")
	memory.Set(t, "memory.limit_in_bytes", "memory.max", "16M")
	path := fmt.Sprintf("/tailcam-causes-%d", os.Getpid())
	dir := root + path
	assert.NilError(t, os.Mkdir(dir, 0o755))
	cleanup.RemoveCgroup(t, dir)
	pressure := func(every string) string {
		return fmt.Sprintf(`  - {name: pressure, track: trigger, on: {psi: {cgroup: %s, cpu: "some 1ms 2s"}}, target: {cgroup: [%s]}, `+
			`snapshot: {after: 20ms, every: %s}, actions: [{run: [/usr/bin/touch, acted]}]}`+"\n", path, path, every)
	}
	const oom, gone = "  - {name: oom, track: trigger, on: oom}\n",
		"  - {name: gone, track: trigger, on: {psi: {cgroup: /tailcam-no-such, memory: \"some 1ms 2s\"}}}\n"
	d := begin(rulesFile(napRule("nap", newUID()), pressure("1h"), oom, gone))
	eventually(t, "the missing cgroup is told", func() bool { return strings.Contains(d.status().rule("gone").Inactive, "no such file") })

	hogs := []int{hogIn(t, dir, "taskset -c 0 sh -c 'while :; do :; done'"), hogIn(t, dir, "taskset -c 0 sh -c 'while :; do :; done'")}
	victim := hogIn(t, memory.Dir, "tail /dev/zero")
	o := explainedOutlier(d, "pressure", func(o *events.Outlier) bool { return true })
	assert.Check(t, slices.Contains(hogs, o.Task.TID) && o.Task.Cgroup == path && o.DelayNS == 2e9, "%+v", o.Task)
	assert.Check(t, o.Trigger.Source == "psi" && strings.Contains(o.Trigger.Reason, "cpu pressure of "+path), "%+v", o.Trigger)
	assert.Check(t, strings.Contains(o.Explained.Verdict, "the last 2.00 s of "), "%q", o.Explained.Verdict) // after a pattern, if others run, too
	eventually(t, "the action", func() bool {
		_, err := os.Stat(filepath.Join(d.snaps, *o.Snapshot, "acted"))
		return err == nil
	})
	m, err := snapshot.ReadMeta(filepath.Join(d.snaps, *o.Snapshot))
	assert.Assert(t, err == nil && len(m.Rules) == 1 && m.Rules[0].Trigger.PSI[0].WindowNS == 2e9, "%v, %+v", err, m)

	o = explainedOutlier(d, "oom", func(o *events.Outlier) bool { return o.Task.PID == victim })
	assert.Check(t, o.Task.Comm == "tail" && strings.Contains(o.Trigger.Reason, "Killed process"), "%+v", o)

	d.ok("pause", "pressure")
	paused := d.status().rule("pressure").Outliers
	d.ok("resume", "pressure")
	eventually(t, "more pressure", func() bool { return d.status().rule("pressure").Outliers > paused })
	assert.Check(t, d.status().loss("snapshot_limited", "pressure") > 0, "one an hour")
	got := d.verb("threshold", "set", "pressure", "5ms")
	assert.Check(t, got.code == 1 && strings.Contains(got.err, "is a trigger"), "%+v", got)

	taken := len(d.list())
	assert.NilError(t, os.WriteFile(d.rules, []byte(rulesFile(napRule("nap", newUID()), pressure("1s"))), 0o644))
	d.ok("reload")
	eventually(t, "a snapshot under the new limit", func() bool { return len(d.list()) > taken })
	assert.Check(t, !slices.ContainsFunc(d.status().Rules, func(r api.RuleInfo) bool { return r.Name == "oom" }))
}

// explainedOutlier waits for an outlier of a rule with its verdict.
func explainedOutlier(d *running, rule string, is func(*events.Outlier) bool) (found events.Outlier) {
	d.t.Helper()
	eventually(d.t, "an outlier of "+rule, func() bool {
		for _, o := range d.events(rule) {
			if is(&o) && o.Explained != nil && o.Snapshot != nil {
				found = o
				return true
			}
		}
		return false
	})
	return found
}

// loopAs runs a shell loop as a user until the end of the test.
func loopAs(t *testing.T, uid int, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do "+script+"; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

var alertsAddress = regexp.MustCompile(`"message":"taking alerts","address":"([^"]+)"`)

// alertmanager runs Debian's Alertmanager with the example that tailcam ships, and returns
// its URL.
func alertmanager(d *running) string {
	d.t.Helper()
	var told []string
	eventually(d.t, "the daemon takes alerts", func() bool {
		told = alertsAddress.FindStringSubmatch(d.log.String())
		return told != nil
	})
	example, err := os.ReadFile("../../../configs/prometheus/alertmanager.yaml")
	assert.NilError(d.t, err)
	dir := d.t.TempDir()
	file := filepath.Join(dir, "alertmanager.yml")
	text := strings.ReplaceAll(string(example), "http://127.0.0.1:9847", "http://"+told[1])
	assert.Assert(d.t, text != string(example))
	assert.NilError(d.t, os.WriteFile(file, []byte(text), 0o644))
	out, err := exec.Command(needTool(d.t, "amtool", "prometheus-alertmanager"), "check-config", file).CombinedOutput()
	assert.NilError(d.t, err, "%s", out)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(d.t, err)
	address := l.Addr().String()
	assert.NilError(d.t, l.Close())
	background(d.t, needTool(d.t, "prometheus-alertmanager", "prometheus-alertmanager"), "--config.file", file,
		"--storage.path", dir, "--web.listen-address", address, "--cluster.listen-address", "")
	eventually(d.t, "Alertmanager answers", func() bool {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return "http://" + address
}

// delegatedCgroup makes a cgroup that is marked as systemd marks one with Delegate=; empty:
// the daemon will not run where the test could put it.
func delegatedCgroup(t *testing.T) string {
	t.Helper()
	root := cgroups.Hierarchy("")
	if underUnit || root == "" {
		return ""
	}
	dir := fmt.Sprintf("%s/tailcam-delegated-%d", root, os.Getpid())
	assert.NilError(t, os.Mkdir(dir, 0o755))
	cleanup.RemoveCgroup(t, dir)
	assert.NilError(t, unix.Setxattr(dir, "user.delegate", []byte("1"), 0))
	return dir
}

// TestCrashAlertPromise: a core dump, an alert that Alertmanager sends, and a promise about
// a rule's delays that is broken take snapshots, each explained for its target. Its actions
// have cgroups of their own.
func TestCrashAlertPromise(t *testing.T) {
	needRoot(t)
	uid := newUID()
	asleep := background(t, "sleep", "600")
	h := newHome(t, rulesFile(
		entry("naps", "syscall", "5ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep}", uid), "histogram: true"),
		"  - {name: crash, track: trigger, on: {coredump: {comm: tc-crash, undumped: true}}, actions: [{run: [/bin/sh, -c, 'echo \"$TAILCAM_SOURCE $TAILCAM_REASON\"; cat /proc/self/cgroup']}]}\n",
		"  - {name: page, track: trigger, on: {alert: {name: SlowShop, labels: {severity: page}}}, target: {last: 300ms}}\n",
		"  - {name: promise, track: trigger, on: {slo: {objective: p90(naps) < 10ms over 5s, min_events: 20}}}\n",
	))
	argv, group := h.command("--alerts-listen", "127.0.0.1:0"), delegatedCgroup(t)
	if group != "" {
		argv = append([]string{"sh", "-c", `echo 0 >"$0/cgroup.procs" && exec "$@"`, group}, argv...)
	}
	d := h.exec(t, argv)
	url := alertmanager(d)
	loopAs(t, uid, "sleep 0.02")

	out, err := exec.Command("amtool", "--alertmanager.url", url, "alert", "add", "SlowShop", "severity=page",
		"pid="+strconv.Itoa(asleep), "--annotation", "summary=p99 of the shop is 2 s").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	o := explainedOutlier(d, "page", func(*events.Outlier) bool { return true })
	assert.Check(t, o.Task.TID == asleep && o.DelayNS == 3e8 && strings.HasPrefix(o.Explained.Verdict, "the last 300.0 ms of sleep "), "%+v, %+v", o.Task, o.Explained)
	assert.Check(t, o.Trigger.Source == "alert" && strings.HasPrefix(o.Trigger.Reason, "alert SlowShop (page): p99 of the shop is 2 s, since "), "%+v", o.Trigger)

	program := filepath.Join(t.TempDir(), "tc-crash")
	out, err = exec.Command("cp", "/bin/sh", program).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	victim := exec.Command(program, "-c", "ulimit -c unlimited; sleep 0.2; kill -SEGV $$")
	victim.Dir = filepath.Dir(program)
	assert.Check(t, victim.Run() != nil)
	status := victim.ProcessState.Sys().(syscall.WaitStatus)
	o = explainedOutlier(d, "crash", func(*events.Outlier) bool { return true })
	pid := victim.Process.Pid
	assert.Check(t, o.Task.PID == pid && o.Task.Comm == "tc-crash" && strings.Contains(o.Task.Cmdline, "kill -SEGV $$"), "%+v", o.Task)
	assert.Check(t, strings.HasPrefix(o.Trigger.Reason, "SIGSEGV") && strings.Contains(o.Trigger.Reason, ", core dumped") == status.CoreDump(), "%+v", o.Trigger)
	assert.Check(t, strings.HasPrefix(o.Explained.Verdict, "the last 1.00 s of tc-crash "), "%q", o.Explained.Verdict)
	eventually(t, "the action has the reason", func() bool {
		log, _ := os.ReadFile(filepath.Join(d.snaps, *o.Snapshot, "action-0.log"))
		own := group == "" || strings.Contains(string(log), "0::/"+filepath.Base(group)+"/actions/action-")
		return strings.Contains(string(log), "\ncoredump SIGSEGV") && own
	})

	o = explainedOutlier(d, "promise", func(*events.Outlier) bool { return true })
	assert.Check(t, o.DelayNS >= 19e6 && o.DelayNS < 5e9 && o.ThresholdNS == 10e6 && o.Task.Comm == "sleep", "%+v", o)
	assert.Check(t, strings.HasPrefix(o.Trigger.Reason, "p90(naps) < 10ms over 5s: it is "), "%+v", o.Trigger)
	for _, rule := range []string{"crash", "page", "promise"} {
		assert.Check(t, d.status().rule(rule).Inactive == "", "%+v", d.status().rule(rule))
	}
}
