package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/cleanup"
	cgroups "github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/test/support/runtimes"
	"github.com/tailcam/tailcam/tracker/events"
)

// nap20 is a nap of 20 ms, and naps the comm of the program that makes them.
const nap20 = "20000"

// TestPods: rules for pods follow pods of a real runtime as they come and go; the outliers
// of each have its names, from the first on, and snapshots after its end, too.
func TestPods(t *testing.T) {
	needRoot(t)
	t.Run("containerd", func(t *testing.T) { testPods(t, runtimes.StartContainerd(t)) })
	t.Run("cri-o", func(t *testing.T) { testPods(t, runtimes.StartCRIO(t)) })
}

func testPods(t *testing.T, c *runtimes.CRI) {
	t.Helper()
	d := start(t, rulesFile(
		entry("web", "syscall", "10ms", "{comm: nap, syscall: clock_nanosleep, namespace: shop, pod: 'web-*', not_container: proxy}",
			"snapshot: {after: 10ms}"),
		entry("others", "syscall", "10ms", "{comm: nap, syscall: clock_nanosleep, not_pod: '*'}", "snapshot: false"),
		healthRule("{namespace: shop, pod: 'web-*', container: app}"),
	), "--containers-sockets", "cri:"+c.Socket, "--outliers-rate", "0")
	labels := map[string]string{"app.kubernetes.io/name": "shop", "secret": "x"}
	web := c.Run("shop", "web-1", "app", nap20, labels)
	c.Run("shop", "db-1", "app", nap20, nil)
	c.Run("shop", "web-2", "proxy", nap20, nil)
	outside := exec.CommandContext(t.Context(), runtimes.Nap(t, t.TempDir()), nap20)
	assert.NilError(t, outside.Start())
	defer func() { _ = outside.Process.Kill(); _ = outside.Wait() }()

	var list []events.Outlier
	complete := func(rule string) bool {
		list = d.events(rule)
		return len(list) >= 20 && !list[0].Partial && !list[len(list)-1].Partial
	}
	eventually(t, "the pod's naps are told", func() bool { return complete("web") })
	for i := range list {
		at := list[i].Task
		assert.Check(t, at.Pod == "web-1" && at.Namespace == "shop" && at.ContainerName == "app" && at.Runtime == c.Name &&
			at.Container == web.ID && at.PodUID == web.UID && at.Image == runtimes.Image && at.Workload["app.kubernetes.io/name"] == "shop" && len(at.Workload) == 1,
			"%+v", at)
	}
	eventually(t, "the naps outside are told", func() bool { return complete("others") })
	for i := range list {
		assert.Check(t, list[i].Task.PID == outside.Process.Pid && list[i].Task.Pod == "", "%+v", list[i].Task)
	}
	t.Logf("%d outliers of new pods were decided before the runtime answered", d.status().loss("cgroup_gone", "web"))
	for _, tt := range []struct{ socket, status, says string }{
		{c.Socket, "ok", "their names are from cri:" + c.Socket}, {c.Socket + ".none", "warn", "containers.sockets"},
	} {
		conf := writeFile(t, filepath.Join(t.TempDir(), "tailcam.yaml"), "containers: {sockets: ['cri:"+tt.socket+"']}\n", 0o644)
		line := doctorLine(t, "containers", "--config", conf, "--socket", d.socket)
		assert.Check(t, strings.Contains(line, `"status":"`+tt.status+`"`) && strings.Contains(line, tt.says), "%s", line)
	}
	assert.Check(t, !strings.Contains(d.log.String(), noRuntime))
	assertTargets(d, web.ID, []string{"--pod", "web-1", "--container", "app"}, []string{"--pod", "web-*", "--namespace", "shop", "--container", "app"},
		[]string{"--namespace", "sh*", "--container", "app", "--pod", "web-1"})
	o := targetOf(d, "--pod", "web-1") // any of its containers: the sandbox is one
	assert.Check(t, o.Task.Container == web.ID || o.Task.Container == web.Sandbox, "%+v", o.Task)
	for _, flags := range [][]string{{"--pod", "web-1", "--namespace", "other"}, {"--pod", "web-1", "--container", "proxy"}, {"--pod", "web-9"}} {
		a := d.verb(append([]string{"snapshot"}, flags...)...)
		assert.Check(t, a.code == 1 && strings.Contains(a.err, "no thread now with "), "%q: %+v", flags, a)
	}
	web.Remove()
	seen := d.status().rule("web").Outliers
	assertNamed(t, d, web)

	// One that comes later, with the same name, is another.
	again := c.Run("shop", "web-3", "app", nap20, nil)
	eventually(t, "the next pod's naps are told", func() bool { return d.status().rule("web").Outliers >= seen+5 })
	list = d.events("web")
	assert.Check(t, list[len(list)-1].Task.Container == again.ID, "%+v", list[len(list)-1].Task)
}

