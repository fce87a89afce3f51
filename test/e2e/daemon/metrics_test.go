package daemon

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
)

// TestMetrics: what a real Prometheus has scraped agrees with the outliers that were
// injected, and with `tailcam status`.
func TestMetrics(t *testing.T) {
	needRoot(t)
	uid := newUID()
	const n = 20
	trace := fmt.Sprintf("4bf92f3577b34da6a3ce9290%08x", uid)
	key := "00-" + trace + "-00f067aa0ba902b7-01"
	d := start(t, rulesFile(napRule("naps", uid, "histogram: true", "snapshot: {every: 100ms}"),
		"  - {name: span, track: span, threshold: 1ms, snapshot: {after: 5ms}, when: {key: ["+key+"]}}\n"), "--metrics-listen", "127.0.0.1:0")
	p := startPrometheus(t, d, nativeHistograms)
	naps(t, uid, n, 10*time.Millisecond, 4)
	var delays []float64
	for _, o := range settled(t, d, "naps", n) {
		delays = append(delays, float64(o.DelayNS))
	}
	slices.Sort(delays)
	sum := 0.0
	for _, ns := range delays {
		sum += ns / 1e9
	}
	is := func(want float64) func(float64) bool {
		return func(v float64) bool { return math.Abs(v-want) < 1e-6 }
	}

	p.becomes(`tailcam_outliers_total{rule="naps",cause="threshold"}`, is(n))
	p.becomes(`tailcam_outlier_seconds_total{rule="naps",cause="threshold"}`, is(sum))
	p.becomes(`tailcam_rule_worst_seconds{rule="naps"}`, is(delays[n-1]/1e9))
	p.becomes(`tailcam_rule_threshold_seconds{rule="naps"}`, is(1e-3))
	p.becomes(`tailcam_rule_active{rule="naps"} - tailcam_rule_paused`, is(1))
	p.becomes(`sum(tailcam_lost_total{cause="ring_buffer_full"})`, is(0))
	p.becomes(`tailcam_table_capacity{table="syscalls"}`, is(16384))
	p.becomes(`tailcam_recorder_coverage_seconds`, func(v float64) bool { return v > 0 })
	p.becomes(`tailcam_recorder_records_total`, func(v float64) bool { return v > 0 })

	// What it costs: known after a window of the budget, and never all of the machine.
	p.becomes(`tailcam_overhead_ratio`, func(v float64) bool { return v > 0 && v < 1 })
	p.becomes(`tailcam_budget_ratio`, is(1)) // as the harness asks
	p.becomes(`sum(tailcam_program_seconds_total{program="sched_switch"})`, func(v float64) bool { return v > 0 })

	// The median is in the native bucket of the tenth delay, and that ends where it should.
	p.becomes(`histogram_count(tailcam_rule_delay_seconds{rule="naps"})`, is(n))
	p.becomes(`histogram_sum(tailcam_rule_delay_seconds{rule="naps"})`, is(sum))
	end := math.Exp2(math.Ceil(8*math.Log2(delays[n/2-1]/1e9)) / 8)
	below := 0.0
	for _, ns := range delays {
		if ns/1e9 <= end {
			below++
		}
	}
	p.becomes(fmt.Sprintf(`histogram_fraction(0, %v, tailcam_rule_delay_seconds{rule="naps"})`, end), is(below/n))
	p.becomes(`histogram_quantile(0.5, tailcam_rule_delay_seconds{rule="naps"})`, func(v float64) bool {
		return v >= end*math.Exp2(-1.0/8)-1e-9 && v <= end+1e-9
	})
	p.becomes(`histogram_count(tailcam_delay_seconds{track="syscall"})`, func(v float64) bool { return v >= n })
	for le, want := range map[string]int{"0.0078125": 0, "64": n, "+Inf": n} { // classic buckets, for those who want them
		line := fmt.Sprintf("\n"+`tailcam_rule_delay_seconds_bucket{class="",rule="naps",le=%q} %d`+"\n", le, want)
		assert.Check(t, strings.Contains(d.scrape(), line), "missing:%s", line)
	}

	// Snapshots and what they explain: timers, as the naps were naps.
	var stored []string
	eventually(t, "the snapshots are written", func() bool {
		stored = nil
		for _, s := range d.list() {
			stored = append(stored, s.ID)
		}
		return len(stored) > 0
	})
	p.becomes(`tailcam_snapshots_stored`, func(v float64) bool { return v >= 1 })
	p.becomes(`tailcam_snapshots_total{rule="naps",result="written"}`, func(v float64) bool { return v >= 1 })
	p.becomes(`histogram_count(tailcam_snapshot_duration_seconds)`, func(v float64) bool { return v >= 1 })
	p.becomes(`sum(tailcam_blamed_seconds_total{rule="naps",cause="timer"})`, func(v float64) bool { return v >= 0.009 && v <= sum })
	eventually(t, "Prometheus has an exemplar", func() bool { return len(p.exemplars("tailcam_outliers_total", "snapshot_id")) > 0 })
	for _, d := range d.list() {
		stored = append(stored, d.ID)
	}
	for _, id := range append(p.exemplars("tailcam_outliers_total", "snapshot_id"), p.exemplars("tailcam_outlier_seconds_total", "snapshot_id")...) {
		assert.Check(t, slices.Contains(stored, id), "the exemplar names snapshot %q, there are %q", id, stored)
	}

	// A span whose key is a trace's: the exemplar leads to the trace, too.
	assert.Check(t, tailcam(t, "begin", key).code == 0)
	time.Sleep(5 * time.Millisecond)
	assert.Check(t, tailcam(t, "end", key).code == 0)
	eventually(t, "Prometheus has the trace of the span", func() bool {
		return slices.Contains(p.exemplars(`tailcam_outliers_total{rule="span"}`, "trace_id"), trace)
	})
	for _, id := range p.exemplars(`tailcam_outliers_total{rule="naps"}`, "trace_id") {
		assert.Check(t, id == "", "the naps belong to no trace: %s", id)
	}

	// Reloads, of which one is bad.
	d.signal(syscall.SIGHUP)
	p.becomes(`tailcam_reload_total{result="succeeded"}`, is(1))
	p.becomes(`tailcam_reload_last_successful`, is(1))
	writeFile(t, d.rules, "rules: [{name: bad}]\n", 0o644)
	d.signal(syscall.SIGHUP)
	p.becomes(`tailcam_reload_last_successful`, is(0))
	p.becomes(`tailcam_reload_total{result="failed"}`, is(1))
	p.becomes(`tailcam_outliers_total{rule="naps",cause="threshold"}`, is(n))
	p.becomes(`up`, is(1))
	p.becomes(`scrape_samples_scraped`, func(v float64) bool { return v < 1000 })

	cmd := exec.CommandContext(t.Context(), needTool(t, "promtool", "prometheus"), "check", "metrics")
	cmd.Stdin = strings.NewReader(d.scrape())
	out, err := cmd.CombinedOutput()
	assert.Check(t, err == nil && len(out) == 0, "promtool check metrics: %v\n%s", err, out)
}

