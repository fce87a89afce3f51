package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/action"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// daemon is a Source that says what a test wants.
type daemon struct {
	status     api.Status
	histograms []api.HistogramInfo
	err        error
	panics     bool
}

func (d *daemon) Status(context.Context) api.Status {
	if d.panics {
		panic("a status that cannot be read")
	}
	return d.status
}
func (d *daemon) Histograms() ([]api.HistogramInfo, error) { return d.histograms, d.err }
func (d *daemon) ActionStats() action.Stats {
	return action.Stats{
		Succeeded: map[string]uint64{"wakeup": 5}, Failed: map[string]uint64{"wakeup": 3}, TimedOut: map[string]uint64{"wakeup": 1},
	}
}
func (d *daemon) SnapshotStats() snapshot.Stats {
	return snapshot.Stats{Skipped: map[string]uint64{"wakeup": 2}}
}

// busy is a daemon that has something of everything.
func busy() *daemon {
	var h histogram.Histogram
	for _, ns := range []uint64{0, 953, 954, 5e6, 5e6, 48e6, 200e9} {
		h.Add(ns, 1)
	}
	return &daemon{
		status: api.Status{
			Version: "test",
			Rules: []api.RuleInfo{
				{Name: "wakeup", Track: "wakeup", ThresholdNS: 5e6, TimeoutNS: 1e9, Stuck: new(3), WorstNS: 48e6, Suppressed: 4},
				{Name: "quiet", Inactive: "no hook", Storm: &api.StormInfo{}},
			},
			Losses: []api.Loss{
				{Cause: "table_full", Rule: "wakeup", Tracker: "wakeup", Count: 1},
				{Cause: "entry_replaced", Tracker: "wakeup", Count: 2},
				{Cause: "entry_replaced", Tracker: "offcpu", Count: 3},
				{Cause: "helper_stuck", Count: 1},
				{Cause: "snapshot_unremovable", Count: 2},
			},
			OTLP:     &api.OTLPStatus{Waiting: 2, SpoolBytes: 4096, Requests: []api.OTLPRequests{{Signal: "logs", Result: "failed", Count: 1}}},
			Upload:   &api.UploadStatus{Waiting: 3, WaitingBytes: 512, Sent: 5, Existed: 1, SentBytes: 4096, Failed: 2},
			Panics:   []api.PanicInfo{{Place: "decode", Count: 1}},
			Recorder: api.RecorderStatus{Enabled: true, CPUs: []snapshot.Coverage{{CoveredNS: 7e9, Records: 10, Lost: 1}, {CPU: 1, CoveredNS: 2e9, Records: 20}}},
			Tables:   []api.TableStatus{{Name: "tasks", Slots: 64, Used: 10}},
			Snapshots: api.SnapshotsStatus{Count: 3, Bytes: 4096, Pinned: 1, Removed: map[string]uint64{"count": 7},
				Boost: &api.BoostStatus{Priority: "nice", Raised: true, Completed: 5, Expired: 1, Refused: 2, CPUNS: 3e8}},
			Cost: &api.CostStatus{CPU: 0.004, BudgetCPU: 0.02, Programs: []api.ProgramCost{
				{Program: "sched_switch", CPU: 0.002, Measured: true, MeasuredNS: 2e9, AssumedNS: 5e8},
			}},
		},
		histograms: []api.HistogramInfo{
			api.NewHistogram(&h, api.HistogramInfo{Tracker: "wakeup"}),
			api.NewHistogram(&h, api.HistogramInfo{Tracker: "activity", By: api.ByName, Class: "check\x1b[2J\"out"}),
			api.NewHistogram(&h, api.HistogramInfo{Tracker: "activity", By: api.ByName, Class: `check\x1b[2J"out`}), // the same when it is shown
			api.NewHistogram(&h, api.HistogramInfo{Rule: "wakeup", Tracker: "wakeup"}),
			api.NewHistogram(&h, api.HistogramInfo{Rule: "wakeup", Tracker: "wakeup", By: "cgroup", Class: "/a"}),
		},
	}
}

// outlier is one of rule wakeup with an explained snapshot.
func outlier(cause events.Cause, delayNS int64) events.Outlier {
	id := "20261120T231502.123456789Z-wakeup-000042"
	return events.Outlier{
		Rule: "wakeup", Cause: cause, DelayNS: delayNS, Time: time.Unix(1, 0), Snapshot: &id,
		Explained: &events.Explained{Cause: "preempted", By: "hog", ByKind: "task", NS: delayNS / 2},
	}
}