// healthRule is a trigger whose check fails each second, as nobody listens there.
func healthRule(target string) string {
	return `  - {name: health, track: trigger, on: {probe: {tcp: "127.0.0.1:1", every: 1s}}, target: ` + target +
		", snapshot: {after: 5ms, every: 1ms, burst: 9}}\n"
}

// assertTargets: triggers by hand with each of these flags, and those of healthRule, explain the
// nap in a container.
func assertTargets(d *running, container string, flags ...[]string) {
	d.t.Helper()
	for _, f := range flags {
		o := targetOf(d, f...)
		assert.Check(d.t, o.Task.Container == container && o.Task.Comm == "nap" && o.Explained.Verdict != "", "%q: %+v", f, o.Task)
	}
	o := explainedOutlier(d, "health", func(o *events.Outlier) bool { return o.Task.TID != 0 && !o.Partial })
	assert.Check(d.t, o.Task.Container == container && o.Task.Comm == "nap", "%+v", o.Task)
}

// noRuntime is what the log says of containers without names.
const noRuntime = "no container runtime answers"

// doctorLine is what `tailcam doctor` says of one check.
func doctorLine(t *testing.T, check string, args ...string) string {
	t.Helper()
	a := tailcam(t, append([]string{"doctor", "-o", "json"}, args...)...)
	for line := range strings.Lines(a.out) {
		if strings.Contains(line, `"check":"`+check+`"`) {
			return line
		}
	}
	t.Fatalf("doctor says nothing of %s: %s%s", check, a.out, a.err)
	return ""
}

// TestNoRuntime: a daemon that finds pods and no runtime, as in a container without the sockets, says
// so once; a reload gives it the socket, and takes it away.
func TestNoRuntime(t *testing.T) {
	needRoot(t)
	c := runtimes.StartContainerd(t)
	h := newHome(t, rulesFile(
		entry("nap", "syscall", "10ms", "{comm: nap, syscall: clock_nanosleep}", "snapshot: false"),
		entry("web", "syscall", "10ms", "{comm: nap, syscall: clock_nanosleep, pod: 'web-1'}", "snapshot: false"),
	))
	config := filepath.Join(h.dir, "tailcam.yaml")
	writeFile(t, config, "containers: {sockets: ['cri:"+c.Socket+".none']}\n", 0o600)
	d := h.start(t, "--config", config, "--outliers-rate", "0")
	c.Run("shop", "web-1", "app", nap20, nil)
	c.Run("shop", "web-2", "app", nap20, nil)
	eventually(t, "outliers are told, and that they have no names", func() bool {
		return len(d.events("nap")) >= 20 && strings.Contains(d.log.String(), noRuntime)
	})
	assert.Check(t, strings.Count(d.log.String(), noRuntime) == 1 && strings.Contains(d.log.String(), "containers.sockets"))
	for _, o := range d.events("nap") {
		assert.Check(t, o.Task.Pod == "" && o.Task.Container != "", "%+v", o.Task)
	}
	assert.Check(t, d.status().rule("web").Outliers == 0)

	writeFile(t, config, "containers: {sockets: ['cri:"+c.Socket+"']}\n", 0o600)
	d.ok("reload")
	eventually(t, "pods have names, also those that were there", func() bool {
		list := d.events("web")
		return len(list) > 0 && !list[len(list)-1].Partial && list[len(list)-1].Task.Pod == "web-1"
	})
	writeFile(t, config, "containers: {sockets: []}\n", 0o600)
	d.ok("reload")
	seen := d.status().rule("nap").Outliers
	eventually(t, "pods have no names", func() bool {
		list := d.events("nap")
		return d.status().rule("nap").Outliers > seen+5 && !list[len(list)-1].Partial && list[len(list)-1].Task.Pod == ""
	})
}