// TestMetricsCardinality: the number of series does not depend on what processes
// call themselves, and no series has their names.
func TestMetricsCardinality(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(entry("all", "syscall", "1ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep}", uid), "snapshot: {every: 100ms}")),
		"--metrics-listen", "127.0.0.1:0")
	sleep, err := exec.LookPath("sleep")
	assert.NilError(t, err)
	dir := publicDir(t, "")
	run := func(names ...string) {
		for _, name := range names {
			path := filepath.Join(dir, name)
			assert.NilError(t, os.Symlink(sleep, path))
			cmd := exec.CommandContext(t.Context(), path, "0.01")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			assert.NilError(t, child.Start(cmd))
			assert.NilError(t, cmd.Wait())
		}
	}
	// How many causes explanations find is up to the machine; theirs are bounded as well.
	count := func() int {
		text := d.scrape()
		return series(text) - strings.Count(text, "\ntailcam_blamed_seconds_total{")
	}
	run("first")
	settled(t, d, "all", 1)
	eventually(t, "the snapshot is written", func() bool { return len(d.list()) > 0 })
	eventually(t, "a window of the budget is over", func() bool { return strings.Contains(d.scrape(), "\ntailcam_overhead_ratio ") })
	before := count()
	var names []string
	for i := range 60 {
		names = append(names, []string{"evil\n%d", "evil\"} %d", "evil\xff\xfe%d", "evil{a=\"%d", "evil\\%d", "ev\u202eil%d"}[i%6])
		names[i] = fmt.Sprintf(names[i], i)
	}
	run(names...)
	settled(t, d, "all", 1+len(names))
	assert.Check(t, count() == before, "%d series before, %d after", before, count())
	text := d.scrape()
	assert.Check(t, !strings.Contains(text, "evil") && !strings.Contains(text, "first") && !strings.Contains(text, "sleep\""), "%s", text)
	pairs := regexp.MustCompile(`(?m)^tailcam_blamed_seconds_total\{`).FindAllString(text, -1)
	assert.Check(t, len(pairs) > 0 && len(pairs) < 20, "%d pairs of cause and culprit", len(pairs))
}

