package tracker

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/rules"
)

// Pending counts the occupied places of each running tracker's pending table:
// work whose entry was seen and whose exit was not. Wakeup and offcpu share one
// table, so both have the count of both: every task that is off its CPU. The
// tables change while they are read.
func (t *Tracker) Pending() (map[rules.Track]int, error) {
	counts := map[rules.Track]int{}
	for track := range t.plan.tracks {
		keys, err := t.PendingKeys(track)
		if err != nil {
			return nil, err
		}
		counts[track] = len(keys)
	}
	return counts, nil
}

// PendingKeys returns the keys in a tracker's pending table, in no order:
// thread ids, or for block the addresses of requests.
func (t *Tracker) PendingKeys(track rules.Track) ([]uint64, error) {
	var parts []*ebpf.Map
	t.growth.mu.Lock()
	for i := range t.growth.tables {
		if p := &t.growth.tables[i]; slices.Contains(p.trackers, track) {
			parts = p.parts
		}
	}
	t.growth.mu.Unlock()
	if track == rules.Chain {
		parts = []*ebpf.Map{t.objects.Maps["chain_keys"]}
	}
	if parts == nil {
		return nil, fmt.Errorf("read the pending table of %q: no such tracker", track)
	}
	keys, err := keysOf(parts)
	if err != nil {
		return nil, fmt.Errorf("read the pending table of %s: %w", track, err)
	}
	return keys, nil
}
