package trigger

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// TestSLO: a promise is judged by the window alone and with enough events, fires once
// until it was kept again, and at most once in a window.
func TestSLO(t *testing.T) {
	s := newSLO(&rules.SLOSource{Of: "r", Quantile: 0.99, Below: 20 * time.Millisecond, Over: time.Minute, MinEvents: 1000}, nil)
	var all histogram.Histogram
	all.Add(uint64(time.Second), 1_000_000) // before the first look
	now := time.Now()
	step := func(fast, slow uint64) *Event {
		all.Add(uint64(time.Millisecond), fast)
		all.Add(uint64(50*time.Millisecond), slow)
		now = now.Add(2 * time.Second)
		return s.judge(now, &all)
	}
	assert.Check(t, step(0, 0) == nil, "what was before")
	assert.Check(t, step(800, 100) == nil, "too few events")
	ev := step(100, 0)
	assert.Assert(t, ev != nil)
	assert.Check(t, ev.Time > 40*time.Millisecond && ev.Time < 60*time.Millisecond && ev.Limit == 20*time.Millisecond, "%+v", ev)
	assert.Check(t, strings.HasPrefix(ev.Reason, "p99(r) < 20ms over 1m: it is ") && strings.HasSuffix(ev.Reason, "of 1000 delays"), "%q", ev.Reason)
	for range 40 {
		assert.Check(t, step(90, 10) == nil, "it stays broken")
	}
	for range 40 {
		assert.Check(t, step(100, 0) == nil, "it is kept again")
	}
	fired := 0
	for range 25 { // within one window
		if step(70, 30) != nil {
			fired++
		}
		s.broken = false // as if it had been kept for a moment
	}
	assert.Equal(t, fired, 1)
}

// recorded has a distribution and an outlier. It claims nothing of what a kernel side finds.
type recorded struct {
	h     histogram.Histogram
	worst events.Outlier
	err   error
}

func (r *recorded) Histogram(string) (histogram.Histogram, error) { return r.h, r.err }

func (r *recorded) Worst(_ string, since uint64) *events.Outlier {
	if r.worst.EndMono < since {
		return nil
	}
	return &r.worst
}

// TestSLOTarget: the worst outlier is named, and its time explained if it has just ended.
func TestSLOTarget(t *testing.T) {
	id := "20261123T090000Z-r-000001"
	d := &recorded{worst: events.Outlier{DelayNS: 84e6, Snapshot: &id, Task: events.Task{PID: 8, TID: 9, Comm: "slow"}}}
	s := newSLO(&rules.SLOSource{Of: "r", Over: time.Minute}, d)
	now := linux.Monotonic()
	d.worst.StartMono, d.worst.EndMono = now-uint64(85*time.Millisecond), now-uint64(time.Millisecond)
	ev := &Event{}
	s.name(ev)
	assert.Check(t, ev.Reason == "; the worst outlier took 84ms, see snapshot "+id, "%q", ev.Reason)
	assert.Check(t, ev.Task != nil && ev.Task.TID == 9 && ev.Task.Past && ev.End == d.worst.EndMono, "%+v", ev)
	d.worst.EndMono = now - min(uint64(30*time.Second), now)
	ev = &Event{}
	s.name(ev)
	assert.Check(t, ev.Task == nil && strings.Contains(ev.Reason, id), "%+v", ev)
	d.worst.EndMono = 0
	ev = &Event{}
	s.name(ev)
	assert.Check(t, ev.Task == nil && ev.Reason == "; no outlier of it is remembered" || now < uint64(time.Minute), "%+v", ev)

	d.err = errors.New("no such")
	assert.ErrorContains(t, s.watch(context.Background(), nil), "read the histogram of r: no such")
	s.delays = nil
	assert.ErrorContains(t, s.watch(context.Background(), nil), "there is none")
}