// TestMetricsRefused: a daemon that cannot serve metrics as it was told does not
// start, and says why.
func TestMetricsRefused(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("naps", newUID())), "--metrics-listen", "127.0.0.1:0")
	taken := strings.TrimSuffix(strings.TrimPrefix(d.metricsURL(), "http://"), "/metrics")
	h := newHome(t, rulesFile(napRule("naps", newUID())))
	bad := writeFile(t, filepath.Join(h.dir, "web.yaml"), "basic_auth: {}\n", 0o644)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--metrics-listen", taken}, 1, "listen for scrapes: metrics.listen " + taken + ": listen tcp " + taken + ": bind: address already in use"},
		{[]string{"--metrics-listen", "here"}, 2, `--metrics-listen: metrics.listen "here" is not an address; allowed: HOST:PORT, or unix: and a path`},
		{[]string{"--metrics-listen", "unix:" + h.socket}, 1, "metrics.listen is socket.path, " + h.socket},
		{[]string{"--metrics-listen", "127.0.0.1:0", "--metrics-web-config", bad}, 1, "metrics.web_config " + bad + ": yaml: unmarshal errors"},
	} {
		a := tailcam(t, h.command(tt.args...)[1:]...)
		assert.Check(t, a.code == tt.code && strings.Contains(a.err, tt.want), "%q: exit status %d\n%s\nwant %s", tt.args, a.code, a.err, tt.want)
	}
	assert.Check(t, strings.Contains(d.scrape(), "tailcam_build_info"))
}

// TestStuckWork: what is past its timeout now is counted, and what has ended is not.
func TestStuckWork(t *testing.T) {
	needRoot(t)
	uid := newUID()
	when := fmt.Sprintf("{uid: %d, comm: sleep}", uid)
	d := start(t, rulesFile(
		"  - {name: asleep, track: offcpu, timeout: 100ms, snapshot: false, when: "+when+"}\n",
		"  - {name: call, track: syscall, attach: all, timeout: 100ms, snapshot: false, when: "+when+"}\n",
		"  - {name: later, track: offcpu, timeout: 1h, snapshot: false, when: "+when+"}\n",
		entry("limit", "wakeup", "1h", "{comm: none}"),
	), "--metrics-listen", "127.0.0.1:0")
	become := func(want map[string]int) {
		t.Helper()
		var text string
		eventually(t, fmt.Sprintf("the stuck work is %v", want), func() bool {
			text = d.scrape()
			for labels, n := range want {
				if !strings.Contains(text, fmt.Sprintf("\ntailcam_stuck_work{%s} %d\n", labels, n)) {
					return false
				}
			}
			return true
		})
		assert.Check(t, !strings.Contains(text, `tailcam_stuck_work{rule="limit"`), "a rule without a timeout has stuck work")
	}
	const asleep, call, later = `rule="asleep",track="offcpu"`, `rule="call",track="syscall"`, `rule="later",track="offcpu"`
	become(map[string]int{asleep: 0, call: 0, later: 0})
	var sleeps []*exec.Cmd
	for range 3 {
		cmd := exec.CommandContext(t.Context(), "sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		assert.NilError(t, child.Start(cmd))
		sleeps = append(sleeps, cmd)
	}
	become(map[string]int{asleep: 3, call: 3, later: 0})
	assert.Check(t, strings.Contains(d.ok("status"), "3 past the timeout now"))
	for i, cmd := range sleeps {
		assert.NilError(t, cmd.Process.Kill())
		assert.Check(t, cmd.Wait() != nil) // killed
		become(map[string]int{asleep: 2 - i, call: 2 - i, later: 0})
	}
}
