package daemon

import (
	"maps"
	"strconv"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// pairLosses lists the losses of one declared pair.
func pairLosses(rule string, p *tracker.PairCounters) []api.Loss {
	var list []api.Loss
	add := func(cause string, n uint64, advice string) {
		list = append(list, api.Loss{Cause: cause, Rule: rule, Tracker: string(rules.Pair), Count: n, Advice: advice})
	}
	add("table_full", p.Full, "raise capacity.pairs")
	add("pair_replaced", p.Replaced, "its key began again before it ended: a longer key, an exit or cancel hook that is missing, or on_duplicate: keep or count")
	add("pair_kept", p.Kept, "entries were left out while their key was pending, as on_duplicate: keep says")
	add("pair_unsettled", p.Unsettled+p.Missed, "CPUs begin and end one key all the time: use a longer key")
	add("pair_unread", p.Unread, "a field of the key or of a condition could not be read: is its pointer one of user space, or NULL?")
	add("pair_crowded", p.Crowded, "outliers inside each other on one CPU: raise the threshold")
	add("pair_forgotten", p.Forgotten, "the task of the entry is gone, or forget_after has passed: name a cancel hook if this is often")
	return list
}

// nameLabels returns the outlier's labels with kernel addresses replaced by symbols.
func (d *daemon) nameLabels(o *tracker.Outlier) map[string]any {
	if o.From == nil || o.From.Pair == nil {
		return o.Labels
	}
	labels := maps.Clone(o.Labels) // shared with other readers
	for _, l := range o.From.Pair.Labels {
		s, ok := labels[l.Name].(string)
		if l.As != rules.AsSymbol || !ok {
			continue
		}
		address, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			continue
		}
		if named, err := d.symbols.KernelNames([]uint64{address}); err == nil && len(named) == 1 {
			labels[l.Name] = named[0]
		}
	}
	return labels
}
