package daemon

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/cleanup"
	cgroups "github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestPressureOfMemoryAndMachine: a program that reads more than its cgroup may hold, and two
// that share a CPU, set off the rules of their pressure, each explained for one of them. A
// cgroup with room does not.
func TestPressureOfMemoryAndMachine(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "the files of cgroups need the drop-in triggers.conf")
	root := cgroups.NeedHierarchy(t)
	group := func(kind string) (path string, dirs []string) {
		path = fmt.Sprintf("/tailcam-%s-%d", kind, os.Getpid())
		memory := cgroups.NewNamedCgroup(t, "memory", path[1:])
		memory.Set(t, "memory.limit_in_bytes", "memory.max", "32M")
		if !memory.V2 { // pressure is of version 2, whatever has the limit
			assert.NilError(t, os.Mkdir(root+path, 0o755))
			cleanup.RemoveCgroup(t, root+path)
			dirs = append(dirs, root+path)
		}
		return path, append(dirs, memory.Dir)
	}
	short, shortDirs := group("short")
	roomy, roomyDirs := group("roomy")
	sparse := func(bytes int64) string {
		f, err := os.Create(filepath.Join(publicDir(t, "/var/tmp"), "data")) // what a tmpfs holds is not reclaimed
		assert.NilError(t, err)
		assert.NilError(t, f.Truncate(bytes))
		assert.NilError(t, f.Close())
		return f.Name()
	}
	reads := func(dirs []string, file string) int { // one process, that never ends by itself
		script := `for d; do [ "$d" = -- ] && break; echo $$ >"$d/cgroup.procs" || exit 1; done; exec cat $(yes "$0" | head -n 10000) >/dev/null`
		return background(t, append([]string{"sh", "-c", script, file}, append(dirs, "--")...)...)
	}
	on := func(name, psi, at string) string {
		return fmt.Sprintf("  - {name: %s, track: trigger, on: {psi: {%s}}, target: {cgroup: [%s]}, snapshot: {after: 20ms, every: 1h}}\n", name, psi, at)
	}
	d := start(t, rulesFile(napRule("nap", newUID()),
		on("short", `cgroup: `+short+`, memory: "some 2ms 2s"`, short),
		on("roomy", `cgroup: `+roomy+`, memory: "some 2ms 2s"`, roomy),
		on("machine", `cpu: "some 2ms 2s"`, short)))
	calm, hog := reads(roomyDirs, sparse(4<<20)), reads(shortDirs, sparse(256<<20))

	o := explainedOutlier(d, "short", func(*events.Outlier) bool { return true })
	assert.Check(t, o.Task.TID == hog && o.Task.Cgroup == short && o.DelayNS == 2e9, "%+v", o.Task)
	assert.Check(t, strings.HasPrefix(o.Trigger.Reason, "memory pressure of "+short+": some stalled for 2ms within 2s, avg10="), "%+v", o.Trigger)
	assert.Check(t, strings.Contains(o.Explained.Verdict, "the last 2.00 s of cat "), "%q", o.Explained.Verdict)
	t.Log(o.Explained.Verdict)

	for range 2 {
		hogIn(t, root+short, "taskset -c 0 sh -c 'while :; do :; done'")
	}
	o = explainedOutlier(d, "machine", func(*events.Outlier) bool { return true })
	assert.Check(t, o.Task.Cgroup == short && o.DelayNS == 2e9, "%+v", o.Task)
	assert.Check(t, strings.HasPrefix(o.Trigger.Reason, "cpu pressure of the machine: some stalled for 2ms within 2s, avg10="), "%+v", o.Trigger)
	assert.Check(t, o.Task.TID != calm && d.status().rule("roomy").Outliers == 0, "a cgroup with room: %+v", d.events("roomy"))
	for _, rule := range []string{"short", "roomy", "machine"} {
		assert.Check(t, d.status().rule(rule).Inactive == "", "%+v", d.status().rule(rule))
	}
}

// webRole serves HTTP in a process that can be stopped.
const webRole = "tailcam-test-web"

// serveWeb prints its address, and answers.
func serveWeb() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	fmt.Println(l.Addr())
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	return 1
}

// web starts a server that runs until the test ends. It answers 503, but for /.
func web(t *testing.T) (pid int, address string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", webRole)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err = bufio.NewReader(out).ReadString('\n')
	assert.NilError(t, err)
	return cmd.Process.Pid, strings.TrimSpace(address)
}

