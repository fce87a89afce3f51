// Package ask answers questions about activities from what the daemon knows of them: it
// groups, filters and sorts them, finds the slow ones and what makes them differ from the
// others. It reads no kernel and asks nobody.
package ask

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/internal/activities/breakdown"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
)

// Keys are what activities can be grouped and filtered by, beside the names of their attributes.
// Token is each alone.
var Keys = []string{"name", "text", "value", "pid", "comm", "uid", "unit", "container", "pod", "trace", "token"}

// key is what an activity is called by one of Keys, or by an attribute; "": it has none.
func key(a *api.ActivityInfo, by string) string {
	switch by {
	case "name":
		return a.Name
	case "text":
		return a.Text
	case "value":
		return strconv.FormatUint(a.Value, 10)
	case "pid":
		return strconv.Itoa(a.PID)
	case "comm":
		return a.Comm
	case "uid":
		return strconv.Itoa(a.UID)
	case "unit":
		return a.Unit
	case "container":
		return a.Container
	case "pod":
		return a.Pod
	case "trace":
		return a.TraceID
	case "token":
		return a.ID
	}
	return a.Attributes[by]
}

// Check reports an error if nothing can be grouped or filtered by one of the keys: it is none of
// Keys, and no activity has an attribute of that name.
func Check(info *api.ActivitiesInfo, keys ...string) error {
	names := map[string]bool{}
	for _, list := range [][]api.ActivityInfo{info.Live, info.Ended} {
		for i := range list {
			for name := range list[i].Attributes {
				names[name] = true
			}
		}
	}
	for _, k := range keys {
		if slices.Contains(Keys, k) || names[k] {
			continue
		}
		known := slices.Concat(Keys, slices.Sorted(maps.Keys(names)))
		return fmt.Errorf("no activity has the attribute %q: must be one of %s", k, strings.Join(known, ", "))
	}
	return nil
}

// Filter selects activities: each of its keys must match one of its globs.
type Filter map[string][]string

// ParseFilter parses KEY=GLOB, one a text.
func ParseFilter(texts []string) (Filter, error) {
	f := Filter{}
	for _, t := range texts {
		k, glob, ok := strings.Cut(t, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("invalid filter %q: must be KEY=GLOB with one of %s, or an attribute", t, strings.Join(Keys, ", "))
		}
		f[k] = append(f[k], glob)
	}
	return f, nil
}

// Has reports whether the filter selects an activity.
func (f Filter) Has(a *api.ActivityInfo) bool {
	for k, globs := range f {
		name := key(a, k)
		if !slices.ContainsFunc(globs, func(g string) bool { return rules.GlobMatch(g, name) }) {
			return false
		}
	}
	return true
}

// Keys are those of the filter, sorted.
func (f Filter) Keys() []string { return slices.Sorted(maps.Keys(f)) }

// onlyNames reports whether sums by name suffice.
func (f Filter) onlyNames() bool { return len(f) == 0 || len(f) == 1 && f["name"] != nil }

// NeedsEnded reports whether Group needs the activities that ended, and not only their sums.
func NeedsEnded(by string, f Filter) bool { return by != "name" || !f.onlyNames() }

// Row is a group of activities.
type Row struct {
	By    string `json:"by"`
	Key   string `json:"key"`   // any bytes: clean it before it is shown
	Count uint64 `json:"count"` // that ended
	Live  uint64 `json:"live"`
	// P50NS to MaxNS are of the time from begin to end, of those that ended.
	P50NS uint64 `json:"p50_ns"`
	P99NS uint64 `json:"p99_ns"`
	MaxNS uint64 `json:"max_ns"`
	// ElapsedNS and Values are sums of all, with those that are live.
	ElapsedNS uint64           `json:"elapsed_ns"`
	Values    breakdown.Values `json:"values"`
	// Remembered: Count is of those that the daemon remembers, and not of all.
	Remembered bool `json:"remembered,omitempty"`
	// Kind is "shared" for what is known of processes and not of which of their activities, and
	// "machine" for what interrupts took on top of their threads; absent for activities.
	Kind string `json:"kind,omitempty"`
	// Declared are the rules that declare activities of this name, of rows by name.
	Declared []api.DeclaredInfo `json:"declared,omitempty"`
}

func (r *Row) add(v map[string]uint64, elapsed uint64) {
	r.ElapsedNS += elapsed
	for name, n := range v {
		r.Values[name] += n
	}
}

