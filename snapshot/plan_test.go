package snapshot

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// stored makes a snapshot for a plan.
func stored(number int, rule string, delay time.Duration, culprit string) storedSnapshot {
	k := storedSnapshot{id: ID{Rule: rule, Number: uint64(number)}, bytes: 1 << 20}
	if delay > 0 {
		k.worth = []claim{{Rule: rule, DelayNS: int64(delay), Culprit: culprit}}
	}
	return k
}

// run removes what the plan says, and returns what is left and what went, by number.
func run(all []storedSnapshot, keep Retention, allPins bool) (left []storedSnapshot, gone []uint64, limits []string) {
	p := newPlan(all, keep, allPins)
	dead := map[uint64]bool{}
	for k, why := p.next(); k != nil; k, why = p.next() {
		p.removed(k)
		dead[k.id.Number] = true
		gone, limits = append(gone, k.id.Number), append(limits, why)
	}
	for i := range all {
		if !dead[all[i].id.Number] {
			left = append(left, all[i])
		}
	}
	return left, gone, limits
}

func numbers(all []storedSnapshot) []uint64 {
	out := make([]uint64, 0, len(all))
	for i := range all {
		out = append(out, all[i].id.Number)
	}
	slices.Sort(out)
	return out
}

func TestPlan(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		name string
		list func() []storedSnapshot
		keep Retention
		want []uint64 // gone, in order
	}{
		{"a noisy rule pays for itself", func() []storedSnapshot {
			list := []storedSnapshot{stored(1, "rare", ms(1), "")}
			for i := 2; i <= 8; i++ {
				list = append(list, stored(i, "noisy", ms(900), "x"))
			}
			return list
		}, Retention{Count: 5}, []uint64{2, 3, 4}},
		{"the worst stay, and the newest", func() []storedSnapshot {
			return []storedSnapshot{stored(1, "r", ms(90), "a"), stored(2, "r", ms(1), "a"), stored(3, "r", ms(80), "a"),
				stored(4, "r", ms(2), "a"), stored(5, "r", ms(3), "a")}
		}, Retention{Count: 3, Worst: 2}, []uint64{2, 4}},
		{"the worst, then the newest", func() []storedSnapshot {
			return []storedSnapshot{stored(1, "r", ms(90), "a"), stored(2, "r", ms(80), "a"), stored(3, "r", ms(1), "a")}
		}, Retention{Count: 1, Worst: 2}, []uint64{2, 3}},
		{"the worst of each culprit, in turns with the newest", func() []storedSnapshot {
			return []storedSnapshot{stored(1, "r", ms(9), "cron"), stored(2, "r", ms(90), "hog"), stored(3, "r", ms(80), "hog"),
				stored(4, "r", ms(70), "hog"), stored(5, "r", ms(60), "hog"), stored(6, "r", ms(50), "hog")}
		}, Retention{Count: 4, Worst: 1}, []uint64{3, 4}},
		{"without worst, the oldest go", func() []storedSnapshot {
			return []storedSnapshot{stored(1, "r", ms(90), "a"), stored(2, "r", ms(1), "a"), stored(3, "r", ms(80), "a")}
		}, Retention{Count: 1}, []uint64{1, 2}},
		{"a large one pays in bytes", func() []storedSnapshot {
			list := []storedSnapshot{stored(1, "big", ms(9), ""), stored(2, "small", ms(9), ""), stored(3, "small", ms(9), "")}
			list[0].bytes = 10 << 20
			return list
		}, Retention{Bytes: 5 << 20}, []uint64{1}},
		{"pins stay, up to half", func() []storedSnapshot {
			list := []storedSnapshot{stored(1, "r", 0, ""), stored(2, "r", 0, ""), stored(3, "r", 0, ""), stored(4, "r", 0, ""), stored(5, "r", 0, "")}
			for i := range 4 {
				list[i].pinned = true
			}
			return list
		}, Retention{Count: 4}, []uint64{3}},
		{"what a rare rule shares with a noisy one is the rare one's", func() []storedSnapshot {
			list := []storedSnapshot{stored(1, "noisy", ms(5), ""), stored(2, "noisy", ms(5), ""), stored(3, "noisy", ms(5), ""), stored(4, "noisy", ms(5), "")}
			list[0].worth = append(list[0].worth, claim{Rule: "rare", DelayNS: 1})
			return list
		}, Retention{Count: 2}, []uint64{2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, gone, _ := run(c.list(), c.keep, false)
			assert.DeepEqual(t, gone, c.want)
		})
	}
}

func TestWhyKept(t *testing.T) {
	list := []storedSnapshot{stored(1, "r", 90, "a"), stored(2, "r", 9, "b"), stored(3, "r", 50, "a"), stored(4, "r", 4, "a"),
		stored(5, "r", 3, "a"), stored(6, "q", 1, "a")}
	list[3].pinned = true
	newPlan(list, Retention{Count: 10, Worst: 1}, false)
	var got []string
	for i := range list {
		got = append(got, list[i].kept)
	}
	assert.DeepEqual(t, got, []string{KeptWorst, KeptCulprit, KeptRecent, KeptPinned, KeptNewest, KeptWorst})
}

