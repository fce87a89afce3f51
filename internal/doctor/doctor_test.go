package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/version"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// machine answers as a machine without a daemon would.
func machine(t *testing.T) *Options {
	t.Helper()
	dir := t.TempDir()
	return &Options{
		Socket: filepath.Join(dir, "none.sock"),
		Config: func() (config.Config, error) {
			c := config.Default()
			c.Snapshots.Dir, c.Snapshots.MinFree = filepath.Join(dir, "not", "yet"), 0
			return c, nil
		},
		Privileges: func(int) ([]string, error) { return nil, nil },
		Limits:     func() ([]string, error) { return nil, nil },
		LoadRules: func([]string) ([]rules.Rule, error) {
			return rules.Parse("x.yaml", []byte("rules:\n  - {name: w, track: wakeup, threshold: 5ms}\n  - {name: b, track: block, threshold: 5ms}\n"),
				&rules.LocalMachine{})
		},
		CheckLoad:       func(context.Context, []rules.Rule) ([]string, error) { return nil, nil },
		CheckActivities: func([]string) error { return nil },
		Probes: func() ([]tracker.Probe, error) {
			return []tracker.Probe{
				{Name: "tp_btf:sched_switch", Trackers: []rules.Track{rules.Wakeup}, Available: true},
				{Name: "map:ringbuf", Required: true, Available: true},
			}, nil
		},
	}
}

// of returns the results of a check.
func of(r *Report, check string) []Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(r Result) bool { return r.Check != check })
}

func TestRun(t *testing.T) {
	r := Run(t.Context(), machine(t))
	assert.Check(t, is.Equal(of(r, "load")[0].What, "2 rules loaded and attached on this kernel, then detached"))
	assert.Check(t, is.Equal(of(r, "daemon")[0].Status, Warn))
	assert.Check(t, is.Len(of(r, "activities"), 0), "they are not enabled")
	assert.Check(t, strings.Contains(of(r, "snapshots")[0].What, "will be made"))
	assert.Check(t, is.Equal(of(r, "hooks")[0].What, "1 of 1 available"))
	for _, result := range r.Results {
		assert.Check(t, result.Status == OK || result.Status == Warn || result.Status == Fail, "%+v", result)
		assert.Check(t, result.Check != "" && result.What != "", "%+v", result)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Check(t, is.Len(Run(ended, machine(t)).Results, 0))
}

func TestTrouble(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		check  string
		want   Result // parts of its texts
	}{
		{"configuration", func(o *Options) {
			o.Config = func() (config.Config, error) {
				return config.Config{}, rules.Errors{{Pos: rules.Position{File: "a", Line: 2, Column: 1}, Msg: "bad"}}
			}
		}, "configuration", Result{Status: Fail, What: "a:2:1: bad", Do: "tailcam check"}},
		{"rules", func(o *Options) {
			o.LoadRules = func([]string) ([]rules.Rule, error) { return nil, errors.New("hung") }
		}, "rules", Result{Status: Fail, What: "hung", Do: "tailcam check"}},
		{"capabilities", func(o *Options) {
			o.Privileges = func(int) ([]string, error) { return []string{"CAP_SYSLOG: kernel stacks are addresses"}, nil }
		}, "capabilities", Result{Status: Warn, What: "no CAP_SYSLOG: kernel stacks", Do: "CapabilityBoundingSet="}},
		{"limits", func(o *Options) {
			o.Limits = func() ([]string, error) { return nil, errors.New("open file limit 10 is below 256") }
		}, "limits", Result{Status: Fail, What: "open file limit", Do: "ulimit -Hn"}},
		{"no BTF", func(o *Options) {
			o.Probes = func() ([]tracker.Probe, error) { return nil, errors.New("no BTF") }
		}, "btf", Result{Status: Fail, What: "no BTF", Do: "CONFIG_DEBUG_INFO_BTF"}},
		{"no ring buffer", func(o *Options) {
			o.Probes = func() ([]tracker.Probe, error) {
				return []tracker.Probe{{Name: "map:ringbuf", Required: true, Reason: "too old"}}, nil
			}
		}, "btf", Result{Status: Fail, What: "map:ringbuf is missing: too old", Do: "boot"}},
		{"hook", func(o *Options) {
			o.Probes = func() ([]tracker.Probe, error) {
				return []tracker.Probe{{Name: "tp_btf:block_rq_issue", Trackers: []rules.Track{rules.Block}, Reason: "no such tracepoint"}}, nil
			}
		}, "hooks", Result{Status: Fail, What: "inactive: b", Why: "no such tracepoint", Do: "disable: [b]"}},
		{"load", func(o *Options) {
			o.CheckLoad = func(context.Context, []rules.Rule) ([]string, error) {
				return nil, errors.New("refused\nverifier\nlog")
			}
		}, "load", Result{Status: Fail, What: "refused", Do: "bugtool"}},
		{"activities", func(o *Options) {
			o.Config = func() (config.Config, error) {
				c := config.Default()
				c.Activities.Enabled = true
				return c, nil
			}
			o.CheckActivities = func([]string) error { return errors.New("no such tracepoint\nlog") }
		}, "activities", Result{Status: Warn, What: "no accounts", Why: "no such tracepoint", Do: "activities.enabled: false"}},
		{"note", func(o *Options) {
			o.CheckLoad = func(context.Context, []rules.Rule) ([]string, error) { return []string{"rule b: not here"}, nil }
		}, "load", Result{Status: Warn, What: "inactive: rule b", Why: "not here", Do: "attach: all"}},
		{"space", func(o *Options) {
			o.Config = func() (config.Config, error) {
				c := config.Default()
				c.Snapshots.Dir, c.Snapshots.MinFree = "/", 1<<62
				return c, nil
			}
		}, "snapshots", Result{Status: Fail, What: "not enough free space", Do: "prune"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := machine(t)
			c.change(o)
			report := Run(t.Context(), o)
			assert.Check(t, slices.ContainsFunc(of(report, c.check), func(r Result) bool {
				return r.Status == c.want.Status && strings.Contains(r.What, c.want.What) && !strings.Contains(r.What, "\n") &&
					strings.Contains(r.Why, c.want.Why) && strings.Contains(r.Do, c.want.Do)
			}), "%+v", of(report, c.check))
			assert.Check(t, is.Equal(report.Failed(), c.want.Status == Fail), "%+v", report.Results)
		})
	}
}

