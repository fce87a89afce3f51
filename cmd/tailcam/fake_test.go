package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/schema"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// fake answers as a daemon would. It claims nothing about what a daemon finds.
type fake struct {
	*api.Feed
	dir, dirID string      // of snapshots
	subscribed chan string // one send each reader that follows
}

func (f *fake) Status(context.Context) api.Status {
	last := "20261120T231502.123456789Z-wakeup-000042"
	return api.Status{
		Version: "v1", PID: 42, UptimeNS: int64(time.Hour), Kernel: "6.18.0",
		Rules: f.Rules(),
		Losses: []api.Loss{
			{Cause: "table_full", Tracker: "wakeup", Count: 1234, Advice: "raise tracker.pending"},
			{Cause: "ring_full", Rule: "disk", Advice: "raise tracker.ring"},
		},
		Recorder: api.RecorderStatus{Enabled: true, Backend: "perf", SizeBytes: 4 << 20, Groups: []string{"sched", "throttle"}, Missing: map[string]string{"fexit:throttle_cfs_rq": "refused"}, CPUs: []snapshot.Coverage{
			{CPU: 0, CoveredNS: 5e9, EventsPerSecond: 1200.5, BytesPerEvent: 80, CoversAtRateNS: 4e9, Records: 9000, Lost: 1},
			{CPU: 1, CoveredNS: 61e9, EventsPerSecond: 3, BytesPerEvent: 80, CoversAtRateNS: 1600e9, Records: 12},
		}},
		Cost: &api.CostStatus{
			CPU: 0.0123, BudgetCPU: 0.01, CPUs: 2, Daemon: 0.001, Measured: true, PriceNS: 3e9, MemoryBytes: 64 << 20, BudgetMemory: 256 << 20,
			Parts: []api.CostPart{{Part: "group sched", CPU: 0.004}, {Part: "group block"}, {Part: "group irq", CPU: 0.003, Shed: true}, {Part: "histograms", CPU: 0.001, Shed: true}},
			Shed: []api.ShedInfo{
				{Part: "group irq", Since: time.Unix(0, 0), Why: "it cost too much"}, {Part: "histograms", Since: time.Unix(0, 0), Why: "it cost too much"},
			},
		},
		Snapshots: api.SnapshotsStatus{Count: 1, Bytes: 4096, Dir: f.dir, DirID: f.dirID, Failed: 2, Last: &last,
			Pinned: 1, Removed: map[string]uint64{"count": 1200, "age": 3, "bytes": 0}, Keep: &api.KeepInfo{Count: 4, Bytes: 1 << 30, Worst: 3},
			Boost: &api.BoostStatus{Priority: "sched_rr", Raised: true, Completed: 40, Expired: 2, Refused: 7, CPUNS: 3e9}},
		Activities: &api.ActivitiesStatus{Publishers: 5, Processes: 3, LiveTokens: 1200, Threads: 40, Bytes: 2 << 20, Refused: 1, TokensRefused: 7},
	}
}

func (f *fake) Rules() []api.RuleInfo {
	return []api.RuleInfo{
		{Name: "wakeup", Track: "wakeup", ThresholdNS: 5e6, Source: "wakeup.yaml:2", Seen: 1234567, Outliers: 2, WorstNS: 9e6, Suppressed: 1},
		{Name: "disk", Track: "block", ThresholdNS: 50e6, Source: "disk.yaml:2", Inactive: "no hook block_rq_issue", Lost: 4, ActionsSkipped: 5},
	}
}

func (f *fake) Histograms() ([]api.HistogramInfo, error) {
	var h, other histogram.Histogram
	for ns := uint64(1000); ns < 100_000_000; ns += ns / 4 {
		h.Add(ns, 100_000_000/ns)
	}
	other.Add(3, 2)
	return []api.HistogramInfo{
		api.NewHistogram(&h, api.HistogramInfo{Tracker: "block"}),
		api.NewHistogram(&h, api.HistogramInfo{Tracker: "block", Rule: "disk", Undecided: 7}),
		api.NewHistogram(&h, api.HistogramInfo{Tracker: "block", Rule: "disk", By: "device", Class: "vda"}),
		api.NewHistogram(&other, api.HistogramInfo{Tracker: "block", Rule: "disk", By: "device", Class: "other"}),
	}, nil
}

