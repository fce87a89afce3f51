package action

import (
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

// environment is all that an action gets: nothing of the daemon's own leaks.
func environment(o *events.Outlier, id, dir string) []string {
	env := []string{"PATH=" + searchPath}
	add := func(name, value string) {
		// The kernel ends a variable at a zero byte.
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
	add("SNAPSHOT", dir)
	add("SNAPSHOT_ID", id)
	return env
}
