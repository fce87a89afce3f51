package tracker

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
)

// ResetRatchet lets a rule with a ratchet begin anew: the next delay past its
// threshold is its first record.
func (t *Tracker) ResetRatchet(rule string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, r := range t.live.source {
		if r.Name != rule {
			continue
		}
		if !r.Ratchet {
			return fmt.Errorf("rule %s has no ratchet", rule)
		}
		_, err := t.ratchet(t.live.rules[i].Id, 0)
		return err
	}
	return fmt.Errorf("rule %s does not run", rule)
}

// claimRecord reports whether a delay that was decided here is a record. Under t.mu.
func (t *Tracker) claimRecord(id uint8, delay int64) bool {
	record, err := t.ratchet(id, max(delay, 1))
	return record || err != nil // rather one too many than none
}

func (t *Tracker) ratchet(id uint8, delay int64) (record bool, err error) {
	arg := bpf.TailcamRatchetCall{DelayNs: uint64(delay), Id: uint32(id)}
	got, err := t.objects.Programs["ratchet"].Run(&ebpf.RunOptions{Context: arg})
	if err != nil {
		return false, fmt.Errorf("move the ratchet: %w", err)
	}
	return got == 1, nil
}
