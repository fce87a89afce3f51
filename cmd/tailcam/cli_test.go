package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/eventcost"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == measureRole {
		os.Exit(measure(os.Args[2:]))
	}
	time.Local = time.UTC
	os.Exit(m.Run())
}

// A user error is one line that says what to do.
func TestErrors(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"evnets", exitUsage, `tailcam: unknown command "evnets": did you mean "events"? see "tailcam --help"`},
		{"frobnicate", exitUsage, `tailcam: unknown command "frobnicate": see "tailcam --help"`},
		{"status --foo", exitUsage, `tailcam: unknown flag: --foo: see "tailcam status --help"`},
		{"status -x", exitUsage, `tailcam: unknown shorthand flag: 'x' in -x: see "tailcam status --help"`},
		{"status now", exitUsage, `tailcam: "tailcam status" takes no arguments, got "now": see "tailcam status --help"`},
		{"run --activities-enabled --pin", exitUsage, `tailcam: invalid argument "--pin" for "--activities-enabled" flag: is the next flag; a value is needed before it: true, false: see "tailcam run --help"`},
		{"status -o xml", exitUsage, `tailcam: invalid argument "xml" for "-o, --output" flag: must be text, json or yaml: see "tailcam status --help"`},
		{"wait --for nothing", exitUsage, `tailcam: invalid --for nothing: must be one of outlier, snapshot, verdict`},
		{"snapshot --unit web", exitUsage, `tailcam: invalid --unit "web" has no type; allowed: a unit with its type, such as web.service, or a glob such as web.*`},
		{"snapshot --cgroup a", exitUsage, `tailcam: invalid --cgroup "a" does not begin with /; allowed: a cgroup v2 path from its root, such as /system.slice/**`},
		{"snapshot --activity=", exitUsage, `tailcam: --activity is empty: must be a glob`},
		{"snapshot --pid 4 --pod a --unit a.service", exitUsage, `tailcam: --pid and --tid name a thread: they cannot be combined with --pod`},
		{"snapshot --last 4s", exitUsage, `tailcam: --last needs --pid or --tid, or where the thread runs, such as --unit: whose time is it?`},
		{"wait --timeout -1s", exitUsage, `tailcam: invalid --timeout -1s: must not be negative (0: wait forever)`},
		{"events -f --since 1h", exitUsage, `tailcam: --since selects past outliers: not with --follow`},
		{"events -f -n 3", exitUsage, `tailcam: --count selects past outliers: not with --follow`},
		{"events -n 0", exitUsage, `tailcam: invalid --count 0: must be a positive number`},
		{"events --short -o json", exitUsage, `tailcam: --short prints one line of text: not with --stacks or -o json or yaml`},
		{"list events --for 2h", exitUsage, `tailcam: invalid --for 2h0m0s: must be between 0s (do not measure) and 1m0s`},
		{"list", exitUsage, `tailcam: missing command: rules, probes, events, accounts or snapshots: see "tailcam list --help"`},
		{"list rule", exitUsage, `tailcam: unknown command "rule": did you mean "rules"? see "tailcam list --help"`},
		{"snapshots", exitUsage, `tailcam: missing command: list, show, pin, unpin, pack, rm, prune or verify: see "tailcam snapshots --help"`},
		{"snapshots remove", exitUsage, `tailcam: unknown command "remove": see "tailcam snapshots --help"`},
		{"snapshots rm", exitUsage, `tailcam: missing argument: ID: see "tailcam snapshots list"`},
		{"snapshots prune --dir /", exitUsage, `tailcam: missing flag: --keep-count, --keep-bytes or --older-than: see "tailcam snapshots prune --help"`},
		{"snapshots prune --keep-count 0", exitUsage, `tailcam: invalid argument "0" for "--keep-count" flag: must be a positive number: see "tailcam snapshots prune --help"`},
		{"snapshots prune --keep-bytes 1G", exitUsage, `tailcam: invalid argument "1G" for "--keep-bytes" flag: must be a size in bytes, KiB, MiB, GiB or TiB, such as 512MiB: see "tailcam snapshots prune --help"`},
		{"snapshots prune --older-than 7", exitUsage, `tailcam: invalid argument "7" for "--older-than" flag: must be a duration with a unit, such as 90m, 36h or 7d: see "tailcam snapshots prune --help"`},
		{"snapshots list --dir /no/such --socket " + none, exitError, `tailcam: directory /no/such does not exist: set the snapshot directory with --snapshots-dir`},
		{"snapshots verify --dir /no/such", exitError, `tailcam: directory /no/such does not exist: set the snapshot directory with --snapshots-dir`},
		{"snapshots show a b", exitUsage, `tailcam: "tailcam snapshots show" takes at most 1 argument, got 2: see "tailcam snapshots show --help"`},
		{"export", exitUsage, `tailcam: missing argument: DIR|ID: see "tailcam export --help"`},
		{"export ./x", exitUsage, `tailcam: missing flag: --format (one of ctf, perfetto, folded, svg, text, json)`},
		{"export ./x --format pdf", exitUsage, `tailcam: invalid --format pdf: must be one of ctf, perfetto, folded, svg, text, json`},
		{"export ./x --format svg --time wall", exitUsage, `tailcam: invalid --time wall: must be one of outliers, oncpu, offcpu`},
		{"export ./x --format json --before -1s", exitUsage, `tailcam: invalid --before -1s: must not be negative (default: all)`},
		{"export /no/such --format json", exitError, `tailcam: read snapshot: stat /no/such: no such file or directory`},
		{"check --config a b", exitUsage, "tailcam: check: either --config, or paths of rule files"},
		{"status --socket " + none, exitError, `tailcam: daemon not reachable at ` + none + `: start it with "sudo tailcam run"`},
		{"events -f --socket " + none, exitError, `tailcam: daemon not reachable at ` + none + `: start it with "sudo tailcam run"`},
		{"check /no/such/file", exitError, `/no/such/file: cannot open: no such file or directory`},
	} {
		status, stdout, stderr := invoke(t, strings.Fields(c.args)...)
		assert.Check(t, status == c.status && stdout == "" && stderr == c.want+"\n",
			"%s: status %d, stdout %q, stderr\n%s\nwant %d and\n%s", c.args, status, stdout, stderr, c.status, c.want)
	}
}

