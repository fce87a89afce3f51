package term

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/tracker/events"
)

// pair adds what only declared pairs know.
func (d *details) pair(o *events.Outlier) {
	if o.Track != "pair" {
		return
	}
	if e := o.EntryTask; e != nil {
		d.add("entry", fmt.Sprintf("%s[%d]", Clean(e.Comm), e.TID))
	}
	var key, labels []string
	for _, name := range slices.Sorted(maps.Keys(o.Key)) {
		key = append(key, fmt.Sprintf("%s=%d", Clean(name), o.Key[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		labels = append(labels, Clean(name)+"="+labelText(o.Labels[name]))
	}
	d.add("key", strings.Join(key, " "))
	if len(labels) > 0 {
		d.add("labels", strings.Join(labels, " "))
	}
}

// labelText is a label as it is, or as JSON has brought it.
func labelText(v any) string {
	switch v := v.(type) {
	case string:
		return Clean(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// pairWhat says what took so long: nobody knows more than the rule's name.
func pairWhat(o *events.Outlier) string { return "passed from entry to exit of " + Clean(o.Rule) }
