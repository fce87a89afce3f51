package daemon

import (
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
)

// losses lists what happened to a rule's outliers inside the daemon.
func (p *pipeline) losses(rule string, track rules.Track) []api.Loss {
	one := func(cause string, n uint64, advice string) api.Loss {
		return api.Loss{Cause: cause, Rule: rule, Tracker: string(track), Count: n, Advice: advice}
	}
	return []api.Loss{
		one("outlier_dropped", p.dropped.get(rule), "a panic while it was published: see the log, and report it"),
		one("told_late", p.late.get(rule), "published with addresses, 200 ms after they were read, as their names were not known yet; "+
			"the rest followed as completed. If one process has many: exclude it (not_comm), or raise its threshold"),
		one("names_skipped", p.skipped.get(rule), "of these, the names never followed: their process has more outliers than can be named. Exclude it (not_comm), or raise its threshold"),
	}
}

// panics lists the panics of each place, including zeros.
func (d *daemon) panics() []api.PanicInfo {
	var list []api.PanicInfo
	for _, c := range d.guard.Counts() {
		list = append(list, api.PanicInfo{Place: c.Place, Count: c.Count})
	}
	return append(list, api.PanicInfo{Place: "process", Count: d.hosts.Panics()}) // reading about one
}