func TestStatus(t *testing.T) {
	_, socket := serve(t)
	status, stdout, stderr := invoke(t, "status", "--socket", socket)
	want := `tailcam v1, pid 42, up 1h00m, kernel 6.18.0

RULE    TRACK   THRESHOLD       SEEN  OUTLIERS   WORST  SUPPRESSED  LOST  SKIPPED
wakeup  wakeup        5ms  1,234,567         2  9.00ms           1     0        0
disk    block        50ms          0         0       -           0     4        5  inactive: no hook block_rq_issue

cost 1.23% of 2 CPUs (budget 1.00%), memory 64.0MiB (budget 256.0MiB), prices measured 3.00s ago
PART           CPU
daemon       0.10%
helpers      0.00%
group sched  0.40%
group irq    0.30%  shed
histograms   0.10%  shed
shed since ` + time.Unix(0, 0).Local().Format("15:04:05") + `: group irq, histograms; it cost too much

recorder perf, 4.0MiB total
recording sched, throttle
not recording fexit:throttle_cfs_rq: refused
CPU  COVERAGE  EVENTS/S  BYTES/EVENT  MAX COVERAGE  RECORDS  LOST
  0     5.00s     1,200           80         4.00s    9,000     1
  1     1m01s         3           80        26m40s       12     0

losses (zero: ring_full, connection_refused, stream_refused, trigger_refused)
LOSS        SOURCE  COUNT  ADVICE
table_full  wakeup  1,234  raise tracker.pending

snapshots 1, 4.0KiB in /no/such/snapshots, 1 pinned, 2 failed: see the daemon's log
removed 3 over snapshots.keep.age, 1,200 over snapshots.keep.count
last 20261120T231502.123456789Z-wakeup-000042
priority raised (sched_rr): is now, 42 times for 3.00s of CPU time, of these 2 to the limit of snapshots.boost; 7 not raised, as a quarter of a CPU was used up

activities processes 3, threads 40, live tokens 1,200, 2.0MiB
refused: processes 1, threads 0, tokens 7; see losses
processes whose threads' contexts can be read: 5
`
	diff := cmp.Diff(want, stdout)
	assert.Check(t, status == exitOK && stderr == "" && diff == "",
		"status %d, stderr %q\n%s", status, stderr, diff)
	status, stdout, _ = invoke(t, "status", "-o", "json", "--socket", socket)
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n == 1 && strings.Contains(stdout, `"table_full"`),
		"json: status %d, %s", status, stdout)
}

