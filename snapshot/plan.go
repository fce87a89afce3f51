package snapshot

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// Why a snapshot is kept, see Info.Kept.
const (
	KeptPinned  = "pinned"
	KeptWorst   = "worst"   // among the worst of its rule
	KeptNewest  = "newest"  // of its rule
	KeptCulprit = "culprit" // among the worst of its rule and culprit
	KeptRecent  = "recent"  // nothing else speaks for it
)

// storedSnapshot is what retention knows of a complete snapshot.
type storedSnapshot struct {
	id     ID
	bytes  uint64
	age    time.Duration
	worth  []claim
	pinned bool
	held   bool // in use: counts, and cannot be removed

	claim claim  // by which it is judged
	kept  string // why it is kept
	share *share // that it counts against; nil if pinned
}

// plan decides which snapshots to remove, one by one: those past the age limit, then,
// as long as the others exceed a limit, the least worth keeping of the rule that takes
// most. It looks at nothing but its arguments.
//
// A pinned snapshot is not removed. As limits hold in any case, pins take at most half
// of each; they are honored in the order of their numbers.
type plan struct {
	keep   Retention
	count  int
	total  uint64
	aged   []*storedSnapshot
	shares shares
	over   [2]bool // the limits that shares is ordered by
}

// newPlan plans for the snapshots in all, in any order, and notes in each why it is
// kept. With allPins, pins have no limit.
func newPlan(all []storedSnapshot, keep Retention, allPins bool) *plan {
	p := &plan{keep: keep, count: len(all)}
	order := make([]*storedSnapshot, len(all))
	for i := range all {
		order[i] = &all[i]
		p.total += all[i].bytes
	}
	slices.SortFunc(order, func(a, b *storedSnapshot) int { return compareIDs(a.id, b.id) })
	charge(order)
	rules := map[string]*share{}
	pins, pinned := 0, uint64(0)
	for _, k := range order {
		if k.pinned && (allPins || keep.pinFits(pins+1, pinned+k.bytes)) {
			pins, pinned = pins+1, pinned+k.bytes
			k.kept = KeptPinned
			continue
		}
		if keep.Age > 0 && k.age > keep.Age && !k.held {
			p.aged = append(p.aged, k)
			continue
		}
		s := rules[k.claim.Rule]
		if s == nil {
			s = &share{index: len(p.shares.list)}
			rules[k.claim.Rule] = s
			p.shares.list = append(p.shares.list, s)
		}
		k.share = s
		s.list = append(s.list, k)
		s.count++
		s.bytes += k.bytes
	}
	for _, s := range p.shares.list {
		s.list = byWorth(s.list, keep.Worst)
		s.skipHeld()
	}
	p.shares.keep = keep
	return p
}

// pinFits reports whether that many pinned snapshots of that size are allowed.
func (r *Retention) pinFits(count int, bytes uint64) bool {
	return (r.Count == 0 || count <= r.Count/2) && (r.Bytes == 0 || bytes <= r.Bytes/2)
}

// next returns the next snapshot to remove and the limit that asks for it, or nil. It
// returns each one once; those that are gone must be told to removed.
func (p *plan) next() (k *storedSnapshot, limit string) {
	if len(p.aged) > 0 {
		k, p.aged = p.aged[0], p.aged[1:]
		return k, "age"
	}
	over := [2]bool{p.keep.Count > 0 && p.count > p.keep.Count, p.keep.Bytes > 0 && p.total > p.keep.Bytes}
	if !over[0] && !over[1] {
		return nil, ""
	}
	if over != p.over {
		p.over, p.shares.over = over, over
		heap.Init(&p.shares)
	}
	if len(p.shares.list) == 0 || len(p.shares.list[0].list) == 0 {
		return nil, ""
	}
	s := p.shares.list[0]
	k = s.last()
	s.list = s.list[:len(s.list)-1]
	s.skipHeld()
	heap.Fix(&p.shares, 0)
	if over[0] {
		return k, "count"
	}
	return k, "bytes"
}

// removed takes a snapshot that next returned out of the sums.
func (p *plan) removed(k *storedSnapshot) {
	p.count--
	p.total -= min(k.bytes, p.total)
	if s := k.share; s != nil {
		s.count--
		s.bytes -= min(k.bytes, s.bytes)
		heap.Fix(&p.shares, s.index)
	}
}

