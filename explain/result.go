package explain

import (
	"cmp"
	"slices"
)

// explain explains one outlier.
func (m *model) explain(o *Outlier) Result {
	w := &walker{m: m, outlier: o}
	r := Result{
		Rule: o.Rule, Track: o.Track, Cause: o.Cause, DelayNS: int64(o.End - min(o.Start, o.End)),
		StartMonoNS: o.Start, EndMonoNS: o.End, Task: *m.whoTask(o.TID), Parts: []Part{}, Path: []Step{},
	}
	if r.Task.Comm == "" {
		r.Task.Comm, r.Task.PID = o.Comm, o.PID
		r.Task.Name = taskWords(o.Comm, o.TID)
	}
	var pieces []piece
	switch o.Track {
	case "block":
		pieces = w.request(o)
	case "irq", "softirq":
		pieces = w.interrupt(o)
	default:
		pieces = w.follow(o.TID, o.Start, o.End)
	}
	pieces = join(pieces)
	r.Parts = parts(pieces)
	r.Path = m.steps(pieces, 0, r.Path)
	slices.SortStableFunc(r.Path, func(a, b Step) int {
		if a.FromMonoNS != b.FromMonoNS {
			return cmp.Compare(a.FromMonoNS, b.FromMonoNS)
		}
		return a.Depth - b.Depth
	})
	if len(r.Parts) > 0 {
		r.Blame = r.Parts[0]
		r.Root = root(pieces, &r.Blame)
	}
	v := verdict{m: m, o: o, r: &r, pieces: pieces}
	r.Verdict, r.Advice = v.sentence(), v.advice()
	return r
}

// request explains a block request.
func (w *walker) request(o *Outlier) []piece {
	p := piece{from: o.Start, to: o.End, task: o.TID, cpu: -1, state: "blocked"}
	r := w.m.requestAt(o.Start, o.End, o.TID)
	if r == nil {
		return []piece{w.unexplained(o.TID, o.Start, o.End, "the trace does not have the request; is the group block recorded?")}
	}
	return w.disk(p, r)
}

// interrupt explains time in an interrupt handler or a softirq, or from its
// raise to its run.
func (w *walker) interrupt(o *Outlier) []piece {
	var out []piece
	t := w.m.task(o.TID)
	w.overlay(o.CPU, o.Start, o.End, func(v *over, from, to uint64) {
		out = append(out, w.overPiece(t, o.CPU, v, from, to, "interrupted"))
	}, func(from, to uint64) {
		p := piece{from: from, to: to, task: o.TID, cpu: o.CPU}
		switch {
		case o.Raised:
			p.state, p.cause, p.by = "running", Running, w.m.whoTask(o.TID)
			p.why = "which kept softirqs from running"
		case o.Track == "irq":
			p.state, p.cause, p.by = "interrupted", IRQ, &Who{Kind: KindIRQ, Name: irqName(o.IRQ)}
		default:
			p.state, p.cause, p.by = "interrupted", Softirq, &Who{Kind: KindSoftirq, Name: o.Vector}
		}
		out = append(out, p)
	})
	return out
}

func sameWho(a, b *Who) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Name == b.Name && a.TID == b.TID
}

// join puts neighbours together that say the same.
func join(in []piece) []piece {
	var out []piece
	for _, p := range in {
		if n := len(out); n > 0 {
			l := &out[n-1]
			if l.to == p.from && l.task == p.task && l.cpu == p.cpu && l.state == p.state && l.cause == p.cause &&
				sameWho(l.by, p.by) && l.why == p.why && sameWho(l.waker, p.waker) {
				l.to = p.to
				l.below = append(l.below, p.below...)
				continue
			}
		}
		out = append(out, p)
	}
	for i := range out {
		out[i].below = join(out[i].below)
	}
	return out
}

// parts adds up what went to the same cause and culprit, the largest first.
func parts(pieces []piece) []Part {
	type id struct {
		cause  Cause
		kind   string
		name   string
		tid    int
		reason string
	}
	at := map[id]int{}
	out := []Part{}
	for i := range pieces {
		p := &pieces[i]
		k := id{cause: p.cause, reason: p.reason}
		if p.by != nil {
			k.kind, k.name, k.tid = p.by.Kind, p.by.Name, p.by.TID
		}
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k] = n
			out = append(out, Part{Cause: p.cause, By: p.by, Reason: p.reason})
		}
		out[n].NS += int64(p.to - p.from)
		out[n].Count++
	}
	slices.SortStableFunc(out, func(a, b Part) int { return cmp.Compare(b.NS, a.NS) })
	return out
}

// steps lists the pieces and what lies below them.
func (m *model) steps(pieces []piece, depth int, out []Step) []Step {
	for i := range pieces {
		p := &pieces[i]
		if len(out) >= maxSteps && depth > 0 {
			return out
		}
		out = append(out, Step{
			FromMonoNS: p.from, ToMonoNS: p.to, Task: *m.whoTask(p.task), CPU: p.cpu, Depth: depth,
			State: p.state, Cause: p.cause, By: p.by, Why: p.why, Waker: p.waker,
		})
		out = m.steps(p.below, depth+1, out)
	}
	return out
}

// root follows the largest part down to where the path ends: nil if it leads
// nowhere.
func root(pieces []piece, blame *Part) *Part {
	var found *Part
	cause, by := blame.Cause, blame.By
	for range maxDepth {
		var below []piece
		var all uint64
		for i := range pieces {
			if p := &pieces[i]; p.cause == cause && sameWho(p.by, by) {
				below = append(below, p.below...)
				all += p.to - p.from
			}
		}
		list := parts(below)
		if len(list) == 0 || list[0].Cause == Unexplained || uint64(list[0].NS)*2 < all {
			return found
		}
		found = &list[0]
		cause, by, pieces = found.Cause, found.By, below
	}
	return found
}
