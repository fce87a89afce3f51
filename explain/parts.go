package explain

import (
	"cmp"
	"fmt"
	"slices"
)

type partKey struct {
	cause  Cause
	by     *Who
	reason string
	wait   string
}

func (p *piece) key() partKey { return partKey{p.cause, p.by, p.reason, waits[p.wait].name} }

func (p *Part) key() partKey { return partKey{p.Cause, p.By, p.Reason, p.Wait} }

// sum is a part being added up.
type sum struct {
	Part
	evidence [len(evidences)]uint64 // ns each
}

// sumParts sums up pieces by cause and culprit, largest first. With roots, each piece
// is replaced by those below it, which are no surer than what led to them.
func sumParts(pieces []piece, roots bool) []Part {
	sums := map[partKey]*sum{}
	sumInto(pieces, roots, byRecords, sums)
	out := make([]Part, 0, len(sums))
	for _, p := range sums {
		p.weigh(&p.evidence)
		out = append(out, p.Part)
	}
	slices.SortFunc(out, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.by(), b.by()), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Wait, b.Wait))
	})
	return out
}

func sumInto(pieces []piece, roots bool, above evidence, sums map[partKey]*sum) {
	for i := range pieces {
		p := &pieces[i]
		e := weaker(p.evidence, above)
		if roots && len(p.below) > 0 {
			sumInto(p.below, true, e, sums)
			continue
		}
		s := sums[p.key()]
		if s == nil {
			s = &sum{Part: Part{Cause: p.cause, By: p.by, Reason: p.reason, Wait: waits[p.wait].name}}
			sums[p.key()] = s
		}
		s.NS += int64(p.to - p.from)
		s.evidence[e] += p.to - p.from
		s.Approximate = s.Approximate || p.sampled
		s.Count++
	}
}

func (p *Part) by() string {
	if p.By == nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d %d", p.By.Kind, p.By.Name, p.By.TID, p.By.Prio)
}
