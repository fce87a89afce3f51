package daemon

import (
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

const spanReplaced = "a span was begun again before its end: give each piece of work a key of its own"

// spanLosses lists the losses of spans.
func spanLosses(c *tracker.SpanCounters) []api.Loss {
	return []api.Loss{
		{Cause: "span_unknown", Tracker: string(rules.Span), Count: c.Unknown, Advice: "ended without a begin of the same user and pid namespace; harmless if it began before tailcam did"},
		{Cause: "span_bad_key", Tracker: string(rules.Span), Count: c.BadKey, Advice: "a key has 1 to 63 bytes, without a NUL, in memory that is resident: use tailcam's header or package"},
		{Cause: "span_forgotten", Tracker: string(rules.Span), Count: c.Forgotten, Advice: "the oldest made way for newer ones of the same user: end what you begin, or raise capacity.spans"},
		{Cause: "span_outvied", Tracker: string(rules.Span), Count: c.Outvied, Advice: "of the user with the most, the oldest made way for a user with fewer: end what you begin, or raise capacity.spans"},
		{Cause: "span_expired", Tracker: string(rules.Span), Count: c.Expired, Advice: "nobody ended it in ten minutes, or twice the limits of the rules: end what you begin"},
	}
}
