package daemon

import (
	"sync"
	"time"

	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// addUsual adds what delays like these usually are since the daemon started. Outliers of rules
// that are gone, and of trackers that have no histogram, are left as they are.
func (d *daemon) addUsual(list []events.Outlier) {
	if len(list) == 0 {
		return
	}
	h := d.usually.get(time.Now(), d.distributions)
	for i := range list {
		list[i].Usual = d.usual(h, &list[i])
	}
}

// usually keeps what was read of the histograms for a while: many snapshots may come at once,
// and a second more changes nothing.
type usually struct {
	mu sync.Mutex
	at time.Time
	h  *tracker.Histograms
}

// get returns what read has returned a second ago at most.
func (u *usually) get(now time.Time, read func() *tracker.Histograms) *tracker.Histograms {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.h == nil || now.Sub(u.at) >= time.Second {
		u.at, u.h = now, read()
	}
	return u.h
}

func (d *daemon) usual(h *tracker.Histograms, o *events.Outlier) *events.Usual {
	r := d.rule(o.Rule)
	if r == nil || string(r.Track) != o.Track {
		return nil
	}
	all, ok := distributionOf(h, r)
	if !ok {
		return nil
	}
	u := &events.Usual{Of: "tracker", Count: all.Count, MedianNS: int64(all.Quantile(0.5)), P99NS: int64(all.Quantile(0.99))}
	if h.Rules[r.Name] != nil {
		u.Of = "rule"
	}
	return u
}
