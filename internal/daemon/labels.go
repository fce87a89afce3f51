package daemon

import (
	"maps"
	"strconv"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// nameLabels returns the outlier's labels, with names for those that are
// addresses of the kernel.
func (d *daemon) nameLabels(o *events.Outlier) map[string]any {
	if o.MatchedRule == nil || o.MatchedRule.Pair == nil {
		return o.Labels
	}
	labels := maps.Clone(o.Labels) // others may read the outlier's own
	for _, l := range o.MatchedRule.Pair.Labels {
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
