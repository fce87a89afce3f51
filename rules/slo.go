package rules

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// SLOSource is a promise about the delays of a rule, or of all of a tracker: that a
// quantile of those within a window is below a limit.
type SLOSource struct {
	Of        string // a rule that has a histogram, or a tracker
	Quantile  float64
	Below     time.Duration
	Over      time.Duration // window
	MinEvents uint64        // in the window; with fewer, nothing is said of the promise
}

const (
	sourceSLO    = "slo"
	minSLOWindow = 5 * time.Second
	maxSLOWindow = 24 * time.Hour
	maxSLOLimit  = time.Hour
	maxSLOEvents = 1_000_000_000
	sloAllowed   = `a quantile of a rule or tracker, a limit and a window: "p99(reads) < 20ms over 5m"`
	sloNeedAbove = 10 // events above the quantile that a window must have, unless min_events says another number
)

var (
	sloKeys   = []string{"objective", "min_events"}
	objective = regexp.MustCompile(`^p(\d{1,2}(?:\.\d{1,4})?)\(([a-z0-9-]{1,200})\) *< *(\S{1,30}) +over +(\S{1,30})$`)
)

// String returns the promise as in a rule file.
func (s *SLOSource) String() string {
	return fmt.Sprintf("p%s(%s) < %s over %s", s.percent(), s.Of, shortDuration(s.Below), shortDuration(s.Over))
}

func (s *SLOSource) percent() string {
	return strconv.FormatFloat(math.Round(s.Quantile*1e6)/1e4, 'f', -1, 64)
}

// slo reads a promise, or a mapping that has one.
func (r *reader) slo(n *yaml.Node) *SLOSource {
	if n.Kind == yaml.ScalarNode {
		return r.objective(n)
	}
	keys := r.mapping(n, sourceSLO, sloKeys)
	if keys == nil {
		return &SLOSource{}
	}
	e, ok := keys["objective"]
	if !ok {
		r.fail(n, "objective: "+sloAllowed, "slo has no objective")
		return &SLOSource{}
	}
	s := r.objective(e.value)
	if e, ok := keys["min_events"]; ok {
		s.MinEvents, _ = r.number(e.value, "min_events", 1, maxSLOEvents)
	}
	return s
}

func (r *reader) objective(n *yaml.Node) *SLOSource {
	s := &SLOSource{}
	text, ok := r.text(n, sourceSLO)
	if !ok {
		return s
	}
	m := objective.FindStringSubmatch(text)
	if m == nil {
		r.fail(n, sloAllowed, "slo: invalid objective %q", cut(text))
		return s
	}
	percent, err := strconv.ParseFloat(m[1], 64)
	if err != nil || percent <= 0 {
		r.fail(n, "p1 to p99.9999", "slo: invalid quantile p%s", m[1])
		return s
	}
	what := "limit"
	if s.Below, err = ParseDuration(m[3], minDuration, maxSLOLimit); err == nil {
		what = "window"
		s.Over, err = ParseDuration(m[4], minSLOWindow, maxSLOWindow)
	}
	if err != nil {
		r.fail(n, sloAllowed+"; a window from 5s to 24h", "slo: %s %v", what, err)
		return &SLOSource{}
	}
	s.Of, s.Quantile = m[2], percent/100
	s.MinEvents = uint64(math.Ceil(sloNeedAbove/(1-s.Quantile) - 1e-6))
	return s
}

// checkSLOs finds promises about what has no histogram.
func checkSLOs(all []Rule) (errs Errors) {
	for i := range all {
		if all[i].Trigger == nil || all[i].Trigger.SLO == nil || all[i].Trigger.SLO.Of == "" {
			continue
		}
		of := all[i].Trigger.SLO.Of
		at := slices.IndexFunc(all, func(r Rule) bool { return r.Name == of })
		_, counted := classes[Track(of)]
		switch {
		case at >= 0 && all[at].Histogram == nil:
			errs = append(errs, Error{all[i].Pos, fmt.Sprintf("slo: rule %s has no histogram", of), "histogram: true in that rule"})
		case at < 0 && !counted:
			errs = append(errs, Error{all[i].Pos, fmt.Sprintf("slo: there is no rule and no tracker %q", of), "the name of a rule, or track " + join(histogramTracks())})
		}
	}
	return errs
}