func TestList(t *testing.T) {
	_, socket := serve(t)
	for what, want := range map[string]string{
		"rules": `RULE    TRACK   THRESHOLD  FILE
wakeup  wakeup        5ms  wakeup.yaml:2
disk    block        50ms  disk.yaml:2    inactive: no hook block_rq_issue
`,
		// The directory does not exist here, so the daemon is asked.
		"snapshots": `SNAPSHOT  TIME                     RULE             DELAY  TASK  BLAME  KEPT      SIZE
a         2026-11-20 23:15:02.123  wakeup          9.00ms               worst   4.0KiB
b         2026-11-20 23:15:02.123  manual because       -               pinned  1.0MiB
2 snapshots, 1.0MiB in /no/such/snapshots
`,
	} {
		status, stdout, stderr := invoke(t, "list", what, "--socket", socket)
		diff := cmp.Diff(want, stdout)
		assert.Check(t, status == exitOK && stderr == "" && diff == "",
			"list %s: status %d, stderr %q\n%s", what, status, stderr, diff)
		status, stdout, _ = invoke(t, "list", what, "-o", "json", "--socket", socket)
		n := isJSONLines(t, stdout)
		assert.Check(t, status == exitOK && n == 2, "list %s -o json: status %d, %s", what, status, stdout)
	}
}

func TestEvents(t *testing.T) {
	f, socket := serve(t)
	status, stdout, stderr := invoke(t, "events", "--socket", socket)
	assert.Check(t, status == exitOK && stdout == "" && strings.HasPrefix(stderr, "no outliers yet"),
		"none yet: status %d, stdout %q, stderr %q", status, stdout, stderr)
	caught := outlier("wakeup", 48.2e6)
	caught.Stacks.User = []string{"std::vector<int>::at(unsigned long)+0x12"}
	id := "one"
	caught.Snapshot = &id
	f.Publish(caught)
	f.Publish(outlier("disk", 60e6))
	done := *caught
	done.Explained = &events.Explained{Verdict: "victim 7 waited for hog 9.", Advice: "Look at\x1b hog 9.", Cause: "preempted", By: "hog 9", NS: 48e6}
	f.Finish("/snapshots/one", []events.Outlier{done})
	status, stdout, _ = invoke(t, "events", "--rule", "wakeup", "--socket", socket)
	want := `2026-11-20 23:15:02.123  wakeup         48.2ms  victim[7]               was woken and waited to run
    verdict      victim 7 waited for hog 9.
    threshold    5ms (9.6 times that)
    cpu          1
    snapshot     one
`
	diff := cmp.Diff(want, stdout)
	assert.Check(t, status == exitOK && diff == "", "status %d\n%s", status, diff)
	_, stdout, _ = invoke(t, "events", "-v", "--socket", socket)
	n := strings.Count(stdout, "    kernel       schedule+0x1\n")
	assert.Check(t, n == 2 && strings.Contains(stdout, `    advice       Look at\x1b hog 9.`),
		"-v shows %d of 2 stacks:\n%s", n, stdout)
	status, stdout, _ = invoke(t, "events", "-o", "json", "--socket", socket)
	n = isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n == 2, "json: status %d, %s", status, stdout)
	const first = `{"schema":"tailcam/outlier/v1","time":"2026-11-20T23:15:02.123456789Z","rule":"wakeup","track":"wakeup","cause":"threshold","delay_ns":48200000,"threshold_ns":5000000,` +
		`"key":{"tid":7},"task":{"pid":7,"tid":7,"comm":"victim","uid":0},"cpu":1,"entry_cpu":1,` +
		`"stacks":{"kernel":["schedule+0x1"],"user":["std::vector<int>::at(unsigned long)+0x12"]},"snapshot":"one",`
	assert.Check(t, strings.HasPrefix(stdout, first), "json: %s\nwant it to begin with\n%s", stdout, first)
	status, _, stderr = invoke(t, "events", "--rule", "nosuch", "--socket", socket)
	if status != exitError || stderr != "tailcam: unknown rule \"nosuch\": the daemon has wakeup, disk\n" {
		t.Errorf("unknown rule: status %d, stderr %q", status, stderr)
	}
}