// TestProbes: a server that stands still is told by the check that waited for it, with the
// latency of that check, and its time is explained; so are one that never answers and one
// that answers with an error.
func TestProbes(t *testing.T) {
	needRoot(t)
	pid, address := web(t)
	on := func(name, probe, limits string) string {
		return fmt.Sprintf("  - {name: %s, track: trigger, on: {probe: {%s, every: 1s}}, %s, target: {pid: %d}, snapshot: {after: 20ms, every: 10ms}}\n",
			name, probe, limits, pid)
	}
	d := start(t, rulesFile(napRule("nap", newUID()),
		on("failed", "http: 'http://"+address+"/failed'", "timeout: 1m"),
		on("slow", "http: 'http://"+address+"'", "threshold: 100ms, timeout: 1m"),
		on("hung", "http: 'http://"+address+"'", "timeout: 500ms"),
		on("reached", "tcp: '"+address+"'", "timeout: 1m")))

	o := explainedOutlier(d, "failed", func(*events.Outlier) bool { return true })
	assert.Check(t, o.Task.PID == pid && strings.HasSuffix(o.Trigger.Reason, " failed: status 503 Service Unavailable"), "%+v", o.Trigger)

	// What is between these two was stopped, whatever else the machine does.
	type still struct{ from, to uint64 }
	var was []still
	stand := func() {
		assert.NilError(t, syscall.Kill(pid, syscall.SIGSTOP))
		eventually(t, "the server stands still", func() bool { return strings.Trim(child.States(pid), "T") == "" })
		from := linux.Monotonic()
		time.Sleep(2 * time.Second)
		was = append(was, still{from, linux.Monotonic()})
		assert.NilError(t, syscall.Kill(pid, syscall.SIGCONT))
	}
	var m *snapshot.Meta
	at := 0 // of the outlier in its snapshot
	eventually(t, "a check waits for the server", func() bool {
		stand()
		for range 50 {
			time.Sleep(20 * time.Millisecond)
			for _, e := range d.events("slow") {
				if e.Snapshot == nil || e.Explained == nil || !strings.Contains(e.Trigger.Reason, " answered after ") {
					continue
				}
				var err error
				m, err = snapshot.ReadMeta(filepath.Join(d.snaps, *e.Snapshot))
				assert.NilError(t, err)
				at = slices.IndexFunc(m.Outliers, func(in events.Outlier) bool { return in.ID == e.ID })
				assert.Assert(t, at >= 0, "%+v", m.Outliers)
				of := &m.Outliers[at]
				o = e
				if slices.ContainsFunc(was, func(s still) bool { return of.StartMono <= s.to && of.EndMono >= s.to }) {
					return true
				}
			}
		}
		return false
	})
	began, ended := m.Outliers[at].StartMono, m.Outliers[at].EndMono
	least := uint64(0) // of the check, the server was stopped for so long
	for _, s := range was {
		if from, to := max(began, s.from), min(ended, s.to); to > from {
			least += to - from
		}
	}
	data, err := os.ReadFile(filepath.Join(d.snaps, *o.Snapshot, snapshot.ExplainJSONFile))
	assert.NilError(t, err)
	r := addsUp(t, m, data)
	stopped := int64(0)
	for _, p := range r.Outliers[at].Parts {
		if p.Cause == explain.Stopped {
			stopped += p.NS
		}
	}
	t.Logf("%s: %s", o.Trigger.Reason, o.Explained.Verdict)
	assert.Check(t, o.Task.PID == pid && o.DelayNS == int64(ended-began) && o.Trigger.Source == "probe", "%+v", o)
	assert.Check(t, stopped >= int64(least) && stopped <= o.DelayNS, "stopped for %d of %d ns, and at least for %d: %+v", stopped, o.DelayNS, least, r.Outliers[at].Parts)

	o = explainedOutlier(d, "hung", func(o *events.Outlier) bool { return strings.HasPrefix(o.Trigger.Reason, "no answer of ") })
	assert.Check(t, o.DelayNS >= 5e8 && o.ThresholdNS == 5e8 && o.Task.PID == pid, "%+v", o)
	assert.Check(t, d.status().rule("reached").Outliers == 0, "the kernel takes connections for a process that is stopped: %+v", d.events("reached"))
}