// A check that hangs is given up, and changes nothing any more.
func TestHangs(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	c := check{"disk", time.Millisecond, func(_ context.Context, _ *Options, f facts) (facts, []Result) {
		<-never
		f.privileged = true
		return f, nil
	}}
	f, results := c.within(t.Context(), &Options{}, facts{})
	assert.Check(t, !f.privileged && len(results) == 1 && results[0].Status == Fail, "%+v", results)
}

func TestRunning(t *testing.T) {
	s := &api.Status{
		Version: version.String() + "-older", PID: 7, Panics: []api.PanicInfo{{Place: "decode", Count: 2}, {Place: "naming"}},
		Reload: &api.Reload{}, Cost: &api.CostStatus{Exceeded: true, CPUs: 2, Shed: []api.ShedInfo{{Part: "group irq", Why: "too much"}, {Part: "rule s"}}},
		Rules: []api.RuleInfo{
			{Name: "fine"}, {Name: "i", Inactive: "no hook"}, {Name: "p", Paused: true}, {Name: "s", Shed: true},
			{Name: "storm", Paused: true, Storm: &api.StormInfo{PerSecond: 900, ConsiderNS: 5e6}},
		},
		Losses:     []api.Loss{{Cause: "ring_full", Count: 3, Rule: "p", Advice: "raise outliers.buffer"}, {Cause: "zero"}},
		Tables:     []api.TableStatus{{Name: "tasks", Error: "no memory"}},
		Activities: &api.ActivitiesStatus{Error: "activities are enabled, but"},
	}
	var got []string
	for _, r := range running(s) {
		got = append(got, fmt.Sprintf("%s %s: %s | %s", r.Status, r.Check, r.What, r.Do))
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		"ok : pid 7, up ", "-older, this program ", "2 panics in decode | report it: tailcam bugtool", "the last reload did not apply everything | tailcam check --diff",
		"warn rule i: inactive | add to a file in /etc/tailcam/rules.d: disable: [i]", "warn rule p: paused | tailcam resume p",
		"warn rule s: shed | raise budget.cpu", "warn rule storm: paused automatically | tailcam threshold set storm 5ms",
		"warn activities: no accounts of activities | see the daemon's log", "warn cost: shed: group irq", "warn losses: ring_full 3 p | raise outliers.buffer", "warn losses: the pending table tasks cannot grow",
	} {
		assert.Check(t, is.Contains(all, want))
	}
	for _, not := range []string{"fine", "naming", "zero", "shed: rule s"} {
		assert.Check(t, !strings.Contains(all, not), "%s:\n%s", not, all)
	}
	assert.Check(t, is.DeepEqual(losses(nil), []Result{{Check: "losses", Status: OK, What: "none"}}))
}

