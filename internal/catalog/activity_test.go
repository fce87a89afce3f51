package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestTopByActivity: outliers add up by what their thread worked for; a sleep within a slow
// request of the same thread counts once.
func TestTopByActivity(t *testing.T) {
	outlier := func(track string, tid int, start, end uint64, a *events.ActivityInfo) *events.Outlier {
		return &events.Outlier{
			Time: time.Now(), Rule: track, Track: track, StartMono: start, EndMono: end, DelayNS: int64(end - start),
			Task: events.Task{PID: 7, TID: tid, Comm: "web"}, Activity: a, Key: map[string]uint64{"tid": uint64(tid)},
		}
	}
	gold, iron := &events.ActivityInfo{Name: "checkout", Text: "gold"}, &events.ActivityInfo{Name: "checkout", Text: "iron\x1b"}
	seen := []*events.Outlier{
		outlier("activity", 7, 100, 400, gold), outlier("offcpu", 7, 150, 350, gold),
		outlier("syscall", 8, 100, 150, iron), outlier("block", 9, 0, 20, nil), outlier("offcpu", 10, 0, 7, &events.ActivityInfo{Text: "only"}),
	}
	rows := func(by string) (list []string) {
		top := catalog.Add(nil, catalog.TopOptions{By: by, Seen: seen, Boot: "b"})
		assert.Check(t, top.Covered.NS == 377 && top.Covered.Within == 1 && top.Covered.Outliers == 4, "%+v", top.Covered)
		for _, r := range top.Rows {
			list = append(list, fmt.Sprintf("%s %s %d in %d", r.Kind, r.Name, r.NS, r.Outliers))
		}
		return list
	}
	assert.DeepEqual(t, rows(catalog.ByActivity), []string{"activity checkout 350 in 2", "unknown no known activity 20 in 1", "activity only 7 in 1"})
	assert.DeepEqual(t, rows(catalog.ByActivityText), []string{
		"activity-text checkout: gold 300 in 1", "activity-text checkout: iron\x1b 50 in 1", "unknown no known activity 20 in 1", "activity-text only 7 in 1",
	})
}
