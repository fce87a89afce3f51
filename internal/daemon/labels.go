package daemon

import (
	"cmp"
	"maps"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// kernelFunction returns the symbol of a function of the kernel; "": unknown.
func (d *daemon) kernelFunction(address uint64) string {
	named, err := d.symbols.KernelNames([]uint64{address})
	if err != nil || len(named) != 1 || strings.HasPrefix(named[0], "[unknown]") {
		return ""
	}
	return named[0][:strings.IndexAny(named[0]+"+", "+ ")]
}

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

// nameWork names the function of a work item.
func (d *daemon) nameWork(o *events.Outlier) *events.WorkInfo {
	if o.Work == nil {
		return nil
	}
	named := *o.Work // others may read the outlier's own
	named.Function = cmp.Or(d.kernelFunction(named.Address), named.Function)
	return &named
}