// tallied is a tally of one of each.
func tallied() *Tally {
	t := NewTally()
	o := outlier(events.CauseThreshold, 48e6)
	t.Outlier(&o)
	t.Snapshot(&snapshot.Done{ID: *o.Snapshot, Dir: "/", Outliers: []events.Outlier{o}})
	t.Snapshot(&snapshot.Done{Err: errors.New("disk full"), Outliers: []events.Outlier{o}})
	t.Snapshot(&snapshot.Done{ID: "x", Dir: "/"})
	t.Reload(errors.New("bad rules"))
	return t
}

// families gathers a registry, and counts the series of all families.
func families(t *testing.T, g prometheus.Gatherer) (byName map[string]*dto.MetricFamily, series int) {
	t.Helper()
	list, err := g.Gather()
	assert.NilError(t, err)
	byName = map[string]*dto.MetricFamily{}
	for _, f := range list {
		byName[f.GetName()] = f
		series += len(f.GetMetric())
	}
	return byName, series
}

// exposed is what a scrape in the text format prints.
func exposed(t *testing.T, g prometheus.Gatherer, format expfmt.FormatType) string {
	t.Helper()
	list, err := g.Gather()
	assert.NilError(t, err)
	var b strings.Builder
	e := expfmt.NewEncoder(&b, expfmt.NewFormat(format))
	for _, f := range list {
		assert.NilError(t, e.Encode(f))
	}
	return b.String()
}

func TestValues(t *testing.T) {
	text := exposed(t, NewRegistry(busy(), tallied(), nil), expfmt.TypeTextPlain)
	for _, line := range []string{
		`tailcam_delay_seconds_bucket{track="wakeup",le="9.5367431640625e-07"} 2`,
		`tailcam_delay_seconds_bucket{track="wakeup",le="0.00390625"} 3`,
		`tailcam_delay_seconds_bucket{track="wakeup",le="0.0078125"} 5`,
		`tailcam_delay_seconds_bucket{track="wakeup",le="64"} 6`,
		`tailcam_delay_seconds_bucket{track="wakeup",le="+Inf"} 7`,
		`tailcam_delay_seconds_sum{track="wakeup"} 200.058001907`,
		`tailcam_rule_delay_seconds_count{class="/a",rule="wakeup"} 7`,
		`tailcam_outliers_total{cause="threshold",rule="wakeup"} 1`,
		`tailcam_outliers_total{cause="timeout",rule="quiet"} 0`,
		`tailcam_outlier_seconds_total{cause="threshold",rule="wakeup"} 0.048`,
		`tailcam_blamed_seconds_total{cause="preempted",culprit="task",rule="wakeup"} 0.024`,
		`tailcam_rule_threshold_seconds{rule="wakeup"} 0.005`,
		`tailcam_rule_active{rule="wakeup"} 1`,
		`tailcam_rule_active{rule="quiet"} 0`,
		`tailcam_rule_paused{rule="quiet"} 1`,
		`tailcam_rule_worst_seconds{rule="wakeup"} 0.048`,
		`tailcam_stuck_work{rule="wakeup",track="wakeup"} 3`,
		`tailcam_snapshots_total{result="written",rule="wakeup"} 1`,
		`tailcam_snapshots_total{result="failed",rule="wakeup"} 1`,
		`tailcam_snapshots_total{result="written",rule=""} 1`,
		`tailcam_snapshots_total{result="limited",rule="wakeup"} 4`,
		`tailcam_snapshots_total{result="skipped",rule="wakeup"} 2`,
		`tailcam_snapshots_stored 3`,
		`tailcam_snapshot_bytes 4096`,
		`tailcam_snapshots_pinned 1`,
		`tailcam_snapshots_removed_total{limit="count"} 7`,
		`tailcam_snapshots_removed_total{limit="age"} 0`,
		`tailcam_snapshots_unremovable 2`,
		`tailcam_snapshot_boosted 1`,
		`tailcam_snapshot_boosts_total{result="completed"} 5`,
		`tailcam_snapshot_boosts_total{result="expired"} 1`,
		`tailcam_snapshot_boosts_total{result="refused"} 2`,
		`tailcam_snapshot_boost_cpu_seconds_total 0.3`,
		`tailcam_snapshot_duration_seconds_count 1`,
		`tailcam_lost_total{cause="table_full",rule="wakeup"} 1`,
		`tailcam_lost_total{cause="entry_replaced",rule=""} 5`,
		`tailcam_recorder_coverage_seconds 2`,
		`tailcam_recorder_records_total 30`,
		`tailcam_recorder_lost_total 1`,
		`tailcam_table_entries{table="tasks"} 10`,
		`tailcam_table_capacity{table="tasks"} 64`,
		`tailcam_overhead_ratio 0.004`,
		`tailcam_budget_ratio 0.02`,
		`tailcam_program_seconds_total{price="measured",program="sched_switch"} 2`,
		`tailcam_program_seconds_total{price="assumed",program="sched_switch"} 0.5`,
		`tailcam_actions_total{result="succeeded",rule="wakeup"} 5`,
		`tailcam_actions_total{result="failed",rule="wakeup"} 2`,
		`tailcam_actions_total{result="timed_out",rule="wakeup"} 1`,
		`tailcam_panics_total{place="decode"} 1`,
		`tailcam_helpers_stuck 1`,
		`tailcam_otlp_requests_total{result="failed",signal="logs"} 1`,
		`tailcam_otlp_outliers_waiting 2`,
		`tailcam_otlp_spool_bytes 4096`,
		`tailcam_reload_total{result="failed"} 1`,
		`tailcam_reload_last_successful 0`,
	} {
		assert.Check(t, strings.Contains(text, "\n"+line+"\n"), "missing: %s", line)
	}
	if t.Failed() {
		t.Log(text)
	}
	open := exposed(t, NewRegistry(busy(), tallied(), nil), expfmt.TypeOpenMetrics)
	want := `tailcam_outliers_total{cause="threshold",rule="wakeup"} 1.0 # {snapshot_id="20261120T231502.123456789Z-wakeup-000042"} 1.0 1.0`
	assert.Check(t, strings.Contains(open, want), "missing: %s", want)
}

