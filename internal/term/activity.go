package term

import (
	"fmt"

	"github.com/tailcam/tailcam/tracker/events"
)

// activityName is an activity as its program calls it.
func activityName(a *events.ActivityInfo) string {
	name := Clean(a.Name)
	if name == "" {
		name = "an activity without a name"
	}
	if a.Text != "" {
		name += " " + fmt.Sprintf("%q", Clean(a.Text))
	}
	return name
}

// activity adds what is known of the activity of an outlier.
func (d *details) activity(o *events.Outlier) {
	a := o.Activity
	if a == nil {
		return
	}
	d.add("activity", activityName(a)+", token "+Clean(a.Token))
	d.add("account", Clean(a.Account))
}
