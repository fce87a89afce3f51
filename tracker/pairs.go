package tracker

import (
	"errors"
	"maps"
	"time"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/pair"
)

// usePairs loads and attaches what pairs has and before has not.
func (t *Tracker) usePairs(before, pairs *pair.Set) error {
	if pairs == before {
		return nil
	}
	err := pairs.Load(t.Objects)
	if err == nil {
		err = pairs.Attach(t.Objects)
	}
	if err != nil {
		return errors.Join(err, pairs.Drop(before, t.Objects))
	}
	return nil
}

// dropPairs detaches the hooks that left does not have, and forgets what they saw begin.
func (t *Tracker) dropPairs(before, pairs, left *pair.Set) error {
	err := errors.Join(before.Drop(left, t.Objects), pairs.Drop(left, t.Objects))
	if len(before.Numbers) == 0 || maps.Equal(before.Numbers, left.Numbers) {
		return err
	}
	_, failed := t.Objects.ReclaimPairs(t.pairAges(left.Numbers))
	return errors.Join(err, failed)
}

func (t *Tracker) pairsNow() *pair.Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pairs
}

// pairAges is how old begun work of pairs with these numbers may become, by number.
func (t *Tracker) pairAges(numbers map[string]uint32) map[uint32]time.Duration {
	ages := map[uint32]time.Duration{}
	t.Current(func(r *rules.Rule) {
		if n, ok := numbers[r.Name]; ok {
			ages[n] = r.Forget()
		}
	})
	return ages
}