// Which of the remembered outliers are shown, and on how many lines.
func TestPastEvents(t *testing.T) {
	f, socket := serve(t)
	for i := range 6 {
		o := outlier("wakeup", int64(i+6)*1e6)
		if i > 2 {
			o.Time = time.Now().Add(-time.Hour)
		}
		f.Publish(o)
	}
	done := outlier("wakeup", 20e6)
	id := "one"
	done.Snapshot, done.Task.Comm, done.Explained = &id, "vic\ntim", &events.Explained{Verdict: "It waited\x1b for\nhog 9."}
	f.Publish(done)
	show := func(args ...string) []string {
		status, stdout, stderr := invoke(t, append([]string{"events", "--short", "--socket", socket}, args...)...)
		assert.Check(t, status == exitOK && (stderr == "") == (stdout != ""), "%q: status %d, stderr %q", args, status, stderr)
		return strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	}
	assert.Check(t, is.Len(show(), 7))
	assert.Check(t, is.Len(show("--since", "2h"), 3))
	assert.Check(t, is.Len(show("--since", "2h", "-n", "1"), 1))
	assert.Check(t, is.DeepEqual(show("-n", "2")[1],
		`2026-11-20 23:15:02.123  wakeup         20.0ms  vic\x0atim[7]           was woken and waited to run: It waited\x1b for\x0ahog 9.`))
	_, stdout, stderr := invoke(t, "events", "--since", "1m", "--socket", socket)
	assert.Check(t, stdout == "" && stderr == "no outliers since then; for earlier ones: tailcam events\n", "%q", stderr)
	status, stdout, _ := invoke(t, "events", "--count", "3", "-o", "json", "--socket", socket)
	assert.Check(t, status == exitOK && isJSONLines(t, stdout) == 3, "%s", stdout)
}

func TestWait(t *testing.T) {
	f, socket := serve(t)
	f.Publish(outlier("wakeup", 6e6)) // was before: not the next one
	status, stdout, stderr := invoke(t, "wait", "--timeout", "1ms", "--socket", socket)
	if status != exitNothing || stdout != "" || !strings.HasSuffix(stderr, "tailcam: timed out: no outlier within 1ms\n") {
		t.Errorf("timeout: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	var none waitTimeout
	for timeout := 10 * time.Millisecond; none.Cursor == ""; timeout *= 2 { // until the daemon had the time to answer
		status, stdout, _ := invoke(t, "wait", "--for", "verdict", "--timeout", timeout.String(), "-o", "json", "--socket", socket)
		assert.Equal(t, status, exitNothing)
		if stdout != "" {
			isJSONLines(t, stdout)
			assert.NilError(t, json.Unmarshal([]byte(stdout), &none))
		}
	}
	assert.Equal(t, none.Cursor, f.Cursor())
	f.FinishManual("/snapshots/by-hand", &events.Outlier{Rule: "manual"})
	for range 12 { // 10 are remembered
		f.Publish(outlier("wakeup", 6e6))
	}
	status, stdout, stderr = invoke(t, "wait", "--for", "snapshot", "--after", none.Cursor, "--socket", socket)
	want := "0001-01-01 00:00:00.000  manual  no verdict\n    /snapshots/by-hand\n"
	assert.Check(t, status == exitOK && stdout == want && stderr == "cursor: "+f.Cursor()+"\n", "status %d, %q, %q", status, stdout, stderr)
	status, stdout, stderr = invoke(t, "wait", "-o", "json", "--after", none.Cursor, "--socket", socket)
	isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && strings.Contains(stdout, `"lost":2}`) && strings.HasPrefix(stderr, "tailcam: 2 outliers were not shown"), "status %d, %q, %q", status, stdout, stderr)
	_, stdout, stderr = invoke(t, "wait", "-o", "json", "--after", "before.1.1", "--socket", socket)
	assert.Check(t, strings.HasSuffix(stdout, `"restarted":true}`+"\n") && strings.Contains(stderr, "was restarted since the cursor"), "%q, %q", stdout, stderr)
	go func() {
		for <-f.subscribed != "disk" { // those of the waits above come first
		}
		f.Publish(outlier("wakeup", 7e6))
		f.Publish(outlier("disk", 8e6))
		f.Publish(outlier("disk", 9e6))
	}()
	status, stdout, _ = invoke(t, "wait", "--rule", "disk", "-o", "json", "--socket", socket)
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n == 1 && strings.Contains(stdout, `"delay_ns":8000000`),
		"status %d, %s", status, stdout)
}