// TestExemplarWithTrace: the trace is beside its snapshot, if there is room for both.
func TestExemplarWithTrace(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, id := range []string{"short", strings.Repeat("l", 100)} {
		tally, o := NewTally(), outlier(events.CauseThreshold, 48e6)
		o.TraceID, o.SpanID = trace, "00f067aa0ba902b7"
		tally.Outlier(&o)
		tally.Snapshot(&snapshot.Done{ID: id, Dir: "/", Outliers: []events.Outlier{o}})
		open := exposed(t, NewRegistry(busy(), tally, nil), expfmt.TypeOpenMetrics)
		_, exemplar, _ := strings.Cut(open, `tailcam_outliers_total{cause="threshold",rule="wakeup"} 1.0 # {`)
		labels, _, _ := strings.Cut(exemplar, "} 1.0 1.0\n")
		got := strings.Split(labels, ",") // in any order
		slices.Sort(got)
		want := []string{`snapshot_id="` + id + `"`, `trace_id="` + trace + `"`}
		if id != "short" {
			want = want[:1]
		}
		assert.Check(t, is.DeepEqual(got, want))
	}
}

// TestNative: each delay is in the bucket that native histograms of schema 3 have for it.
func TestNative(t *testing.T) {
	values := []uint64{0, 0, 1, 2, 953, 954, 5e6, 5e6, 5e6, 48e6, 999_999_999, 1e9, 1e9 + 1, 1_090_507_732, 1_090_507_733, 200e9}
	var h histogram.Histogram
	want := map[int]int64{}
	for _, ns := range values {
		h.Add(ns, 1)
		if ns > 0 { // its bucket is (2^((n-1)/8), 2^(n/8)] s
			n := int(math.Ceil(8 * math.Log2(float64(ns)/1e9)))
			want[n]++
		}
	}
	info := api.NewHistogram(&h, api.HistogramInfo{})
	var counts delayCounts
	counts.add(&info)
	var m dto.Metric
	assert.NilError(t, counts.metric(delays, "wakeup").Write(&m))
	n := m.GetHistogram()
	assert.Check(t, n.GetSchema() == 3 && n.GetZeroCount() == 2 && n.GetSampleCount() == uint64(len(values)))
	got := map[int]int64{}
	index, count := 0, int64(0)
	deltas := n.GetPositiveDelta()
	for _, span := range n.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			count, deltas = count+deltas[0], deltas[1:]
			got[index] = count
			index++
		}
	}
	assert.Check(t, is.DeepEqual(want, got))
	assert.Check(t, is.Len(deltas, 0))

	// One without delays is native, too: it has a bucket of zero.
	m.Reset()
	assert.NilError(t, new(delayCounts).metric(delays, "wakeup").Write(&m))
	assert.Check(t, m.GetHistogram().GetZeroThreshold() > 0 && m.GetHistogram().ZeroCount != nil)
}

