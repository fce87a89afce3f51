package timeline

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// recorded is a trace.
type recorded []trace.Event

func (e *recorded) Next() (trace.Event, error) {
	if len(*e) == 0 {
		return trace.Event{}, io.EOF
	}
	ev := (*e)[0]
	*e = (*e)[1:]
	return ev, nil
}

// restless is a task that runs 9,000 times for 30 us, and each time waits for 8 us at least for
// one of three others, which have the CPU between: most is running, less than half of all.
func restless() (list recorded, o explain.Outlier) {
	const slow = 100
	at := uint64(1_000_000)
	add := func(from, to int, sw trace.Switch) {
		sw.NextTID, sw.NextPID, sw.Call = to, to, trace.CallNone
		sw.PrevPrio, sw.NextPrio = 120, 120
		list = append(list, trace.Event{Time: at, Type: trace.SchedSwitch, TID: from, Body: sw})
	}
	add(0, slow, trace.Switch{PrevState: 1})
	o = explain.Outlier{Track: "pair", Rule: "restless", TID: slow, PID: slow, Comm: "slow", Start: at + 1}
	for n := range 9000 {
		at += 30_000
		by := slow + 1 + n%3
		add(slow, by, trace.Switch{PrevState: uint32(n % 2)})
		if at += 8_000 + uint64(n%7)*6_000; n%2 == 1 {
			list = append(list, trace.Event{Time: at, Type: trace.SchedWaking, TID: by, Body: trace.Wake{TID: slow, PID: slow, Prio: 120}})
			at += 3_000
		}
		add(by, slow, trace.Switch{PrevState: 1})
	}
	o.End = at
	return list, o
}

// TestMergedPath: of a path with more pieces than are written, the picture has each cause with the
// area that the parts say.
func TestMergedPath(t *testing.T) {
	list, o := restless()
	report, err := explain.Explain(&list, []explain.Outlier{o}, explain.Names{})
	assert.NilError(t, err)
	r := &report.Outliers[0]
	assert.Assert(t, len(r.Path) < 2500, "%d steps", len(r.Path))
	parts := map[string]float64{}
	for i := range r.Parts {
		parts[string(r.Parts[i].Cause)] += float64(r.Parts[i].NS) / float64(r.DelayNS)
	}
	assert.Assert(t, len(parts) >= 3, "%v", parts)
	own := *r // the slow task's row alone
	own.Path = nil
	for i := range r.Path {
		if r.Path[i].Depth == 0 {
			s := r.Path[i]
			s.By = nil
			own.Path = append(own.Path, s)
		}
	}
	var b bytes.Buffer
	assert.NilError(t, SVG(&b, []explain.Result{own}))
	room := (svgWidth - 2*svgMargin - svgLabel) * svgBar
	sums := map[string]float64{}
	for _, x := range bars(t, b.Bytes(), "bar ") {
		sums[strings.TrimPrefix(x.class, "bar ")] += x.width * x.height / room
	}
	for cause, share := range parts {
		assert.Check(t, math.Abs(sums[cause]-share) < 0.02, "%s: %.3f drawn, %.3f true", cause, sums[cause], share)
	}
	var drawn float64
	for _, share := range sums {
		drawn += share
	}
	assert.Check(t, math.Abs(drawn-1) < 0.02, "%.3f of the row is drawn: %v", drawn, sums)
}