// anyStore makes a store that may be like no real one.
func anyStore(r *rand.Rand) ([]storedSnapshot, Retention) {
	rules := 1 + r.IntN(6)
	list, used := make([]storedSnapshot, r.IntN(60)), r.IntN(2) == 0
	for i := range list {
		k := &list[i]
		k.id = ID{Rule: fmt.Sprint("r", r.IntN(rules)*r.IntN(2)), Number: uint64(i + 1)}
		k.bytes = uint64(1 + r.IntN(100))
		k.age = time.Duration(r.IntN(100))
		k.pinned, k.held = r.IntN(8) == 0, used && r.IntN(10) == 0
		for range r.IntN(3) {
			k.worth = append(k.worth, claim{Rule: fmt.Sprint("r", r.IntN(rules)), DelayNS: int64(r.IntN(20)), Culprit: fmt.Sprint(r.IntN(4))})
		}
		k.worth = worst(k.worth)
	}
	pick := func(n int) int { return r.IntN(2) * (1 + r.IntN(n)) }
	return list, Retention{Count: pick(40), Bytes: uint64(pick(2000)), Age: time.Duration(pick(100)), Worst: r.IntN(4)}
}

func sum(all []storedSnapshot) (bytes uint64) {
	for i := range all {
		bytes += all[i].bytes
	}
	return bytes
}

func TestPlanProperties(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		all, keep := anyStore(r)
		allPins := r.IntN(4) == 0
		before := slices.Clone(all)
		left, gone, limits := run(all, keep, allPins)
		fail := func(format string, args ...any) {
			t.Fatalf("seed %d: %s\n%+v, pins %v, gone %v\n%+v", seed, fmt.Sprintf(format, args...), keep, allPins, gone, all)
		}
		byNumber := map[uint64]*storedSnapshot{}
		for i := range all {
			byNumber[all[i].id.Number] = &all[i]
		}
		over := func(count int, bytes uint64) bool {
			return keep.Count > 0 && count > keep.Count || keep.Bytes > 0 && bytes > keep.Bytes
		}

		// The limits hold, unless all that is left may not be removed.
		free := slices.ContainsFunc(left, func(k storedSnapshot) bool { return !k.held && k.kept != KeptPinned })
		if over(len(left), sum(left)) && free {
			fail("limits exceeded, and something could be removed")
		}
		// Pins cannot exceed them.
		pins := slices.DeleteFunc(slices.Clone(left), func(k storedSnapshot) bool { return k.kept != KeptPinned })
		if !allPins && (keep.Count > 0 && len(pins) > keep.Count/2 || keep.Bytes > 0 && sum(pins) > keep.Bytes/2) {
			fail("pins take more than half")
		}
		// No more goes than has to, and nothing that is pinned or in use.
		count, bytes := len(all), sum(all)
		for i, n := range gone {
			k := byNumber[n]
			if k.held || k.kept == KeptPinned || allPins && k.pinned {
				fail("%d is in use, or pinned", n)
			}
			if (limits[i] == "age") != (keep.Age > 0 && k.age > keep.Age) {
				fail("%d is gone for its %s", n, limits[i])
			}
			if limits[i] != "age" && !over(count, bytes) {
				fail("%d is gone for nothing", n)
			}
			count, bytes = count-1, bytes-k.bytes
		}
		// What is too old goes.
		for i := range left {
			if k := &left[i]; keep.Age > 0 && k.age > keep.Age && !k.held && k.kept != KeptPinned {
				fail("%d is too old", k.id.Number)
			}
		}
		fair(all, left, gone, limits, keep, fail)
		ordered(all, left, gone, keep, fail)

		// The order of the list does not matter.
		shuffled := slices.Clone(before)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		other, _, _ := run(shuffled, keep, allPins)
		if !slices.Equal(numbers(other), numbers(left)) {
			fail("another order keeps %v", numbers(other))
		}
		// Once is enough.
		for i := range left {
			left[i].kept, left[i].share = "", nil
		}
		if _, more, _ := run(left, keep, allPins); len(more) > 0 {
			fail("twice removes %v", more)
		}
	}
}

