package explain

import (
	"cmp"
	"slices"

	"github.com/tailcam/tailcam/explain/waitsites"
)

// Limits of a path's length. One that exceeds its share of allSteps is shortened: a
// quarter is for the slow task, the rest for what it waited for.
const (
	allSteps      = 1 << 16 // of all outliers in a report
	maxSteps      = 2048    // of one outlier
	minSteps      = 128
	maxBelowSteps = 32 // below one wait
)

// countPieces counts pieces recursively.
func countPieces(pieces []piece) int {
	n := len(pieces)
	for i := range pieces {
		n += countPieces(pieces[i].below)
	}
	return n
}

// steps lists the path in order of time; deeper steps follow the one they explain.
func (w *walker) steps(pieces []piece) []Step {
	m := w.m
	out := []Step{}
	share := min(max(allSteps/max(len(m.outlierTimes), 1), minSteps), maxSteps)
	own, each := share/4, maxBelowSteps
	if countPieces(pieces) <= share {
		own, each = share, share
	}
	var add func(pieces []piece, depth, most int)
	add = func(pieces []piece, depth, most int) {
		for _, s := range mergeShort(pieces, most, m.names.Activities != nil) {
			p := s.piece
			step := Step{
				FromMonoNS: p.from, ToMonoNS: p.to, Task: *m.whoIs(p.task), CPU: p.cpu, Depth: depth,
				State: p.state, Cause: p.cause, By: p.by, Why: p.why, Waker: p.waker, Wait: waits[p.wait].name,
			}
			if p.site.Site != nil {
				step.Site = Site{Function: p.site.Function, Words: p.site.Words}
			}
			if p.stack != nil {
				step.Stack = m.frames(&p.stack.Stack)
			}
			switch {
			case s.sum != nil:
				step.Merged, step.Count, step.Confidence, step.Evidence = true, s.sum.Count, s.sum.Confidence, s.sum.Evidence
				step.Activity = w.stepActivity(s.times)
			default:
				if step.Activity = w.stepActivity([]asked{p.asked()}); step.Activity == nil {
					step.Activity = w.stepMoment(p)
				}
				if p.cause != Unexplained {
					step.Confidence, step.Evidence = evidences[p.evidence].confidence, evidences[p.evidence].words
				}
			}
			out = append(out, step)
			if len(p.below) > 0 && len(out) < share {
				add(p.below, depth+1, each)
			}
		}
	}
	add(pieces, 0, own)
	return out
}

// stackSlack is the maximum distance in ns between a stack and its switch or wake-up.
const stackSlack = 100_000

// attach adds stacks to the slow task's steps, but not to merged ones, which are not at their
// place.
func attach(path []Step, stacks []Stack, end uint64) {
	for i := range stacks {
		s := &stacks[i]
		best, least := (*Step)(nil), uint64(stackSlack)
		for j := range path {
			p := &path[j]
			if p.Depth > 0 || p.Merged || p.State != "blocked" && p.State != "runnable" {
				continue
			}
			at := p.FromMonoNS
			if s.Waker && p.State == "blocked" || s.At == end {
				at = p.ToMonoNS
			}
			if off := max(at, s.At) - min(at, s.At); off < least {
				best, least = p, off
			}
		}
		switch {
		case best == nil:
		case s.Waker:
			best.WakerStack = s.Frames
		default:
			best.Stack = s.Frames
		}
	}
}

// merged is a step of a path: a piece, or several that were added up.
type merged struct {
	*piece
	sum   *sum    // nil: it is that piece
	times []asked // of what was added up
}

// asked is when the task of a piece was at it.
func (p *piece) asked() asked { return asked{span{p.from, p.to}, p.task, p.to - p.from} }

// mergeShort merges adjacent short pieces until at most most are left, or no long ones. With
// times, it keeps when each of them was.
func mergeShort(pieces []piece, most int, times bool) []merged {
	if len(pieces) <= most {
		out := make([]merged, len(pieces))
		for i := range pieces {
			out[i].piece = &pieces[i]
		}
		return out
	}
	lengths := make([]uint64, len(pieces))
	for i := range pieces {
		lengths[i] = pieces[i].to - pieces[i].from
	}
	slices.Sort(lengths)
	for long := most / 4; ; long /= 2 { // each may stand between two others, which are several steps
		least := uint64(forever)
		if long > 0 {
			least = lengths[len(lengths)-long] + 1
		}
		if out := mergeBelow(pieces, least, times); len(out) <= most || long == 0 {
			return out
		}
	}
}

