package action

import (
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

// environment returns the environment of an action. Nothing of the daemon's own is
// passed on.
func environment(o *events.Outlier, j *Job) []string {
	env := []string{"PATH=" + searchPath}
	add := func(name, value string) {
		// A NUL byte ends a variable.
		value, _, _ = strings.Cut(value, "\x00")
		env = append(env, "TAILCAM_"+name+"="+value)
	}
	add("RULE", o.Rule)
	add("TRACK", o.Track)
	add("CAUSE", string(o.Cause))
	add("DELAY_NS", strconv.FormatInt(o.DelayNS, 10))
	add("THRESHOLD_NS", strconv.FormatInt(o.ThresholdNS, 10))
	add("PID", strconv.Itoa(o.Task.PID))
	add("TID", strconv.Itoa(o.Task.TID))
	add("COMM", o.Task.Comm)
	add("CPU", strconv.Itoa(o.CPU))
	add("TIME", o.Time.UTC().Format(time.RFC3339Nano))
	add("SNAPSHOT", j.Dir)
	add("SNAPSHOT_ID", j.ID)
	reason := j.Reason
	if o.Trigger != nil {
		reason = o.Trigger.Reason
		add("SOURCE", o.Trigger.Source)
	}
	add("REASON", reason)
	e := events.Explained{}
	if o.Explained != nil {
		e = *o.Explained
	}
	add("VERDICT", e.Verdict)
	add("ADVICE", e.Advice)
	add("VERDICT_CAUSE", e.Cause)
	add("BY", e.By)
	add("BY_KIND", e.ByKind)
	add("CONFIDENCE", e.Confidence)
	return env
}