// fair checks that no rule pays while it takes less than an equal part of what pins,
// what is in use, and what is too old leave.
func fair(all, left []storedSnapshot, gone []uint64, limits []string, keep Retention, fail func(string, ...any)) {
	rules := map[string]bool{}
	pins, pinned := 0, uint64(0)
	for i := range all {
		switch k := &all[i]; {
		case k.kept == KeptPinned:
			pins, pinned = pins+1, pinned+k.bytes
		case k.held: // may make its rule the largest, without anything to give
			return
		default:
			rules[k.claim.Rule] = true
		}
	}
	counts, sizes := map[string]int{}, map[string]uint64{}
	for i := range left {
		if k := &left[i]; k.kept != KeptPinned {
			counts[k.claim.Rule]++
			sizes[k.claim.Rule] += k.bytes
		}
	}
	// In reverse: with what it had just before it paid, a rule was above its part.
	for i, n := range slices.Backward(gone) {
		k := &all[slices.IndexFunc(all, func(k storedSnapshot) bool { return k.id.Number == n })]
		counts[k.claim.Rule]++
		sizes[k.claim.Rule] += k.bytes
		if limits[i] == "age" {
			continue
		}
		many := keep.Count > 0 && counts[k.claim.Rule]*len(rules) > keep.Count-pins
		large := keep.Bytes > 0 && sizes[k.claim.Rule]*uint64(len(rules)) > keep.Bytes-min(pinned, keep.Bytes)
		if !many && !large {
			fail("rule %s pays %d, and takes less than its part", k.claim.Rule, n)
		}
	}
}

// ordered checks that what is left of each rule is worth no less than what is gone.
func ordered(all, left []storedSnapshot, gone []uint64, keep Retention, fail func(string, ...any)) {
	rules := map[string][]*storedSnapshot{}
	for i := range all {
		if k := &all[i]; k.kept != KeptPinned && !k.held && (keep.Age == 0 || k.age <= keep.Age) {
			rules[k.claim.Rule] = append(rules[k.claim.Rule], k)
		}
	}
	alive := numbers(left)
	for rule, list := range rules {
		if slices.ContainsFunc(all, func(k storedSnapshot) bool { return k.held && k.claim.Rule == rule }) {
			continue // takes a place of its own
		}
		n := 0
		for _, k := range list {
			if slices.Contains(alive, k.id.Number) {
				n++
			}
		}
		slices.SortFunc(list, func(a, b *storedSnapshot) int {
			return cmp.Or(cmp.Compare(b.claim.DelayNS, a.claim.DelayNS), cmp.Compare(b.id.Number, a.id.Number))
		})
		newest := slices.MaxFunc(list, func(a, b *storedSnapshot) int { return cmp.Compare(a.id.Number, b.id.Number) })
		for i, k := range list {
			dead := slices.Contains(gone, k.id.Number)
			switch {
			case dead && k == newest && n >= 2:
				fail("rule %s keeps %d, and not its newest", rule, n)
			case dead && k.claim.DelayNS > 0 && i < keep.Worst && i == 0 && n >= 1:
				fail("rule %s keeps %d, and not its worst", rule, n)
			case dead && k.claim.DelayNS > 0 && i < keep.Worst && i+1 < n:
				fail("rule %s keeps %d, and not %d", rule, n, k.id.Number)
			}
		}
	}
}

// What cannot be removed after all is passed over, and offered once: the next of the
// largest rule goes for it.
func TestPlanFailures(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		all, keep := anyStore(r)
		p := newPlan(all, keep, false)
		stuck, left, bytes := map[uint64]bool{}, len(all), sum(all)
		for k, _ := p.next(); k != nil; k, _ = p.next() {
			n := k.id.Number
			assert.Assert(t, !stuck[n] && !k.held && k.kept != KeptPinned, "seed %d: %d again", seed, n)
			if stuck[n] = true; r.IntN(3) > 0 {
				p.removed(k)
				left, bytes = left-1, bytes-k.bytes
				if k.share != nil && len(p.shares.list) > 1 {
					largest := p.shares.list[0]
					for _, s := range p.shares.list {
						assert.Assert(t, len(s.list) == 0 || len(largest.list) > 0 && p.shares.size(s) <= p.shares.size(largest), "seed %d", seed)
					}
				}
			}
		}
		if keep.Count > 0 && left > keep.Count || keep.Bytes > 0 && bytes > keep.Bytes {
			for i := range all {
				k := &all[i]
				assert.Assert(t, k.held || k.kept == KeptPinned || stuck[k.id.Number], "seed %d: %d was not offered", seed, k.id.Number)
			}
		}
	}
}

// A store of 10,000 in as many rules, all to be removed, takes no more than n log n.
func TestPlanMany(t *testing.T) {
	for _, rules := range []int{1, 20, 10000} {
		var all []storedSnapshot
		for i := range 10000 {
			all = append(all, stored(i, fmt.Sprint("r", i%rules), time.Duration(1+i*7919%10007), fmt.Sprint(i%300)))
		}
		left, _, _ := run(all, Retention{Count: 100, Bytes: 50 << 20, Worst: 3}, false)
		assert.Equal(t, len(left), 50)
	}
}

func BenchmarkPlan(b *testing.B) {
	var all []storedSnapshot
	for i := range 10000 {
		all = append(all, stored(i, fmt.Sprint("r", i%20), time.Duration(1+i*7919%10007), fmt.Sprint(i%300)))
	}
	for b.Loop() {
		for i := range all {
			all[i].kept = ""
		}
		p := newPlan(all, Retention{Count: 9999, Worst: 3}, false)
		k, _ := p.next()
		p.removed(k)
	}
}
