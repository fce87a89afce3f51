package explain

import "sort"

// interruptPieces explains an irq or softirq outlier by what its CPU did.
func (w *walker) interruptPieces() []piece {
	o := w.outlier
	var out []piece
	cover := func(v *interruption, from, to uint64) {
		out = w.add(out, w.interruptionPiece(o.TID, o.CPU, v, from, to, "interrupted"))
	}
	if o.Raised {
		w.overlay(o.CPU, o.Start, o.End, cover, func(from, to uint64) { out = w.raisedSoftirq(out, from, to) })
		return out
	}
	own := &context{kind: KindIRQ, number: o.IRQ, name: o.Name}
	if o.Track == "softirq" {
		own = &context{kind: KindSoftirq, name: o.Name}
	}
	// Time in no other context is its own, even if its own events are missing.
	w.overlay(o.CPU, o.Start, o.End, func(v *interruption, from, to uint64) {
		if v.kind == own.kind && v.name == own.name {
			v = &interruption{context: own}
		}
		cover(v, from, to)
	}, func(from, to uint64) { cover(&interruption{context: own}, from, to) })
	return out
}

// raisedSoftirq explains the time a raised softirq waited for tasks.
func (w *walker) raisedSoftirq(out []piece, from, to uint64) []piece {
	at := from
	unknown := func(from, to uint64) {
		out = w.add(out, w.unexplained(w.outlier.TID, from, to, w.m.unknownReason(from)))
	}
	if c := w.m.cpus[w.outlier.CPU]; c != nil {
		i := sort.Search(len(c.runs), func(i int) bool { return c.runs[i].to > from })
		for ; i < len(c.runs) && c.runs[i].from < to; i++ {
			r := &c.runs[i]
			lo, hi := max(r.from, at), min(r.to, to)
			if lo >= hi {
				continue
			}
			unknown(at, lo)
			p := piece{from: lo, to: hi, task: w.outlier.TID, cpu: w.outlier.CPU, state: "runnable", cause: Preempted, why: "kept softirqs from running"}
			switch {
			case r.tid < 0:
				unknown(lo, hi)
			case r.tid == 0:
				p.cause, p.by, p.why = Runnable, w.m.whoSelf("idle"), "the CPU was idle and had to take it up"
				out = w.add(out, p)
			default:
				p.by = w.m.whoAtPrio(r.tid, r.prio)
				out = w.add(out, p)
			}
			at = hi
		}
	}
	unknown(at, to)
	return out
}
