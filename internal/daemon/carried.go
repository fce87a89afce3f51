package daemon

import (
	"github.com/tailcam/tailcam/internal/activities/watch"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/snapshot"
)

// carriedActivities is snapshot.Options.Activities.
func (d *daemon) carriedActivities(from, to uint64) (list []snapshot.CarriedActivity) {
	if d.requests == nil {
		return nil
	}
	_ = d.guard.Do(guard.Activities, func() error { // logs its errors
		seen := watch.Seen{Carried: d.activities.Carried(), Evicted: d.activities.Evicted()}
		d.mu.Lock()
		if d.declaredEntry != nil {
			seen.Others = []watch.Process{opened{d.declaredEntry, d.requests}}
		}
		d.mu.Unlock()
		past := d.requests.Past(&seen, d.sameIDs, from, to)
		for i := range past {
			list = append(list, newCarried(&past[i]))
		}
		return nil
	})
	return list
}

// sameIDs reports whether the slots of a process have ids of threads as they are here: it is in
// the pid namespace of the daemon, or has those that rules declare (0), which the kernel side writes.
func (d *daemon) sameIDs(pid int) bool { return pid == 0 || d.hosts.ThreadInside(pid, pid) == pid }

func newCarried(p *watch.Past) snapshot.CarriedActivity {
	a := snapshot.CarriedActivity{Token: p.ID, Name: p.Name, Text: p.Text, TraceID: p.TraceID, SpanID: p.SpanID}
	for _, s := range p.Stretches {
		a.Carried = append(a.Carried, snapshot.CarriedTime{TID: s.TID, FromMonoNS: s.From, ToMonoNS: s.To})
	}
	for _, e := range p.Evicted {
		a.Evicted = append(a.Evicted, snapshot.EvictedPages{
			TID: e.TID, FromMonoNS: e.From, ToMonoNS: e.To, Pages: e.Pages, ByTID: e.ByTID, EvictedMonoNS: e.At,
		})
	}
	return a
}
