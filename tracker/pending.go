package tracker

import (
	"fmt"

	"github.com/tailcam/tailcam/bpf"
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
	name := map[rules.Track]string{
		rules.Wakeup: "task_keys", rules.OffCPU: "task_keys",
		rules.Syscall: "call_keys", rules.Block: "request_keys", rules.Chain: "chain_keys",
	}[track]
	m := t.objects.Maps[name]
	if m == nil {
		return nil, fmt.Errorf("read the pending table of %q: no such tracker", track)
	}
	var keys []uint64
	for i := range m.MaxEntries() {
		var b bpf.TailcamBucket
		if err := m.Lookup(i, &b); err != nil {
			return nil, fmt.Errorf("read the pending table of %s: %w", track, err)
		}
		for _, k := range b.Key {
			if k != 0 {
				keys = append(keys, k)
			}
		}
	}
	return keys, nil
}
