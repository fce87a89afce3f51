package tracker

import (
	"fmt"

	"github.com/tailcam/tailcam/bpf"
)

// PairCounters are what one declared pair has done since New.
type PairCounters struct {
	Seen      uint64 // pairs completed
	Cancelled uint64
	Replaced  uint64 // restart: older entries that were forgotten for a new one
	Kept      uint64 // keep: entries that were left out for an older one
	Nested    uint64 // count: entries inside another one
	Full      uint64 // entries lost: the pending table's window was full
	Unsettled uint64 // entries lost: other CPUs were at the same key all the time
	Missed    uint64 // exits lost in the same way
	Unread    uint64 // events left out: a field could not be read
	Crowded   uint64 // outliers lost: too many at once on a CPU
	Forgotten uint64 // entries whose exit cannot come any more
}

func (c *PairCounters) add(s *bpf.TailcamPairState) {
	c.Seen += s.Seen
	c.Cancelled += s.Cancelled
	c.Replaced += s.Replaced
	c.Kept += s.Kept
	c.Nested += s.Nested
	c.Full += s.Full
	c.Unsettled += s.Unsettled
	c.Missed += s.Missed
	c.Unread += s.Unread
	c.Crowded += s.Crowded
	c.Forgotten += s.Forgotten
}

// Pairs reads the counters of every declared pair, by the name of its rule.
func (t *Tracker) Pairs() (map[string]PairCounters, error) {
	all := map[string]PairCounters{}
	for name, n := range t.pairs.numbers {
		var sum PairCounters
		m := t.objects.Maps["pair_states"]
		for at := n; at < m.MaxEntries(); at += maxPairs {
			var s bpf.TailcamPairState
			if err := m.Lookup(at, &s); err != nil {
				return nil, fmt.Errorf("read counters of pair %s: %w", name, err)
			}
			sum.add(&s)
		}
		all[name] = sum
	}
	return all, nil
}