// Group groups the activities that a filter selects, in the order of keys.
func Group(info *api.ActivitiesInfo, by string, f Filter) []Row {
	rows := map[string]*Row{}
	row := func(k string) *Row {
		r := rows[k]
		if r == nil {
			r = &Row{By: by, Key: k, Values: breakdown.Values{}}
			rows[k] = r
		}
		return r
	}
	elapsed := map[string][]uint64{}
	if NeedsEnded(by, f) {
		for i := range info.Ended {
			a := &info.Ended[i]
			if !f.Has(a) {
				continue
			}
			r := row(key(a, by))
			r.Count++
			r.Remembered = true
			r.add(a.Values, uint64(a.ElapsedNS))
			elapsed[r.Key] = append(elapsed[r.Key], uint64(a.ElapsedNS))
		}
	} else {
		groupTotals(info, f, row)
	}
	for i := range info.Live {
		if a := &info.Live[i]; f.Has(a) {
			r := row(key(a, by))
			r.Live++
			r.add(a.Values, uint64(a.ElapsedNS))
		}
	}
	for _, d := range info.Declared {
		if r := rows[d.Name]; r != nil && by == "name" {
			r.Declared = append(r.Declared, d)
		}
	}
	list := make([]Row, 0, len(rows))
	for k, r := range rows {
		if all := elapsed[k]; len(all) > 0 {
			slices.Sort(all)
			r.P50NS, r.P99NS, r.MaxNS = quantile(all, 0.5), quantile(all, 0.99), all[len(all)-1]
		}
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b Row) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

// groupTotals adds the sums of names; of several users with one name, together.
func groupTotals(info *api.ActivitiesInfo, f Filter, row func(string) *Row) {
	parts := map[string][]api.BucketInfo{}
	for i := range info.Names {
		n := &info.Names[i]
		if !f.Has(&api.ActivityInfo{Name: n.Name}) {
			continue
		}
		r := row(n.Name)
		r.Count += n.Count
		r.MaxNS = max(r.MaxNS, n.MaxNS)
		r.add(n.Values, n.SumNS)
		parts[n.Name] = append(parts[n.Name], n.Buckets...)
	}
	for name, buckets := range parts {
		h := distribution(buckets)
		r := row(name)
		r.P50NS, r.P99NS = min(h.Quantile(0.5), r.MaxNS), min(h.Quantile(0.99), r.MaxNS)
	}
}

// quantile is the value that a part q of sorted values does not exceed.
func quantile(sorted []uint64, q float64) uint64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Orders are what rows can be sorted by, beside the names of values with or without _ns.
var Orders = []string{"elapsed", "count", "live", "p50", "p99", "max", "key"}

// Sort sorts rows by one of Orders or a value, the largest first; keys in their order. It
// reports whether there is such an order: any value that a row has, or a part of the time.
func Sort(rows []Row, by string) bool {
	of := func(r *Row) uint64 {
		switch by {
		case "elapsed":
			return r.ElapsedNS
		case "count":
			return r.Count
		case "live":
			return r.Live
		case "p50":
			return r.P50NS
		case "p99":
			return r.P99NS
		case "max":
			return r.MaxNS
		case "key":
			return 0
		}
		return max(r.Values[by], r.Values[by+"_ns"])
	}
	known := slices.Contains(Orders, by) || breakdown.IsPart(by) || breakdown.IsPart(by+"_ns") ||
		slices.Contains([]string{breakdown.Wall, breakdown.Blocked}, strings.TrimSuffix(by, "_ns")+"_ns") ||
		slices.ContainsFunc(rows, func(r Row) bool { return of(&r) > 0 })
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(of(&b), of(&a)) })
	return known
}

// Find returns the activity of an id, or that of a trace id. Of several with the trace id it
// is the one that took longest.
func Find(info *api.ActivitiesInfo, id string) (*api.ActivityInfo, error) {
	var found *api.ActivityInfo
	for _, list := range [][]api.ActivityInfo{info.Ended, info.Live} {
		for i := range list {
			a := &list[i]
			if a.ID == id {
				return a, nil
			}
			if a.TraceID != "" && strings.EqualFold(a.TraceID, id) && (found == nil || a.ElapsedNS > found.ElapsedNS) {
				found = a
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no activity %q is remembered: \"tailcam activities --by token\" lists those that are", id)
	}
	return found, nil
}