// Activities has hostile names.
func (f *fake) Activities(ended bool) (*api.ActivitiesInfo, error) {
	var h histogram.Histogram
	h.Add(10e6, 990)
	h.Add(300e6, 10)
	about := api.NewHistogram(&h, api.HistogramInfo{})
	info := &api.ActivitiesInfo{
		Processes: 1, LiveCount: 1, Count: 1000, Missed: 3, IntervalNS: 100e6,
		Live: []api.ActivityInfo{{
			ID: "1.300.7", Name: "live\x1b[2J", Live: true, ElapsedNS: 5e6, PID: 7, Comm: "victim", Values: map[string]uint64{"wall_ns": 5e6, "cpu_ns": 5e6},
		}},
		Names: []api.ActivityTotals{{
			Name: "checkout", UID: 1000, Count: h.Count, P50NS: about.P50NS, P99NS: about.P99NS, MaxNS: h.Max, SumNS: h.Sum, Buckets: about.Buckets,
			Values: map[string]uint64{"wall_ns": 13e9, "cpu_ns": 9e9, "blocked_ns": 4e9, "blocked_disk_ns": 4e9},
		}},
	}
	info.Shared = []api.SharedInfo{{PID: 7, Comm: "victim\x1b[31m", MachineNS: 3e6, Late: 5, Values: map[string]uint64{"writeback_bytes": 2 << 20}}}
	if !ended {
		return info, nil
	}
	activity := func(id, text string, elapsed, disk uint64) api.ActivityInfo {
		return api.ActivityInfo{
			ID: id, Name: "checkout", Text: text, ElapsedNS: int64(elapsed), PID: 7, UID: 1000, Comm: "victim\x1b[31m", Unit: "shop.service", TraceID: "t" + id,
			Values: map[string]uint64{"wall_ns": elapsed, "cpu_ns": elapsed - disk, "blocked_ns": disk, "blocked_disk_ns": disk, "block_bytes": disk},
		}
	}
	info.Ended = []api.ActivityInfo{
		activity("1.300.1", "gold", 300e6, 290e6), activity("1.301.1", "gold", 10e6, 1e6), activity("1.302.1", "\u202eevil", 11e6, 2e6),
	}
	return info, nil
}

func (f *fake) Subscribe(rule, after string) (*api.Subscription, error) {
	s, err := f.Feed.Subscribe(rule, after)
	f.subscribed <- rule
	return s, err
}

func (f *fake) Alert(*api.Alert) (wanted, fired int) { return 0, 0 }

func (f *fake) Trigger(_ context.Context, req *api.TriggerRequest) (*api.Triggered, error) {
	if req.Reason == "full" {
		return nil, errors.New("disk full: free some space")
	}
	return &api.Triggered{ID: "one", Dir: "/snapshots/\x1b[31mone"}, nil
}

func (f *fake) OpenActivities(*activities.Opening) (api.OpenedActivities, error) {
	return nil, api.ErrActivitiesDisabled
}

func (f *fake) Snapshots() ([]api.SnapshotInfo, error) {
	at := time.Date(2026, 11, 20, 23, 15, 2, 123456789, time.UTC)
	return []api.SnapshotInfo{
		{ID: "a", Time: at, Rule: "wakeup", DelayNS: 9e6, Bytes: 4096, Dir: "/snapshots/a", Kept: "worst"},
		{ID: "b", Time: at, Reason: "because", Bytes: 1 << 20, Dir: "/snapshots/b", Pinned: true, Kept: "pinned"},
	}, nil
}

func outlier(rule string, delay int64) *events.Outlier {
	return &events.Outlier{
		Time: time.Date(2026, 11, 20, 23, 15, 2, 123456789, time.UTC), Rule: rule, Track: "wakeup",
		Cause: events.CauseThreshold, DelayNS: delay, ThresholdNS: 5e6, Key: map[string]uint64{"tid": 7},
		Task: events.Task{PID: 7, TID: 7, Comm: "victim"}, CPU: 1, EntryCPU: 1,
		Stacks: events.Stacks{Kernel: []string{"schedule+0x1"}},
	}
}

// serve runs a daemon's socket until the test ends.
func serve(t *testing.T) (f *fake, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tc") // t.TempDir may be too long for a socket
	assert.NilError(t, err)
	s, err := api.Listen(&api.ListenOptions{Path: filepath.Join(dir, "s.sock")})
	assert.NilError(t, err)
	f = &fake{Feed: api.NewFeed(10), dir: "/no/such/snapshots", subscribed: make(chan string, 8)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- api.Serve(ctx, s, f, nil) }()
	t.Cleanup(func() {
		cancel()
		assert.Check(t, errors.Join(<-done, s.Close(), os.RemoveAll(dir)))
	})
	return f, s.Path
}

// testDeps read real rule files and pretend the rest.
func testDeps() deps {
	p := newDeps()
	p.checkActivities = func([]string) error { return nil }
	p.checkLoad = func(context.Context, []rules.Rule) ([]string, error) { return nil, nil }
	return p
}

// invoke runs one command line as main does.
func invoke(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	t.Setenv("TZ", "UTC")
	var out, err bytes.Buffer
	status = execute(context.Background(), newCLI(&out, &err, testDeps()), args)
	s := out.String() + err.String()
	assert.Check(t, !strings.Contains(s, "\x1b"),
		"%q: an escape sequence, although nothing here is a terminal: %q", args, s)
	return status, out.String(), err.String()
}

// statusOf is the status of a command line that ends with an error: usage errors are those
// that name a flag or an argument, and no snapshot or file.
func statusOf(stderr string) int {
	for _, s := range []string{"missing argument", "takes", "invalid --by", "invalid --count", "invalid --format", "invalid --outlier: "} {
		if strings.Contains(stderr, s) {
			return exitUsage
		}
	}
	return exitError
}

// isJSONLines checks that each line is one object, as its schema says, and returns how many there are.
func isJSONLines(t *testing.T, s string) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(s) {
		_, err := schema.Check(schemaDir, []byte(line))
		assert.Check(t, err)
		n++
	}
	return n
}