func TestSnapshot(t *testing.T) {
	_, socket := serve(t)
	status, stdout, _ := invoke(t, "snapshot", "--reason", "because", "--socket", socket)
	assert.Check(t, status == exitOK && stdout == `/snapshots/\x1b[31mone`+"\n", "status %d, %q", status, stdout)
	status, stdout, stderr := invoke(t, "snapshot", "--reason", "full", "--socket", socket)
	assert.Check(t, status == exitError && stdout == "" && stderr == "tailcam: disk full: free some space\n",
		"status %d, %q, %q", status, stdout, stderr)
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for path, text := range map[string]string{
		good: "rules:\n  - name: one\n    track: wakeup\n    threshold: 5ms\n",
		bad:  "rules:\n  - name: two\n    track: wakeup\n    treshold: 5ms\n    when: {comm: 7}\n",
	} {
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	status, stdout, stderr := invoke(t, "check", good)
	if status != exitOK || stderr != "" || !strings.Contains(stdout, "one   wakeup        5ms  "+good+":2") || !strings.Contains(stdout, "ok: 1 rule\n") {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	status, stdout, stderr = invoke(t, "check", good, bad)
	assert.Check(t, status == exitError && stdout == "" && strings.Count(stderr, "\n") >= 2,
		"status %d, %q, %q", status, stdout, stderr)
	for line := range strings.Lines(stderr) {
		assert.Check(t, strings.HasPrefix(line, bad+":"), "line %q does not begin with the position", line)
	}
}

// TestCheckWithoutActivities: rules that want activities are valid, and check says that they do
// less than they say, and what to change.
func TestCheckWithoutActivities(t *testing.T) {
	dir := t.TempDir()
	list, cfg := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "tailcam.yaml")
	for path, text := range map[string]string{
		list: "rules:\n  - {name: checkout, track: activity, threshold: 1s}\n" +
			"  - {name: sql, track: pair, activity: sql, entry: \"uprobe:/bin/sh:begin\", exit: \"uprobe:/bin/sh:end\", key: [tid], threshold: 1s}\n" +
			"  - {name: pressure, track: trigger, on: {psi: {memory: \"some 150000 1000000\"}}, target: {activity: checkout}}\n" +
			"  - {name: wakeup, track: wakeup, threshold: 5ms}\n",
		cfg: "rules: [" + list + "]\n",
	} {
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for _, args := range [][]string{{"check", list}, {"check", "--config", cfg}} {
		status, stdout, stderr := invoke(t, args...)
		assert.Check(t, status == exitOK && stderr == "" && strings.Count(stdout, "warning: ") == 3, "%s: status %d, %q\n%s", args, status, stderr, stdout)
		for line, rule := range map[string]string{":2: rule checkout: ": "watches nothing", ":3: rule sql: ": "begins none", ":4: rule pressure: ": "finds no thread"} {
			assert.Check(t, is.Contains(stdout, "warning: "+list+line))
			assert.Check(t, is.Contains(stdout, rule))
		}
		assert.Check(t, is.Contains(stdout, "without activities.enabled: true in tailcam.yaml\n"))
	}
	status, stdout, _ := invoke(t, "check", "--config", cfg, "-o", "json")
	assert.Check(t, status == exitOK && isJSONLines(t, stdout) == 1 && strings.Contains(stdout, `"warnings":["`), "status %d\n%s", status, stdout)
	assert.NilError(t, os.WriteFile(cfg, []byte("rules: ["+list+"]\nactivities: {enabled: true}\n"), 0o600))
	status, stdout, _ = invoke(t, "check", "--config", cfg)
	assert.Check(t, status == exitOK && !strings.Contains(stdout, "warning: "), "status %d\n%s", status, stdout)
}

func TestVersionAndHelp(t *testing.T) {
	status, stdout, _ := invoke(t, "version", "-o", "json")
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n == 1, "version: status %d, %s", status, stdout)
	for _, args := range [][]string{{}, {"--help"}, {"help", "wait"}, {"completion", "bash"}, {"list", "probes", "--help"}} {
		status, stdout, stderr := invoke(t, args...)
		assert.Check(t, status == exitOK && stdout != "" && stderr == "",
			"%q: status %d, stderr %q", args, status, stderr)
	}
}

func TestCheckCapabilities(t *testing.T) {
	const all = 1<<capBPF | 1<<capPerfmon | 1<<capSyslog | 1<<capIPCLock | 1<<capSysPtrace
	for _, c := range []struct {
		have    uint64
		root    bool
		without int
		err     string
	}{
		{have: all},
		{have: 1<<capBPF | 1<<capPerfmon, without: 3},
		{have: 1<<capSysAdmin | 1<<capSyslog, without: 2},
		{have: 1 << capBPF, err: "needs root, or the capabilities CAP_BPF and CAP_PERFMON (missing: CAP_PERFMON): use sudo"},
		{root: true, err: "missing CAP_BPF, CAP_PERFMON although running as root: in a container, add them or use --privileged"},
	} {
		without, err := checkCapabilities(c.have, c.root)
		got := ""
		if err != nil {
			got = err.Error()
		}
		assert.Check(t, got == c.err && len(without) == c.without,
			"checkCapabilities(%#x, %v) = %q, %q; want %d missing, %q", c.have, c.root, without, got, c.without, c.err)
	}
	have, err := effective("Name:\tx\nCapInh:\t0\nCapEff:\t000001ffffffffff\n")
	assert.Check(t, err == nil && have == 1<<41-1, "effective: %#x, %v", have, err)
}

// A full disk below standard output is an error, whatever the output format.
func TestOutputFails(t *testing.T) {
	f, socket := serve(t)
	f.Publish(outlier("wakeup", 6e6))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	assert.NilError(t, err)
	defer full.Close()
	for _, args := range []string{"status", "status -o json", "events", "events -o json", "version", "list rules"} {
		var stderr bytes.Buffer
		line := strings.Fields(args)
		if line[0] != "version" {
			line = append(line, "--socket", socket)
		}
		status := execute(context.Background(), newCLI(full, &stderr, testDeps()), line)
		want := "tailcam: write output: write /dev/full: no space left on device\n"
		assert.Check(t, status == exitError && stderr.String() == want,
			"%s: status %d, stderr %q", args, status, stderr.String())
	}
}

func TestLostOutliers(t *testing.T) {
	var stdout, stderr bytes.Buffer
	c := newCLI(&stdout, &stderr, deps{})
	c.printLoss(loss{Lost: 1200})
	want := "tailcam: 1,200 outliers were not shown: this client is too slow, or they are forgotten since the cursor\n"
	assert.Check(t, stdout.Len() <= 0 && stderr.String() == want,
		"stdout %q, stderr %q", stdout.String(), stderr.String())
}

func TestListEvents(t *testing.T) {
	list := []eventcost.Event{
		{Group: "sched", Groups: []string{"sched"}, Event: "sched_switch", Hook: "tp_btf:sched_switch", Available: true},
		{Group: "sched", Groups: []string{"sched"}, Event: "tailcam_steal", Hook: "tp_btf:sched_switch", Available: true},
		{Group: "reclaim", Groups: []string{"reclaim", "memory"}, Event: "mm_compaction_begin", Hook: "tp_btf:mm_compaction_begin", Available: true},
		{Group: "memory", Groups: []string{"memory"}, Event: "x86_exceptions_page_fault_user", Hook: "tp_btf:page_fault_user", Reason: "this kernel has no tracepoint page_fault_user"},
	}
	measured := slices.Clone(list)
	measured[0].Cost = &eventcost.Cost{Events: 2000, PerSecond: 1000, NS: 100.4, CPUPercent: 0.01}
	measured[2].Cost = &eventcost.Cost{}
	for _, test := range []struct {
		list        []eventcost.Event
		err         error
		out, stderr string
	}{
		{measured, nil, `GROUP    EVENT                           NS/EVENT  EVENTS/S     CPU
sched                                         100      1000  0.010%  recorded by default
         sched_switch                         100      1000  0.010%
         tailcam_steal                                               included in sched_switch
reclaim                                         -         0       -  recorded by default
         mm_compaction_begin                    -         0       -
memory                                          -         0       -  off by default; includes reclaim
         x86_exceptions_page_fault_user                              unavailable: this kernel has no tracepoint page_fault_user
`, ""},
		{list, fmt.Errorf("%w: EPERM", eventcost.ErrPrivilege), `GROUP    EVENT                           NS/EVENT  EVENTS/S  CPU
sched                                                             recorded by default
         sched_switch
         tailcam_steal
reclaim                                                           recorded by default
         mm_compaction_begin
memory                                                            off by default; includes reclaim
         x86_exceptions_page_fault_user                           unavailable: this kernel has no tracepoint page_fault_user
`, "tailcam: not measured: it needs root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN: EPERM\n"},
	} {
		var asked time.Duration
		p := deps{events: func(_ context.Context, length time.Duration) ([]eventcost.Event, error) {
			asked = length
			return test.list, test.err
		}}
		var stdout, stderr bytes.Buffer
		status := execute(context.Background(), newCLI(&stdout, &stderr, p), []string{"list", "events", "--for", "3s"})
		assert.Check(t, status == exitOK && asked == 3*time.Second && stderr.String() == test.stderr,
			"status %d, measured for %s, stderr %q", status, asked, stderr.String())
		assert.Check(t, is.DeepEqual(test.out, trimmed(stdout.String())))
	}
}

// trimmed removes spaces from the ends of lines.
func trimmed(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func TestListProbes(t *testing.T) {
	p := deps{probes: func() ([]tracker.Probe, error) {
		return []tracker.Probe{
			{Name: "tp_btf:sched_switch", Trackers: []rules.Track{rules.Wakeup, rules.OffCPU}, Groups: []string{"sched"}, Available: true},
			{Name: "tp_btf:nosuch", Groups: []string{"irq"}, Reason: "this kernel has no tracepoint nosuch"},
		}, nil
	}}
	var stdout, stderr bytes.Buffer
	status := execute(context.Background(), newCLI(&stdout, &stderr, p), []string{"list", "probes"})
	want := `HOOK                 AVAILABLE  USED BY
tp_btf:sched_switch  yes        wakeup, offcpu, recorder
tp_btf:nosuch        no         recorder                  this kernel has no tracepoint nosuch
`
	diff := cmp.Diff(want, stdout.String())
	assert.Check(t, status == exitOK && diff == "", "status %d, stderr %q\n%s", status, stderr.String(), diff)
}

// An interrupt is the normal end of events -f, and an error of wait.
func TestInterrupted(t *testing.T) {
	f, socket := serve(t)
	for verb, want := range map[string]int{"events -f": exitOK, "wait": exitError} {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-f.subscribed
			cancel()
		}()
		var stdout, stderr bytes.Buffer
		status := execute(ctx, newCLI(&stdout, &stderr, testDeps()), append(strings.Fields(verb), "--socket", socket))
		text := map[int]string{exitOK: "", exitError: "tailcam: interrupted\n"}[want]
		assert.Check(t, status == want && stdout.Len() <= 0 && stderr.String() == text,
			"%s: status %d, stdout %q, stderr %q", verb, status, stdout.String(), stderr.String())
	}
}

// When a partial outlier is completed, text shows what is new, JSON the whole object.
func TestEventsCompleted(t *testing.T) {
	f, socket := serve(t)
	part := outlier("wakeup", 48.2e6)
	part.ID, part.Partial, part.Stacks.User = "run-1", true, []string{"[unknown] 0x1000"}
	whole := *part
	whole.Partial, whole.Completed = false, true
	whole.Task.Cmdline, whole.Stacks.User = "victim --slow", []string{"main+0x1"}
	for args, want := range map[string]string{
		"events -f -v": `2026-11-20 23:15:02.123  wakeup         48.2ms  victim[7]               was woken and waited to run
    threshold    5ms (9.6 times that)
    cpu          1
    partial      symbols and process details are still being looked up
    kernel       schedule+0x1
    user         [unknown] 0x1000
2026-11-20 23:15:02.123  wakeup         48.2ms  victim[7]               shown above, now complete
    process      7  victim --slow  uid 0
    user         main+0x1
`,
		"events -f -o json": "",
	} {
		t.Setenv("TZ", "UTC")
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-f.subscribed
			f.Publish(part)
			f.Complete(&whole)
			time.Sleep(time.Second) // it prints what has come
			cancel()
		}()
		var stdout, stderr bytes.Buffer
		status := execute(ctx, newCLI(&stdout, &stderr, testDeps()), append(strings.Fields(args), "--socket", socket))
		cancel()
		if want == "" {
			if n := isJSONLines(t, stdout.String()); n != 2 || strings.Count(stdout.String(), `"id":"run-1"`) != 2 || !strings.Contains(stdout.String(), `"completed":true`) {
				t.Errorf("%s: status %d\n%s", args, status, stdout.String())
			}
			continue
		}
		diff := cmp.Diff(want, stdout.String())
		assert.Check(t, status == exitOK && diff == "",
			"%s: status %d, stderr %q\n%s", args, status, stderr.String(), diff)
	}
}
