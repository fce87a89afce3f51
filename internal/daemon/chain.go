package daemon

import (
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// chainLosses lists the losses of chains.
func chainLosses(c *tracker.ChainCounters) []api.Loss {
	return []api.Loss{
		{Cause: "chain_cut", Tracker: string(rules.Chain), Count: c.Cut, Advice: "a chain has 12 stages and 64 tasks at most: name fewer origins in from, or end the rule earlier"},
		{Cause: "chain_met", Tracker: string(rules.Chain), Count: c.Met, Advice: "woken while it still worked for an older chain, which it stays with: name fewer origins in from"},
		{Cause: "chain_ended", Tracker: string(rules.Chain), Count: c.Ended, Advice: "a chain is followed for 60s: its task neither slept nor ended until then"},
		{Cause: "chain_unseen", Tracker: string(rules.Chain), Count: c.Unseen, Advice: "woken out of a page fault: the return to user space is not seen; use to: run or block"},
	}
}
