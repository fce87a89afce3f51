package catalog

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker/events"
)

// TestExplainedByThread: an outlier's task is followed only if it did the work.
func TestExplainedByThread(t *testing.T) {
	task := events.Task{PID: 10, TID: 11, Comm: "me"}
	other := events.Peer{PID: 10, TID: 12, Comm: "\x1bother"}
	for _, c := range []struct {
		name    string
		outlier events.Outlier
		key     bool
		loose   bool
		began   string
	}{
		{name: "tid", outlier: events.Outlier{Track: "pair", Key: map[string]uint64{"tid": 11, "rq": 5}}},
		{name: "another's tid", outlier: events.Outlier{Track: "pair", Key: map[string]uint64{"tid": 12}}, key: true},
		{name: "pid", outlier: events.Outlier{Track: "pair", Key: map[string]uint64{"pid": 10}}, loose: true},
		{name: "pid, by two threads", outlier: events.Outlier{Track: "pair", Key: map[string]uint64{"pid": 10}, EntryTask: &other}, key: true},
		{name: "request", outlier: events.Outlier{Track: "pair", Key: map[string]uint64{"rq": 5}}, key: true},
		{name: "a rule that is not known", outlier: events.Outlier{Track: "pair", Key: map[string]uint64{}}},
		{name: "span", outlier: events.Outlier{Track: "span", Span: &events.SpanInfo{Begin: events.Peer{PID: 10, TID: 11}}}, loose: true},
		{name: "span of two", outlier: events.Outlier{Track: "span", Span: &events.SpanInfo{Begin: other}}, began: "\x1bother 12"},
		{name: "other tracks", outlier: events.Outlier{Track: "block", Key: map[string]uint64{"sector": 5}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.outlier.Task = task
			o := explainOutlier(&c.outlier)
			assert.Check(t, (o.Key != nil) == c.key && o.Loose == c.loose && o.Began == c.began, "%+v", o)
		})
	}
}