// TestDocumented: docs/metrics.md has each metric with its type, unit and labels, and
// no other; and a scrape has all of them.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	assert.NilError(t, err)
	row := regexp.MustCompile("(?m)^\\| `(tailcam_[a-z_]+)` \\| (\\w+) \\| (\\w*) ?\\| ([^|]*?) ?\\| ")
	documented := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		unit := ""
		for _, u := range []string{"seconds", "bytes"} {
			if strings.HasSuffix(strings.TrimSuffix(m[1], "_total"), "_"+u) {
				unit = u
			}
		}
		assert.Check(t, is.Equal(unit, m[3]), "unit of %s", m[1])
		documented[m[1]] = m[2] + " " + strings.NewReplacer("`", "", " ", "").Replace(m[4])
	}
	defined := map[string]string{"tailcam_snapshot_duration_seconds": "histogram "}
	for _, d := range list() {
		defined[d.name] = strings.ToLower(d.kind.String()) + " " + strings.Join(d.labels, ",")
	}
	assert.Check(t, is.DeepEqual(defined, documented))

	got, _ := families(t, NewRegistry(busy(), tallied(), nil))
	for name, f := range got {
		if !strings.HasPrefix(name, namespace) {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		kind, want, _ := strings.Cut(defined[name], " ")
		assert.Check(t, is.Equal(kind, strings.ToLower(f.GetType().String())), "type of %s", name)
		for l := range strings.SplitSeq(want, ",") {
			assert.Check(t, want == "" || is.Contains(labels, l)().Success(), "%s lacks label %s", name, l)
		}
		delete(defined, name)
	}
	assert.Check(t, is.Len(defined, 0), "documented, but not in a scrape with something of everything")
}

// TestCardinality: whatever processes and cgroups call themselves, the series stay.
func TestCardinality(t *testing.T) {
	d, tally := busy(), tallied()
	r := NewRegistry(d, tally, nil)
	_, before := families(t, r)
	for i := range 10000 {
		o := outlier(events.CauseThreshold, 1e6)
		o.Task.Comm = fmt.Sprintf("evil\"\n\xff%d", i)
		o.Explained.By, o.Task.PID, o.Task.Cgroup = o.Task.Comm, i, o.Task.Comm
		tally.Outlier(&o)
		tally.Snapshot(&snapshot.Done{ID: *o.Snapshot, Dir: "/", Outliers: []events.Outlier{o}})
	}
	_, after := families(t, r)
	assert.Check(t, is.Equal(before, after))

	// Also if an explanation had causes and kinds without bound.
	for i := range 10000 {
		o := outlier(events.CauseThreshold, 1e6)
		o.Explained.Cause, o.Explained.ByKind = fmt.Sprint("cause", i), fmt.Sprint("kind", i)
		tally.Snapshot(&snapshot.Done{ID: *o.Snapshot, Dir: "/", Outliers: []events.Outlier{o}})
	}
	got, _ := families(t, r)
	assert.Check(t, len(got["tailcam_blamed_seconds_total"].GetMetric()) <= maxBlamed+1)

	// Classes: 256 cgroups, with names that are long, invalid or the same.
	d.histograms = d.histograms[:2]
	var h histogram.Histogram
	h.Add(5e6, 1)
	for i := range 256 {
		name := "/" + strings.Repeat("é", i*3) + fmt.Sprintf("\xff\n%d", i/2)
		d.histograms = append(d.histograms, api.NewHistogram(&h, api.HistogramInfo{Rule: "wakeup", Tracker: "wakeup", By: "cgroup", Class: name}))
	}
	for range 3 {
		got, _ = families(t, r)
		parts := got["tailcam_rule_delay_seconds"].GetMetric()
		assert.Check(t, is.Equal(len(parts), maxClasses))
		var sum uint64
		for _, m := range parts {
			sum += m.GetHistogram().GetSampleCount()
		}
		assert.Check(t, is.Equal(sum, uint64(256)))
	}

	// Rules that come and go.
	for i := range 100 {
		d.status.Rules = []api.RuleInfo{{Name: fmt.Sprint("rule-", i)}}
		d.histograms = []api.HistogramInfo{api.NewHistogram(&h, api.HistogramInfo{Rule: fmt.Sprint("rule-", i), Tracker: "wakeup"})}
		o := outlier(events.CauseThreshold, 1e6)
		o.Rule = fmt.Sprint("rule-", i)
		tally.Outlier(&o)
		families(t, r)
	}
	assert.Check(t, len(tally.rules) <= 2, "%d rules are remembered", len(tally.rules)) // the last one, and snapshots by hand
}

