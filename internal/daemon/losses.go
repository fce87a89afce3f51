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
		one("outlier_dropped", p.dropped.get(rule), "a panic during publication: see the log, and please report this"),
		one("told_late", p.late.get(rule), "published without names after 200 ms and completed later. "+
			"If one process causes many: exclude it (not_comm), or raise its threshold"),
		one("names_skipped", p.skipped.get(rule), "never completed: the process has too many outliers. Exclude it (not_comm), or raise its threshold"),
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