func TestContainers(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	var none, some places
	none.add("/system.slice/nginx.service")
	none.add("/machine.slice/machine-web.scope/payload") // has a name
	some.add("/kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice/cri-containerd-" + id + ".scope")
	some.add("/system.slice/docker-" + id + ".scope")
	missing := []string{"cri:" + filepath.Join(t.TempDir(), "none"), "docker:" + filepath.Join(t.TempDir(), "none")}
	file := filepath.Join(t.TempDir(), "no socket")
	assert.NilError(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		found   *places
		sockets []string
		want    Result // parts of its texts
	}{
		{&none, missing, Result{Status: OK, What: "none"}},
		{&some, nil, Result{Status: OK, What: "2 containers, 1 of them in pods", Why: "containers.sockets is empty"}},
		{&some, missing, Result{Status: Warn, What: "no runtime answers", Why: "none of containers.sockets exists", Do: "containers.sockets"}},
		{&some, append(missing, "docker:"+file), Result{Status: Warn, What: "no runtime answers", Why: "docker:" + file + ": ", Do: "/run"}},
	} {
		got := c.found.named(t.Context(), c.sockets)
		assert.Check(t, len(got) == 1 && got[0].Status == c.want.Status && strings.Contains(got[0].What, c.want.What) &&
			strings.Contains(got[0].Why, c.want.Why) && strings.Contains(got[0].Do, c.want.Do), "%v: %+v", c.sockets, got)
	}
}

func TestRetention(t *testing.T) {
	for _, c := range []struct {
		s    api.SnapshotsStatus
		want Status
	}{
		{api.SnapshotsStatus{Count: 1, Keep: &api.KeepInfo{Count: 4, Bytes: 1 << 30}}, OK},
		{api.SnapshotsStatus{Count: 4, Pinned: 4, Keep: &api.KeepInfo{Count: 4, Bytes: 1 << 30}}, Warn},
		{api.SnapshotsStatus{Failed: 1}, Warn},
	} {
		assert.Check(t, is.Equal(retention(&c.s)[0].Status, c.want), "%+v", c.s)
	}
}

func write(t *testing.T, text string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	assert.NilError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
}

func TestUnitFiles(t *testing.T) {
	root := t.TempDir()
	one := func() Result {
		results := unitFiles(root)
		return results[len(results)-1]
	}
	assert.Check(t, is.Contains(one().What, "is not installed"))
	write(t, "", root, "usr/lib/systemd/system", unitName)
	assert.Check(t, is.Contains(one().Do, "systemctl enable"))
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants")
	assert.NilError(t, os.MkdirAll(wants, 0o755))
	assert.NilError(t, os.Symlink("/usr/lib/systemd/system/"+unitName, filepath.Join(wants, unitName)))
	assert.Check(t, is.Equal(one().Status, OK))
	write(t, "", root, "etc/systemd/system", unitName+".d", "programs.conf")
	assert.Check(t, is.Contains(one().Why, "programs.conf"))
	assert.NilError(t, os.Symlink("/dev/null", filepath.Join(root, "etc/systemd/system", unitName)))
	assert.Check(t, is.Contains(one().Do, "unmask"))
}

func TestSandbox(t *testing.T) {
	proc := t.TempDir()
	assert.Check(t, is.Len(sandbox(proc, 7), 0))
	write(t, "0::/user.slice\n", proc, "7/cgroup")
	assert.Check(t, is.Equal(sandbox(proc, 7)[0].What, "the daemon does not run as the unit"))
	write(t, "0::/system.slice/tailcam.service\n", proc, "7/cgroup")
	write(t, "Name:\ttailcam\nNoNewPrivs:\t1\nSeccomp:\t2\n", proc, "7/status")
	assert.Check(t, is.Equal(sandbox(proc, 7)[0].Status, OK))
	write(t, "Name:\ttailcam\nNoNewPrivs:\t0\nSeccomp:\t0\n", proc, "7/status")
	assert.Check(t, is.Equal(sandbox(proc, 7)[0].Status, Warn))
}

func TestChosen(t *testing.T) {
	for in, want := range map[string]string{"none [integrity] confidentiality": "integrity", "": "", "[": "", "x]": ""} {
		assert.Check(t, is.Equal(chosen(in), want), "%q", in)
	}
}
