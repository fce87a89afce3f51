package daemon

import (
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// addUsual adds what delays like these usually are since the daemon started. Outliers of rules
// that are gone, and of trackers that have no histogram, are left as they are.
func (d *daemon) addUsual(list []events.Outlier) {
	if len(list) == 0 {
		return
	}
	h := d.distributions()
	for i := range list {
		list[i].Usual = d.usual(h, &list[i])
	}
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
