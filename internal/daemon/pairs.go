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
	add("pair_replaced", p.Replaced, "the key began again before its exit: use a longer key, add a missing exit or cancel hook, or set on_duplicate: keep or count")
	add("pair_kept", p.Kept, "entries ignored while their key was pending (on_duplicate: keep)")
	add("pair_unsettled", p.Unsettled+p.Missed, "CPUs contend for one key: use a longer key")
	add("pair_unread", p.Unread, "a field of the key or a condition could not be read: its pointer may be NULL or in user space")
	add("pair_crowded", p.Crowded, "nested outliers on one CPU: raise the threshold")
	add("pair_forgotten", p.Forgotten, "the task of the entry exited, or forget_after expired: if frequent, add a cancel hook")
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
