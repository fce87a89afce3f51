package api

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// fake answers as a daemon would. It claims nothing about what a daemon finds.
type fake struct {
	*Feed
	fail error
	took chan string // reasons
}

func newFake() *fake { return &fake{Feed: NewFeed(3), took: make(chan string, 8)} }

func (f *fake) Status(context.Context) Status {
	last := "20261120T231502.123456789Z-wakeup-000042"
	return Status{
		Version: "v1", PID: 42, UptimeNS: int64(time.Hour), Kernel: "6.18.0",
		Rules:     f.Rules(),
		Losses:    []Loss{{Cause: "table_full", Tracker: "wakeup", Count: 3, Advice: "raise tracker.pending"}},
		Recorder:  RecorderStatus{Enabled: true, Backend: "perf", SizeBytes: 4 << 20, Groups: []string{"sched"}, Missing: map[string]string{"fexit:a": "refused"}, CPUs: []snapshot.Coverage{{CPU: 0, CoveredNS: 5e9, Covered: 5, EventsPerSecond: 1200.5, BytesPerEvent: 80, CoversAtRateNS: 4e9, Records: 9000, Lost: 1}}},
		Snapshots: SnapshotsStatus{Count: 1, Bytes: 4096, Dir: "/var/lib/tailcam/snapshots", Failed: 2, Last: &last},
	}
}

func (f *fake) Rules() []RuleInfo {
	return []RuleInfo{
		{Name: "wakeup", Track: "wakeup", ThresholdNS: 5e6, Source: "rules.d/wakeup.yaml:2", Seen: 100, Outliers: 2, WorstNS: 9e6, Suppressed: 1},
		{Name: "disk", Track: "block", ThresholdNS: 50e6, Inactive: "no hook", Lost: 4, ActionsSkipped: 5},
	}
}

func (f *fake) Trigger(_ context.Context, req *TriggerRequest) (*Triggered, error) {
	f.took <- req.Reason
	return &Triggered{ID: "one", Dir: "/snapshots/one"}, f.fail
}

func (f *fake) Alert(a *Alert) (wanted, fired int) {
	f.took <- a.Labels["alertname"]
	return 1, 1
}

func (f *fake) Histograms() ([]HistogramInfo, error) {
	var h histogram.Histogram
	h.Add(1000, 3)
	return []HistogramInfo{
		NewHistogram(&h, HistogramInfo{Tracker: "block"}),
		NewHistogram(&h, HistogramInfo{Tracker: "block", Rule: "disk", By: "device", Class: "vda"}),
	}, f.fail
}

func (f *fake) Activities(bool) (*ActivitiesInfo, error) { return &ActivitiesInfo{Count: 7}, f.fail }

func (f *fake) OpenActivities(*activities.Opening) (OpenedActivities, error) {
	return nil, ErrActivitiesDisabled
}

func (f *fake) Snapshots() ([]SnapshotInfo, error) { return nil, f.fail }

func outlier(rule string, delay int64) *events.Outlier {
	return &events.Outlier{
		Time: time.Date(2026, 11, 20, 23, 15, 2, 123456789, time.UTC), Rule: rule, Track: "wakeup",
		Cause: events.CauseThreshold, DelayNS: delay, ThresholdNS: 5e6, Key: map[string]uint64{"tid": 7},
		Task: events.Task{PID: 7, TID: 7, Comm: "victim"}, StartMono: 1, EndMono: 2,
	}
}

// socketPath is short enough for a socket, whatever the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tc")
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "s.sock")
}

// serve runs a server until the test, or stop, ends it.
func serve(t *testing.T, b Backend) (c *Client, stop func()) {
	t.Helper()
	socket, err := Listen(&ListenOptions{Path: socketPath(t)})
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, socket, b, nil) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		assert.Check(t, errors.Join(<-done, socket.Close()), "serve")
	}
	t.Cleanup(stop)
	c = NewClient(socket.Path)
	t.Cleanup(c.Close)
	return c, stop
}