// TestClassesAreSteady: a class that is in other stays there, so that no counter
// decreases when another class is gone.
func TestClassesAreSteady(t *testing.T) {
	c := newClasses()
	parts := func(from, to int) (list []*api.HistogramInfo) {
		for i := from; i < to; i++ {
			list = append(list, &api.HistogramInfo{By: "device", Class: fmt.Sprintf("sd%d", i), Count: 1})
		}
		return list
	}
	first := c.divide(parts(0, 20))
	assert.Check(t, first["sd14"] != nil && first["sd15"] == nil && first[other].count == 5)
	for range 2 {
		then := c.divide(parts(5, 30)) // five are gone, and ten are new
		assert.Check(t, then["sd5"] != nil && then["sd15"] == nil && then["sd19"] == nil && then["sd24"] != nil && then["sd25"] == nil)
		assert.Check(t, is.Equal(then[other].count, uint64(10)))
	}
}

// TestSourceFails: what can be read is shown, and the scrape says that there is more.
func TestSourceFails(t *testing.T) {
	d := busy()
	d.err = errors.New("no histograms")
	list, err := NewRegistry(d, tallied(), nil).Gather()
	assert.ErrorContains(t, err, "no histograms")
	assert.Check(t, len(list) > 20)
	d.panics = true
	g := guard.New(nil)
	list, err = NewRegistry(d, tallied(), g).Gather()
	assert.ErrorContains(t, err, "panic in scrape")
	assert.Check(t, len(list) > 0) // of the process
	for _, c := range g.Counts() {
		assert.Check(t, c.Place != "scrape" || c.Count == 1)
	}
}

func needPromtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool (apt install prometheus)")
	}
	return path
}

// TestPromtool: Prometheus's own linter has nothing to say about names and help.
func TestPromtool(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), needPromtool(t), "check", "metrics")
	cmd.Stdin = strings.NewReader(exposed(t, NewRegistry(busy(), tallied(), nil), expfmt.TypeTextPlain))
	out, err := cmd.CombinedOutput()
	assert.Check(t, err == nil && len(out) == 0, "promtool check metrics: %v\n%s", err, out)
}

// TestAlerts: the shipped alerting rules fire when they should, and name metrics
// that exist.
func TestAlerts(t *testing.T) {
	const dir = "../../configs/prometheus"
	rules, err := os.ReadFile(dir + "/alerts.yaml")
	assert.NilError(t, err)
	namesExist(t, string(rules))
	cmd := exec.CommandContext(t.Context(), needPromtool(t), "test", "rules", "alerts_test.yaml")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	assert.Check(t, err, "%s", out)
}

// namesExist holds that every metric in a text is one of the daemon's.
func namesExist(t *testing.T, text string) {
	t.Helper()
	known := map[string]bool{namespace + "snapshot_duration_seconds": true}
	for _, d := range list() {
		known[d.name] = true
	}
	for _, name := range regexp.MustCompile(`tailcam_[a-z_]+`).FindAllString(text, -1) {
		assert.Check(t, known[strings.TrimSuffix(name, "_bucket")], "there is no metric %s", name)
	}
}

// TestDashboard: panels have ids of their own and do not overlap, and name metrics
// that exist. That their queries have results is tested with a Prometheus.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../configs/grafana/tailcam.json")
	assert.NilError(t, err)
	var dashboard struct {
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ H, W, X, Y int }
			Targets     []struct{ RefID, Expr string }
		}
	}
	assert.NilError(t, json.Unmarshal(text, &dashboard))
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		assert.Check(t, ids[p.ID] == "", "%s and %s have the same id", ids[p.ID], p.Title)
		ids[p.ID] = p.Title
		assert.Check(t, p.Type == "row" || len(p.Targets) > 0, "%s shows nothing", p.Title)
		assert.Check(t, p.GridPos.X+p.GridPos.W <= 24, "%s is too wide", p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Check(t, cells[cell] == "", "%s overlaps %s", p.Title, cells[cell])
				cells[cell] = p.Title
			}
		}
		for _, q := range p.Targets {
			assert.Check(t, q.RefID != "" && q.Expr != "", p.Title)
			namesExist(t, q.Expr)
		}
	}
}
