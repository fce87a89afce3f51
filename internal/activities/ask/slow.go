package ask

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/activities/breakdown"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// Over is a limit: a quantile of each name's own times, or a duration.
type Over struct {
	Quantile float64 // 0: none
	Duration time.Duration
}

var quantileText = regexp.MustCompile(`^p(\d{1,2}(?:\.\d{1,4})?)$`)

// ParseOver parses p99 or a duration.
func ParseOver(s string) (Over, error) {
	if m := quantileText.FindStringSubmatch(s); m != nil {
		percent, err := strconv.ParseFloat(m[1], 64)
		if err == nil && percent > 0 {
			return Over{Quantile: percent / 100}, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return Over{}, fmt.Errorf("invalid limit %q: must be a quantile such as p99 or p99.9, or a duration such as 50ms", s)
	}
	return Over{Duration: d}, nil
}

// Slow is a slow activity beside the others of its name and, if that is asked for, of its key.
type Slow struct {
	Activity api.ActivityInfo `json:"activity"`
	By       string           `json:"by,omitempty"`  // the key that the others have in common with it, beside the name
	Key      string           `json:"key,omitempty"` // any bytes: clean it before it is shown
	LimitNS  uint64           `json:"limit_ns"`      // that it has passed
	MedianNS uint64           `json:"median_ns"`     // of the name's times, of all that ended; with By of the latest ones
	Others   int              `json:"others"`        // remembered ones below the limit that it is compared with
	// Grew lists the values that differ: A is the median of the others, B the activity's. Parts
	// of the time come first, the one that grew most before the others.
	Grew []breakdown.Difference `json:"grew"`
	// Account says where its time went, Verdict which part grew.
	Account string `json:"account"`
	Verdict string `json:"verdict"`
}

// sample is how many of a name count for the distribution of a group: the latest, as of older
// ones the slowest alone are remembered.
const sample = 256

// group are activities that are compared with each other.
type group struct {
	name, key string
}

// FindSlow returns the activities that a filter selects and that took as long as the limit,
// the slowest first. The limit and the others are those of all with their name and, unless by is
// "name", with that key.
func FindSlow(info *api.ActivitiesInfo, over Over, f Filter, by string) []Slow {
	groups := map[group][]*api.ActivityInfo{}
	latest, seen := map[group]*histogram.Histogram{}, map[string]int{}
	for i := range info.Ended {
		a := &info.Ended[i]
		g := group{name: a.Name}
		if by != "name" {
			g.key = key(a, by)
		}
		groups[g] = append(groups[g], a)
		if latest[g] == nil {
			latest[g] = &histogram.Histogram{}
		}
		if seen[a.Name]++; seen[a.Name] <= sample || latest[g].Count == 0 {
			latest[g].Add(uint64(max(a.ElapsedNS, 0)), 1)
		}
	}
	var list []Slow
	for g, all := range groups {
		h := latest[g]
		if by == "name" {
			h = named(info, g.name)
		}
		limit := uint64(over.Duration)
		if over.Quantile > 0 {
			limit = slowest(all, h, over.Quantile)
		}
		for _, s := range slowOf(all, limit, h.Quantile(0.5), f) {
			if by != "name" {
				s.By, s.Key = by, g.key
			}
			s.Verdict = s.words()
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Slow) int {
		return cmp.Or(cmp.Compare(b.Activity.ElapsedNS, a.Activity.ElapsedNS), cmp.Compare(a.Activity.ID, b.Activity.ID))
	})
	return list
}

// slowest is the limit that those above a quantile of a distribution have reached: as many of
// the slowest as these are, and at least the one with the quantile. A bucket's bounds alone would
// leave out all, or take in many that are as fast as others.
func slowest(all []*api.ActivityInfo, h *histogram.Histogram, q float64) uint64 {
	limit, _ := histogram.Bounds(histogram.Index(h.Quantile(q)))
	times := make([]uint64, len(all))
	for i, a := range all {
		times[i] = uint64(max(a.ElapsedNS, 0))
	}
	slices.Sort(times)
	if times[0] >= limit {
		limit = times[0] + 1 // nothing is slow that none was faster than
	}
	if above := int(math.Ceil((1 - q) * float64(h.Count))); above < len(times) {
		limit = max(limit, times[len(times)-max(above, 1)])
	}
	return limit
}

// named is the distribution of a name, of all its users.
func named(info *api.ActivitiesInfo, name string) *histogram.Histogram {
	var buckets []api.BucketInfo
	for i := range info.Names {
		if info.Names[i].Name == name {
			buckets = append(buckets, info.Names[i].Buckets...)
		}
	}
	return distribution(buckets)
}

// distribution has the counts of buckets.
func distribution(buckets []api.BucketInfo) *histogram.Histogram {
	h := &histogram.Histogram{Min: math.MaxUint64}
	for _, b := range buckets {
		i := histogram.Index(b.FromNS)
		h.Bucket[i] += b.Count
		h.Count += b.Count
		h.Min, h.Max = min(h.Min, b.FromNS), max(h.Max, b.ToNS)
	}
	return h
}

func slowOf(all []*api.ActivityInfo, limit, median uint64, f Filter) (list []Slow) {
	var others []*api.ActivityInfo
	for _, a := range all {
		if uint64(a.ElapsedNS) < limit {
			others = append(others, a)
		}
	}
	usual := medians(others)
	for _, a := range all {
		if uint64(a.ElapsedNS) < limit || a.ElapsedNS <= 0 || !f.Has(a) {
			continue
		}
		s := Slow{Activity: *a, LimitNS: limit, MedianNS: median, Others: len(others)}
		s.Grew = breakdown.Diff(usual, a.Values)
		slices.SortStableFunc(s.Grew, func(x, y breakdown.Difference) int { // what grew before what shrank
			if !breakdown.IsPart(x.Value) || !breakdown.IsPart(y.Value) {
				return 0
			}
			return cmp.Compare(y.Delta(), x.Delta())
		})
		s.Account = breakdown.Words(a.Name, uint64(a.ElapsedNS), false, a.Values)
		list = append(list, s)
	}
	return list
}

// medians are those of each value.
func medians(list []*api.ActivityInfo) breakdown.Values {
	names := map[string]bool{}
	for _, a := range list {
		for name := range a.Values {
			names[name] = true
		}
	}
	out := breakdown.Values{}
	for name := range names {
		all := make([]uint64, len(list))
		for i, a := range list {
			all[i] = a.Values[name]
		}
		slices.Sort(all)
		if m := quantile(all, 0.5); m > 0 {
			out[name] = m
		}
	}
	return out
}

// words say which parts grew: those of a tenth of all growth and more.
func (s *Slow) words() string {
	a := &s.Activity
	var b strings.Builder
	name := cmp.Or(text.Clean(a.Name), "an activity without a name")
	if s.By != "" {
		name += fmt.Sprintf(" with %s %s", text.Clean(s.By), cmp.Or(text.Clean(s.Key), "(none)"))
	}
	fmt.Fprintf(&b, "%s took %s", name, term.Duration(a.ElapsedNS))
	if s.Others == 0 {
		b.WriteString(", and no other is remembered that took less than the limit")
		return b.String()
	}
	if s.MedianNS > 0 {
		fmt.Fprintf(&b, ", %.3g times the median of %s", float64(a.ElapsedNS)/float64(s.MedianNS), term.Duration(int64(s.MedianNS)))
	}
	var growth int64
	for i := range s.Grew {
		if d := &s.Grew[i]; breakdown.IsPart(d.Value) && d.Delta() > 0 {
			growth += d.Delta()
		}
	}
	sep := ": "
	for i := range s.Grew {
		d := &s.Grew[i]
		if !breakdown.IsPart(d.Value) || d.Delta() <= 0 || d.Delta() < growth/10 {
			continue
		}
		fmt.Fprintf(&b, "%s%s longer %s", sep, term.Duration(d.Delta()), breakdown.PartWords(d.Value))
		sep = ", "
	}
	if growth == 0 {
		b.WriteString(": no thread worked longer for it, it waited between threads")
	}
	return b.String()
}

// Comparison is two activities side by side.
type Comparison struct {
	A api.ActivityInfo `json:"a"`
	B api.ActivityInfo `json:"b"`
	// Values lists those that differ: parts of the time first, the largest difference before
	// the others.
	Values   []breakdown.Difference `json:"values"`
	AccountA string                 `json:"account_a"` // where the time went, in words
	AccountB string                 `json:"account_b"`
}

// Compare compares two activities.
func Compare(a, b *api.ActivityInfo) *Comparison {
	return &Comparison{
		A: *a, B: *b, Values: breakdown.Diff(a.Values, b.Values),
		AccountA: breakdown.Words(a.Name, uint64(max(a.ElapsedNS, 0)), a.Live, a.Values),
		AccountB: breakdown.Words(b.Name, uint64(max(b.ElapsedNS, 0)), b.Live, b.Values),
	}
}
