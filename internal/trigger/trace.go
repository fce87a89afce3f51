package trigger

import (
	"context"
	"fmt"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

// Peer is an outlier of another host. All of its texts may be anybody's.
type Peer struct {
	events.PeerOutlier
	TraceID string
}

// Part is what one thread did in a trace.
type Part struct {
	Task       *Task
	SpanID     string
	Begin, End uint64 // in nanoseconds of CLOCK_MONOTONIC
	Activity   *events.ActivityInfo
}

// traces is the source of rules that Peer fires.
type traces struct{}

func (traces) watch(ctx context.Context, _ func(*Event)) error {
	<-ctx.Done()
	return nil
}

func (traces) close() {}

// WantsPeer reports whether a rule is watched that reports an outlier of that rule on that
// host.
func (e *Engine) WantsPeer(p *Peer) bool { return len(e.peerWatches(p)) > 0 }

func (e *Engine) peerWatches(p *Peer) (list []*watch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.list {
		r := &e.list[i]
		if w := e.watches[r.Name]; w != nil && r.Trigger.Trace != nil && r.Trigger.Trace.Matches(p.Host, p.Rule) {
			list = append(list, w)
		}
	}
	return list
}

// Peer passes what this host did in the trace of another one's outlier to the rules that
// want it. Each takes the same trace once. It reports how many want it, and how many fired
// now.
func (e *Engine) Peer(p *Peer, did []Part) (wanted, fired int) {
	list := e.peerWatches(p)
	if len(did) == 0 {
		return len(list), 0
	}
	for _, w := range list {
		w.mu.Lock()
		fresh := w.seen.isNew(p.TraceID)
		w.mu.Unlock()
		if fresh && e.fire(w, p.event(did)) {
			fired++
		}
	}
	return len(list), fired
}

// event is what rules report of an outlier of another host.
func (p *Peer) event(did []Part) (first *Event) {
	reason := fmt.Sprintf("outlier of rule %s on host %s took %s, trace %s", notice(p.Rule), notice(p.Host),
		time.Duration(p.DelayNS).Round(time.Microsecond), p.TraceID)
	if p.Snapshot != "" {
		reason += ", snapshot " + p.Snapshot
	}
	about := p.PeerOutlier
	for i := range did {
		d := &did[i]
		ev := &Event{
			Reason: notice(reason), Time: time.Duration(d.End - min(d.Begin, d.End)), End: d.End, Task: d.Task,
			TraceID: p.TraceID, SpanID: d.SpanID, Activity: d.Activity, Peer: &about,
		}
		if first == nil {
			first = ev
		} else {
			first.With = append(first.With, ev)
		}
	}
	return first
}
