package daemon

import (
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

const spanReplaced = "a span was begun again before its end: use a unique key for each span"

// spanLosses lists the losses of spans.
func spanLosses(c *tracker.SpanCounters) []api.Loss {
	return []api.Loss{
		{Cause: "span_unknown", Tracker: string(rules.Span), Count: c.Unknown, Advice: "ended without a begin by the same user and pid namespace; harmless if it began before tailcam started"},
		{Cause: "span_bad_key", Tracker: string(rules.Span), Count: c.BadKey, Advice: "a key must be 1 to 63 bytes without NUL, in resident memory: use tailcam's header or package"},
		{Cause: "span_forgotten", Tracker: string(rules.Span), Count: c.Forgotten, Advice: "the oldest was dropped for a newer one of the same user: end each span, or raise capacity.spans"},
		{Cause: "span_outvied", Tracker: string(rules.Span), Count: c.Outvied, Advice: "the oldest of the user with the most spans was dropped for another user: end each span, or raise capacity.spans"},
		{Cause: "span_expired", Tracker: string(rules.Span), Count: c.Expired, Advice: "not ended within ten minutes or twice the rules' limits: end each span"},
	}
}
