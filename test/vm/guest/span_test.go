package guest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/span"
)

// TestTrackersSpan begins and ends a span, and lets another one time out.
func TestTrackersSpan(t *testing.T) {
	inGuest(t)
	list := append(everyRule(), rules.Rule{
		Name: "span", Track: rules.Span, Threshold: 20 * time.Millisecond, Timeout: 100 * time.Millisecond,
		Stacks: []rules.Stack{rules.KernelStack, rules.UserStack},
		When:   rules.Match{Key: []string{"guest-*"}, NotKey: []string{"*-not"}},
	})
	_, outliers := watch(t, list, &tracker.Options{TrackSelf: true, Tasks: 4096})
	tell := func(say func(string) error, key string) {
		assert.Check(t, say(key))
	}
	tell(span.Begin, "guest-not")
	tell(span.Begin, "guest-1")
	time.Sleep(30 * time.Millisecond)
	tell(span.End, "guest-not")
	tell(span.End, "guest-1")
	next := func(key string) *events.Outlier {
		o := await(t, outliers, "span", 0)
		assert.Check(t, o.Span != nil && o.Span.Key == key && o.Span.Begin.PID == unix.Getpid(),
			"%+v of %d ns, cause %s; want %s", o.Span, o.DelayNS, o.Cause, key)
		return o
	}
	o := next("guest-1")
	if o.Cause == events.CauseTimeout { // the guest stood still
		o = next("guest-1")
	}
	assert.Check(t, o.Cause != events.CauseTimeout && o.DelayNS >= (30*time.Millisecond).Nanoseconds(),
		"%d ns, cause %s", o.DelayNS, o.Cause)
	tell(span.Begin, "guest-2")
	o = next("guest-2")
	assert.Check(t, o.Cause == events.CauseTimeout, "cause %s", o.Cause)
	tell(span.End, "guest-2")
	o = next("guest-2")
	assert.Check(t, o.Cause == events.CauseAfterTimeout, "cause %s at the end", o.Cause)
}
