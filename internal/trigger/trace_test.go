package trigger

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker/events"
)

// TestPeer: an outlier of another host fires each rule that wants it once for a trace, with all
// that this host did for it; nothing does if it did nothing.
func TestPeer(t *testing.T) {
	r := run(t, "", `rules:
  - {name: a, track: trigger, on: trace}
  - {name: b, track: trigger, on: {trace: {host: "web*", rule: [checkout]}}}
  - {name: c, track: trigger, on: {trace: {host: db}}}
`)
	p := &Peer{PeerOutlier: events.PeerOutlier{Host: "web1", ID: "x-1", Rule: "checkout", DelayNS: 5e6, Snapshot: "S"}, TraceID: "t1"}
	for end := time.Now().Add(patience); !r.WantsPeer(p); time.Sleep(time.Millisecond) { // until the engine runs
		assert.Assert(t, time.Now().Before(end))
	}
	wanted, fired := r.Peer(p, nil)
	assert.Check(t, wanted == 2 && fired == 0, "nothing was done for it: %d, %d", wanted, fired)
	did := []Part{{Task: &Task{PID: 1, TID: 2}, SpanID: "s", Begin: 100, End: 300}, {Task: &Task{PID: 1, TID: 3}, Begin: 150, End: 200}}
	wanted, fired = r.Peer(p, did)
	assert.Check(t, wanted == 2 && fired == 2, "%d, %d", wanted, fired)
	wanted, fired = r.Peer(p, did)
	assert.Check(t, wanted == 2 && fired == 0, "again: %d, %d", wanted, fired)
	for _, rule := range []string{"a", "b"} {
		f := <-r.fired
		assert.Check(t, f.Rule.Name == rule && f.Reason == "outlier of rule checkout on host web1 took 5ms, trace t1, snapshot S", "%+v", f.Event)
		assert.Check(t, f.TraceID == "t1" && f.SpanID == "s" && f.Time == 200 && f.End == 300 && *f.Peer == p.PeerOutlier, "%+v", f.Event)
		assert.Check(t, len(f.With) == 1 && f.With[0].Task.TID == 3 && f.With[0].Time == 50, "%+v", f.With)
		s, _ := r.State(rule)
		assert.Check(t, s.Outliers == 2 && s.Seen == 1, "%+v", s)
	}
	other := *p
	other.Host, other.TraceID = "elsewhere", "t2"
	wanted, fired = r.Peer(&other, did)
	assert.Check(t, wanted == 1 && fired == 1, "%d, %d", wanted, fired)
	hostile := Peer{PeerOutlier: events.PeerOutlier{Host: strings.Repeat("\x1b", 1<<20), Rule: strings.Repeat("ä", 1<<20), Snapshot: strings.Repeat("x", 1<<20)}}
	assert.Check(t, len(hostile.event(did).Reason) <= maxNotice+len("…"))
}
