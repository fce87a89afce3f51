package fleet

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// maxReleases is how many releases are looked at, the newest ones.
	maxReleases = 1000
	// riseFactor is how much more slow time per hour a rise is.
	riseFactor = 2
	// riseOutliers is how many outliers a rise has at least, and riseTime for how long
	// the releases before it were seen, over all hosts.
	riseOutliers = 3
	riseTime     = time.Hour
)

// Rise is the release with which the slow time of a Row rose: the time per hour and
// host was at least twice that of the releases before. It came with that release,
// which need not be the reason.
type Rise struct {
	Of      Key       `json:"of"` // release, kernel, version
	Release string    `json:"release"`
	First   time.Time `json:"first"` // when the release was first seen
	New     bool      `json:"new"`   // there was none before
	// NS per hour of a host before that release, and from it on.
	BeforeNSPerHour int64 `json:"before_ns_per_hour"`
	AfterNSPerHour  int64 `json:"after_ns_per_hour"`
	Before          int64 `json:"before"` // outliers
	After           int64 `json:"after"`
	HostsBefore     int64 `json:"hosts_before"` // that ran releases before; a host counts for each of them
	HostsAfter      int64 `json:"hosts_after"`
}

// exposure is for how long a release was seen: on each host, from its first outlier
// with that release to its last one.
type exposure struct {
	release string
	hosts   int64
	time    time.Duration // over all hosts
	first   time.Time
}

// change is the time of one name with one release.
type change struct {
	name, release string
	ns, outliers  int64
}

// findRises sets Rise of each row.
func (f *Fleet) findRises(ctx context.Context, q *Query, top *Top) error {
	releases, err := f.engine.exposure(ctx, q)
	if err != nil || len(releases) < 2 {
		return err
	}
	slices.SortStableFunc(releases, func(a, b exposure) int {
		if c := a.first.Compare(b.first); c != 0 {
			return c
		}
		return strings.Compare(a.release, b.release)
	})
	names := make([]string, len(top.Rows))
	for i := range top.Rows {
		names[i] = top.Rows[i].Name
	}
	list, err := f.engine.changes(ctx, q, names)
	if err != nil {
		return err
	}
	of := map[string]map[string]change{}
	for _, c := range list {
		if of[c.name] == nil {
			of[c.name] = map[string]change{}
		}
		of[c.name][c.release] = c
	}
	for i := range top.Rows {
		r := &top.Rows[i]
		if r.Rise = rise(releases, of[r.Name]); r.Rise != nil {
			r.Rise.Of = q.SinceRelease
		}
	}
	return nil
}

// period is a sum over consecutive releases.
type period struct {
	ns, outliers, hosts int64
	time                time.Duration
}

func (p *period) add(e *exposure, c change, sign int64) {
	p.ns += sign * c.ns
	p.outliers += sign * c.outliers
	p.hosts += sign * e.hosts
	p.time += time.Duration(sign) * e.time
}

// perHour is the slow time in an hour of one host.
func (p *period) perHour() float64 { return float64(p.ns) / max(p.time.Hours(), 1.0/60) }

// likelihood is the logarithm of how likely the slow time of a period is if it comes at
// one rate, but for what does not depend on the rate.
func (p *period) likelihood() float64 {
	if p.ns <= 0 {
		return 0
	}
	return float64(p.ns) * math.Log(p.perHour())
}

// rise splits the releases in two, so that one rate before and one from there on
// explain best what was seen. nil: the second is not twice the first.
func rise(releases []exposure, of map[string]change) *Rise {
	var before, after period
	for i := range releases {
		after.add(&releases[i], of[releases[i].release], 1)
	}
	best := math.Inf(-1)
	var found *Rise
	for i := range releases[:len(releases)-1] {
		before.add(&releases[i], of[releases[i].release], 1)
		after.add(&releases[i], of[releases[i].release], -1)
		v := before.likelihood() + after.likelihood()
		if v <= best {
			continue
		}
		best, found = v, nil
		if before.time >= riseTime && after.outliers >= riseOutliers && after.perHour() >= riseFactor*before.perHour() {
			next := &releases[i+1]
			found = &Rise{
				Release: next.release, First: next.first, New: before.outliers == 0,
				BeforeNSPerHour: int64(before.perHour()), AfterNSPerHour: int64(after.perHour()),
				Before: before.outliers, After: after.outliers, HostsBefore: before.hosts, HostsAfter: after.hosts,
			}
		}
	}
	return found
}
