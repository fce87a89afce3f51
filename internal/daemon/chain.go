package daemon

import (
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// chainLosses lists the losses of chains.
func chainLosses(c *tracker.ChainCounters) []api.Loss {
	return []api.Loss{
		{Cause: "chain_cut", Tracker: string(rules.Chain), Count: c.Cut, Advice: "a chain is limited to 12 stages and 64 tasks: list fewer origins in from, or use an earlier end in to"},
		{Cause: "chain_met", Tracker: string(rules.Chain), Count: c.Met, Advice: "the woken task was still working for an older chain, which is kept: list fewer origins in from"},
		{Cause: "chain_ended", Tracker: string(rules.Chain), Count: c.Ended, Advice: "a chain is limited to 60s: its task neither slept nor exited within that time"},
		{Cause: "chain_unseen", Tracker: string(rules.Chain), Count: c.Unseen, Advice: "the task was woken in a page fault, whose return to user space is not traced: use to: run or block"},
	}
}
