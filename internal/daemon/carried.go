package daemon

import (
	"sync"

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
		past := d.requests.Past(&seen, d.threadsHere, from, to)
		for i := range past {
			list = append(list, newCarried(&past[i]))
		}
		return nil
	})
	return list
}

// threadsHere tells which thread of a process has which id here, 0: none, by the id in its slot, which
// its process may have written: so it is one of its own, also in a pid namespace of its own. Those of
// activities that rules declare (0) are written by the kernel side, as they are here.
func (d *daemon) threadsHere(pid int) func(inside int) int {
	if pid == 0 {
		return func(inside int) int { return inside }
	}
	known := sync.OnceValue(func() map[int]int { return d.hosts.ThreadsHere(pid) })
	return func(inside int) int { return known()[inside] }
}

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