// charge decides which rule each snapshot counts against: of those that have an outlier
// in it, the one that is in the fewest snapshots. So what a rare rule has in common
// with a noisy one is not lost with the noisy one's.
func charge(order []*storedSnapshot) {
	holders := map[string]int{}
	for _, k := range order {
		for _, c := range k.claims() {
			holders[c.Rule]++
		}
	}
	for _, k := range order {
		k.claim = slices.MinFunc(k.claims(), func(a, b claim) int {
			return cmp.Or(cmp.Compare(holders[a.Rule], holders[b.Rule]), cmp.Compare(a.Rule, b.Rule))
		})
	}
}

// claims returns at least one.
func (k *storedSnapshot) claims() []claim {
	if len(k.worth) > 0 {
		return k.worth
	}
	return []claim{{Rule: k.id.Rule}}
}

// byWorth orders the snapshots of one rule, oldest first before, by how much they are
// worth keeping: the worst one, the newest, the rest of the worst n, and then, in turns,
// the worst n of each culprit and the newest. Those without a known delay are not worst.
func byWorth(list []*storedSnapshot, n int) []*storedSnapshot {
	newest := slices.Clone(list)
	slices.Reverse(newest)
	byDelay := slices.DeleteFunc(slices.Clone(newest), func(k *storedSnapshot) bool { return k.claim.DelayNS == 0 })
	slices.SortStableFunc(byDelay, func(a, b *storedSnapshot) int { return cmp.Compare(b.claim.DelayNS, a.claim.DelayNS) })
	worst := byDelay[:min(n, len(byDelay))]

	out := make([]*storedSnapshot, 0, len(list))
	place := func(k *storedSnapshot, kept string) {
		if k.kept == "" {
			k.kept = kept
			out = append(out, k)
		}
	}
	if len(worst) > 0 {
		place(worst[0], KeptWorst)
	}
	place(newest[0], KeptNewest)
	for _, k := range worst {
		place(k, KeptWorst)
	}
	culprits := worstOfCulprits(byDelay, n)
	for len(out) < len(list) {
		culprits = skipPlaced(culprits)
		if len(culprits) > 0 {
			place(culprits[0], KeptCulprit)
		}
		newest = skipPlaced(newest)
		if len(newest) > 0 {
			place(newest[0], KeptRecent)
		}
	}
	return out
}

// worstOfCulprits returns the worst n of each culprit: first the worst of all, then
// the second of all, and so on. byDelay is in descending order.
func worstOfCulprits(byDelay []*storedSnapshot, n int) []*storedSnapshot {
	ranks := make([][]*storedSnapshot, n)
	seen := map[string]int{}
	for _, k := range byDelay {
		if by := k.claim.Culprit; by != "" && seen[by] < n {
			ranks[seen[by]] = append(ranks[seen[by]], k)
			seen[by]++
		}
	}
	return slices.Concat(ranks...)
}

func skipPlaced(list []*storedSnapshot) []*storedSnapshot {
	for len(list) > 0 && list[0].kept != "" {
		list = list[1:]
	}
	return list
}

// share is what one rule takes.
type share struct {
	list  []*storedSnapshot // that can be removed, least worth keeping last
	count int               // with those that cannot
	bytes uint64
	index int // in shares.list
}

func (s *share) last() *storedSnapshot { return s.list[len(s.list)-1] }

// skipHeld drops what is in use from the end, so that the last can be removed.
func (s *share) skipHeld() {
	for len(s.list) > 0 && s.last().held {
		s.list = s.list[:len(s.list)-1]
	}
}

// shares implements heap.Interface: the rule that takes most of the limits that are
// exceeded, and has something to remove, is first.
type shares struct {
	list []*share
	keep Retention
	over [2]bool // count, bytes
}

// size is the greater part that a rule takes of a limit that is exceeded.
func (h *shares) size(s *share) (part float64) {
	if h.over[0] {
		part = float64(s.count) / float64(h.keep.Count)
	}
	if h.over[1] {
		part = max(part, float64(s.bytes)/float64(h.keep.Bytes))
	}
	return part
}

// Len implements heap.Interface.
func (h *shares) Len() int { return len(h.list) }

// Less implements heap.Interface. Of equal rules, the one whose next is oldest pays.
func (h *shares) Less(i, j int) bool {
	a, b := h.list[i], h.list[j]
	if len(a.list) == 0 || len(b.list) == 0 {
		return len(a.list) > 0
	}
	return cmp.Or(cmp.Compare(h.size(b), h.size(a)), compareIDs(a.last().id, b.last().id)) < 0
}

// Swap implements heap.Interface.
func (h *shares) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].index, h.list[j].index = i, j
}

// Push implements heap.Interface; shares are only reordered.
func (h *shares) Push(any) { panic("a share was added") }

// Pop implements heap.Interface; shares are only reordered.
func (h *shares) Pop() any { panic("a share was removed") }