// mergeBelow merges adjacent pieces that are shorter than least.
func mergeBelow(pieces []piece, least uint64, times bool) []merged {
	var out []merged
	for i := 0; i < len(pieces); {
		j := i
		for j < len(pieces) && pieces[j].to-pieces[j].from < least {
			j++
		}
		if j-i < 2 {
			out = append(out, merged{piece: &pieces[i]})
			i++
			continue
		}
		out = append(out, merge(pieces[i:j], times)...)
		i = j
	}
	return out
}

// mostMerged is how many steps one run of short pieces becomes, beside those of others.
const mostMerged = 4

// stepKey is what the pieces of a merged step have in common.
type stepKey struct {
	partKey
	task  int
	state string
}

// merge adds up pieces that follow each other by what they are, so that each cause has its time:
// the largest first, without a gap. Of more than mostMerged, the rest are others, by cause.
func merge(pieces []piece, times bool) []merged {
	at := map[stepKey]int{}
	var out []merged
	for i := range pieces {
		p := &pieces[i]
		key := stepKey{p.key(), p.task, p.state}
		n, ok := at[key]
		if !ok {
			n = len(out)
			at[key] = n
			out = append(out, newMerged(p))
		}
		if out[n].take(p); times {
			out[n].times = append(out[n].times, p.asked())
		}
	}
	slices.SortStableFunc(out, func(a, b merged) int { return cmp.Compare(b.sum.NS, a.sum.NS) })
	if len(out) > mostMerged {
		out = append(out[:mostMerged:mostMerged], others(out[mostMerged:])...)
	}
	begin := pieces[0].from
	for i := range out {
		m := &out[i]
		m.from, m.to = begin, begin+uint64(m.sum.NS)
		begin = m.to
		m.why = plural(m.sum.Count, "short interval") + ", added up"
		if m.reason != "" {
			m.why = m.reason + ": " + m.why
		}
		m.sum.weigh(&m.sum.evidence)
	}
	return out
}

// newMerged is a step without a time yet, of what a piece is.
func newMerged(p *piece) merged {
	q := *p
	q.below, q.waker, q.stack = nil, nil, nil
	return merged{piece: &q, sum: &sum{Part: Part{Cause: p.cause}}}
}

// take adds a piece to a step.
func (m *merged) take(p *piece) {
	m.sum.NS += int64(p.to - p.from)
	m.sum.Count++
	m.sum.evidence[p.evidence] += p.to - p.from
	m.sampled = m.sampled || p.sampled
	m.keepCommon(p)
}

// keepCommon keeps of a step what it shares with a piece.
func (m *merged) keepCommon(p *piece) {
	if m.cpu != p.cpu {
		m.cpu = -1
	}
	if m.site != p.site {
		m.site = waitsites.Match{}
	}
}

// others joins steps of one cause and state.
func others(list []merged) []merged {
	type kind struct {
		cause Cause
		state string
	}
	at := map[kind]int{}
	var out []merged
	for i := range list {
		m := &list[i]
		key := kind{m.cause, m.state}
		n, ok := at[key]
		if !ok {
			at[key] = len(out)
			out = append(out, *m)
			continue
		}
		to := &out[n]
		to.sum.NS += m.sum.NS
		to.sum.Count += m.sum.Count
		for e, ns := range m.sum.evidence {
			to.sum.evidence[e] += ns
		}
		to.sampled = to.sampled || m.sampled
		to.times = append(to.times, m.times...)
		to.keepCommon(m.piece)
		if to.by != m.by {
			to.by = otherCulprits
		}
		if to.wait != m.wait {
			to.wait = waitAny
		}
		if to.reason != m.reason {
			to.reason = "several reasons"
		}
	}
	return out
}

// otherCulprits are those of steps that were joined.
var otherCulprits = &Who{Kind: KindUnknown, Name: "others"}
