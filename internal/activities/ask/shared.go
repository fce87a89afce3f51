package ask

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tailcam/tailcam/internal/activities/breakdown"
	"github.com/tailcam/tailcam/internal/api"
)

// Kinds of rows that are not of activities.
const (
	KindShared  = "shared"
	KindMachine = "machine"
)

// processKeys are those of Keys that a process has.
var processKeys = []string{"pid", "comm", "uid", "unit", "container", "pod"}

// Shared groups what is known of processes alone, as Group groups their activities: by name
// that is one row of each kind. Nothing if a key is of activities alone.
func Shared(info *api.ActivitiesInfo, by string, f Filter) []Row {
	isOther := func(k string) bool { return !slices.Contains(processKeys, k) }
	if by != "name" && isOther(by) || slices.ContainsFunc(slices.Collect(maps.Keys(f)), isOther) {
		return nil
	}
	rows := map[[2]string]*Row{}
	add := func(kind, k string, values map[string]uint64) {
		if by == "name" {
			k = kind
		}
		r := rows[[2]string{k, kind}]
		if r == nil {
			r = &Row{By: by, Key: k, Kind: kind, Values: breakdown.Values{}}
			rows[[2]string{k, kind}] = r
		}
		r.add(values, 0)
	}
	for i := range info.Shared {
		s := &info.Shared[i]
		of := &api.ActivityInfo{PID: s.PID, UID: s.UID, Comm: s.Comm, Unit: s.Unit, Container: s.Container, Pod: s.Pod}
		if !f.Has(of) {
			continue
		}
		if len(s.Values) > 0 || s.Late > 0 {
			values := maps.Clone(s.Values)
			if s.Late > 0 {
				values = withValue(values, "late", s.Late)
			}
			add(KindShared, key(of, by), values)
		}
		if s.MachineNS > 0 {
			add(KindMachine, key(of, by), withValue(nil, "machine_ns", s.MachineNS))
		}
	}
	list := make([]Row, 0, len(rows))
	for _, r := range rows {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b Row) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(b.Kind, a.Kind)) })
	return list
}

// withValue is values with one more.
func withValue(values map[string]uint64, name string, n uint64) map[string]uint64 {
	if values == nil {
		values = map[string]uint64{}
	}
	values[name] = n
	return values
}
