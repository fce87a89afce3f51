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
// is replaced by those below it.
func sumParts(pieces []piece, roots bool) []Part {
	sums := map[partKey]*sum{}
	sumInto(pieces, roots, sums)
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

func sumInto(pieces []piece, roots bool, sums map[partKey]*sum) {
	for i := range pieces {
		p := &pieces[i]
		if roots && len(p.below) > 0 {
			sumInto(p.below, true, sums)
			continue
		}
		s := sums[p.key()]
		if s == nil {
			s = &sum{Part: Part{Cause: p.cause, By: p.by, Reason: p.reason, Wait: waits[p.wait].name}}
			sums[p.key()] = s
		}
		s.NS += int64(p.to - p.from)
		s.evidence[p.evidence] += p.to - p.from
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
		for _, s := range mergeShort(pieces, most) {
			p := s.piece
			step := Step{
				FromMonoNS: p.from, ToMonoNS: p.to, Task: *m.whoIs(p.task), CPU: p.cpu, Depth: depth,
				State: p.state, Cause: p.cause, By: p.by, Why: p.why, Waker: p.waker, Count: s.count, Wait: waits[p.wait].name,
			}
			if p.site.Site != nil {
				step.Site = Site{Function: p.site.Function, Words: p.site.Words}
			}
			step.Activity = w.stepActivity(p)
			if p.stack != nil {
				step.Stack = m.frames(&p.stack.Stack)
			}
			if p.cause != Unexplained {
				step.Confidence, step.Evidence = evidences[p.evidence].confidence, evidences[p.evidence].words
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

// attach adds stacks to the slow task's steps.
func attach(path []Step, stacks []Stack, end uint64) {
	for i := range stacks {
		s := &stacks[i]
		best, least := (*Step)(nil), uint64(stackSlack)
		for j := range path {
			p := &path[j]
			if p.Depth > 0 || p.State != "blocked" && p.State != "runnable" {
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

type mergedPiece struct {
	*piece
	count int
}

// mergeShort merges adjacent short pieces until at most most are left.
func mergeShort(pieces []piece, most int) []mergedPiece {
	out := make([]mergedPiece, 0, min(len(pieces), most))
	var least uint64
	if len(pieces) > most {
		lengths := make([]uint64, len(pieces))
		for i := range pieces {
			lengths[i] = pieces[i].to - pieces[i].from
		}
		slices.Sort(lengths)
		least = lengths[len(lengths)-most/2] + 1
	}
	for i := 0; i < len(pieces); {
		j := i
		for j < len(pieces) && pieces[j].to-pieces[j].from < least {
			j++
		}
		if j-i < 2 {
			out = append(out, mergedPiece{piece: &pieces[i]})
			i++
			continue
		}
		out = append(out, mergedPiece{merge(pieces[i:j]), j - i})
		i = j
	}
	return out
}

// merge returns one piece for several, with the cause of the longest.
func merge(pieces []piece) *piece {
	best := 0
	for i := range pieces {
		if pieces[i].to-pieces[i].from > pieces[best].to-pieces[best].from {
			best = i
		}
	}
	p := pieces[best]
	p.from, p.to, p.below, p.waker = pieces[0].from, pieces[len(pieces)-1].to, nil, nil
	p.why = fmt.Sprintf("the longest of %d short stretches", len(pieces))
	return &p
}
