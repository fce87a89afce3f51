package pagecache

import (
	"math/rand/v2"
	"testing"

	"gotest.tools/v3/assert"
)

// What a counter tells is never below what its excess allows, nor above what there was; and
// whatever has more than the share of a counter has one.
func TestSummaryBounds(t *testing.T) {
	for seed := range uint64(200) {
		dice := rand.New(rand.NewPCG(seed, 1))
		most, keys := 1+dice.IntN(50), 1+dice.IntN(1000)
		s := newSummary[int, struct{}](most)
		truth, sum := map[int]uint64{}, uint64(0)
		for range 5000 {
			key := int(float64(keys) * dice.Float64() * dice.Float64() * dice.Float64())
			weight := dice.Uint64N(20)
			truth[key] += weight
			sum += weight
			s.add(key, weight)
		}
		assert.Assert(t, len(s.order) == len(s.entries) && len(s.order) <= most)
		for i, e := range s.order {
			assert.Check(t, e.position == i && s.entries[e.key] == e)
			assert.Check(t, truth[e.key] <= e.weight && e.weight-e.excess <= truth[e.key],
				"seed %d: %d of %d is told as %d less at most %d", seed, truth[e.key], e.key, e.weight, e.excess)
			assert.Check(t, e.excess <= sum/uint64(most), "seed %d", seed)
		}
		for key, n := range truth {
			assert.Check(t, n <= sum/uint64(most) || s.entries[key] != nil, "seed %d: %d of %d has no counter", seed, n, sum)
		}
	}
}
