package explain

import (
	"cmp"
	"slices"
)

// handed is a stretch of a request's path: in a thread that carried its token, or until one
// took it over.
type handed struct {
	span
	tid   int  // 0: none did, nor does later
	queue bool // tid carries it from its end on
}

// maxHanded bounds the stretches of a request that are looked at: the latest.
const maxHanded = 4096

// requestPieces follows the token of an activity from thread to thread; ok: some carried it.
func (w *walker) requestPieces() (out []piece, ok bool) {
	o := w.outlier
	var times []CarriedTime
	w.m.carriedBy(o.TID) // reads them
	for i := range w.m.activities {
		if c := &w.m.activities[i]; c.Token == o.Token && o.Token != "" {
			times = append(times, c.Times...)
		}
	}
	path := w.handOvers(times)
	if len(path) == 0 {
		return nil, false
	}
	threads := map[int]bool{}
	for _, h := range path {
		switch {
		case h.queue:
			out = w.add(out, w.queuePiece(h))
		case h.tid == 0:
			out = w.add(out, w.unexplained(0, h.from, h.to, "no thread carried it"))
		default:
			threads[h.tid] = true
			out = append(out, w.follow(w.m.lifeAt(h.tid, h.to), h.from, h.to)...)
		}
	}
	w.threads = len(threads)
	return out, true
}

// handOvers finds the path from its end: who carried the token last, and so on. Empty: nobody
// did.
func (w *walker) handOvers(times []CarriedTime) (path []handed) {
	o := w.outlier
	times = slices.DeleteFunc(slices.Clone(times), func(t CarriedTime) bool { return t.To <= o.Start || t.From >= o.End || t.From >= t.To })
	slices.SortFunc(times, func(a, b CarriedTime) int { return cmp.Or(cmp.Compare(b.To, a.To), cmp.Compare(a.From, b.From)) })
	times = times[:min(len(times), maxHanded)]
	at, next := o.End, 0
	for len(times) > 0 && at > o.Start {
		var best *CarriedTime
		for i := range times { // of several at once the one that had it longest
			t := &times[i]
			if t.From < at && (best == nil || min(t.To, at) > min(best.To, at) || min(t.To, at) == min(best.To, at) && t.From < best.From) {
				best = t
			}
		}
		if best == nil {
			break
		}
		if to := min(best.To, at); to < at {
			path = append(path, handed{span{to, at}, next, next != 0})
			at = to
		}
		from := max(best.From, o.Start)
		path = append(path, handed{span{from, at}, best.TID, false})
		at, next = from, best.TID
	}
	if len(path) > 0 && at > o.Start {
		path = append(path, handed{span{o.Start, at}, next, next != 0})
	}
	slices.Reverse(path)
	return path
}

// queuePiece is a wait of a request until a thread takes it over: for what that one does
// until then.
func (w *walker) queuePiece(h handed) piece {
	tid := w.m.lifeAt(h.tid, h.to+1)
	p := piece{
		from: h.from, to: h.to, cpu: -1, state: "blocked", cause: Task, by: w.m.whoTask(tid), why: "in a queue", evidence: byTakeOver,
	}
	w.descend(&p, tid)
	return p
}