// assertNamed: the last snapshot of rule web names the pod of its task, which has gone.
func assertNamed(t *testing.T, d *running, pod *runtimes.Pod) {
	t.Helper()
	list := slices.DeleteFunc(d.list(), func(s catalog.Snapshot) bool { return s.Rule != "web" })
	assert.Assert(t, len(list) > 0)
	id := list[0].ID
	names, err := snapshot.ReadNames(filepath.Join(d.snaps, id))
	assert.NilError(t, err)
	for i := range names.Tasks {
		if at := &names.Tasks[i]; at.Container == pod.ID && at.Comm == "nap" {
			assert.Check(t, at.Pod == "web-1" && at.Namespace == "shop", "%+v", at)
			return
		}
	}
	text, _ := json.Marshal(names.Tasks)
	t.Errorf("snapshot %s has no task of the pod: %s", id, text)
}

// TestPodman: names of containers of a real Podman, by Docker's API.
func TestPodman(t *testing.T) {
	needRoot(t)
	p := runtimes.StartPodman(t)
	testDockerAPI(t, "podman", p.Socket, p.Run)
}

// TestDocker: names of containers of a real Docker.
func TestDocker(t *testing.T) {
	needRoot(t)
	p := runtimes.StartDocker(t)
	testDockerAPI(t, "docker", p.Socket, p.Run)
}

// testDockerAPI: a rule for containers by their names, and triggers for one of them; run starts one.
func testDockerAPI(t *testing.T, runtime, socket string, run func(name, micros, label string) (id string)) {
	d := start(t, rulesFile(
		entry("web", "syscall", "10ms", "{comm: nap, syscall: clock_nanosleep, container: 'web*'}", "snapshot: false"),
		healthRule("{container: 'web*'}"),
	), "--containers-sockets", "docker:"+socket, "--containers-labels", "tier")
	run("db1", nap20, "tier=data")
	id := run("web1", nap20, "tier=front")
	eventually(t, "its naps are told", func() bool { return len(d.events("web")) >= 20 })
	for _, o := range d.events("web") {
		at := o.Task
		assert.Check(t, o.Partial || at.ContainerName == "web1" && at.Runtime == runtime && at.Container == id && at.Image == runtimes.Image && at.Workload["tier"] == "front",
			"%+v", at)
	}
	assertTargets(d, id, []string{"--container", "web1"}, []string{"--container", "w*"})
	a := d.verb("snapshot", "--container", "web2")
	assert.Check(t, a.code == 1 && strings.Contains(a.err, `no thread now with container "web2"`), "%+v", a)
	t.Logf("%d outliers of new containers were decided before %s answered", d.status().loss("cgroup_gone", "web"), runtime)
}

// TestUnits: rules for units follow their cgroups as they come and go; no runtime is needed.
func TestUnits(t *testing.T) {
	needRoot(t)
	root := cgroups.NeedHierarchy(t)
	base := filepath.Join(root, fmt.Sprintf("tailcam-test-%d.slice", os.Getpid()))
	assert.NilError(t, os.Mkdir(base, 0o755))
	cleanup.KillCgroup(t, base)
	uid := newUID()
	d := start(t, rulesFile(
		entry("unit", "syscall", "10ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep, unit: 'web@*.service'}", uid), "snapshot: false"),
		entry("rest", "syscall", "10ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep, not_unit: 'web@*.service'}", uid), "snapshot: false"),
	), "--containers-sockets", "")
	told := map[string]int{}
	for _, unit := range []string{"web@1.service", "web@2.service", "db.service", "web@1.service"} {
		dir, rule := filepath.Join(base, unit), "unit"
		if unit == "db.service" {
			rule = "rest"
		}
		assert.NilError(t, os.Mkdir(dir, 0o755))
		napIn(t, dir, uid)
		told[rule]++
		for _, o := range settled(t, d, rule, told[rule])[told[rule]-1:] {
			assert.Check(t, o.Task.Unit == unit, "rule %s: %+v, want %s", rule, o.Task, unit)
		}
		eventually(t, "the cgroup can be removed", func() bool { return os.Remove(dir) == nil })
	}
}

// TestTitles: programs are called by what they call themselves.
func TestTitles(t *testing.T) {
	needRoot(t)
	perl := needTool(t, "perl", "perl")
	uid := newUID()
	script := writeFile(t, filepath.Join(publicDir(t, ""), "order-service.pl"), "select(undef, undef, undef, 0.02) while 1;\n", 0o644)
	d := start(t, rulesFile(entry("nap", "offcpu", "10ms", fmt.Sprintf("{uid: %d}", uid), "snapshot: false")))
	cmd := exec.CommandContext(t.Context(), perl, script, "--password=secret")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	assert.NilError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	eventually(t, "the script is told by its name", func() bool {
		list := d.events("nap")
		return len(list) > 0 && list[len(list)-1].Task.Name() == "order-service.pl"
	})
}
