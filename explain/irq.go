package explain

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
	unknown := func(from, to uint64) {
		out = w.add(out, w.unexplained(w.outlier.TID, from, to, w.m.unknownReason(from)))
	}
	var runs []run
	if c := w.m.cpus[w.outlier.CPU]; c != nil {
		runs = c.runs
	}
	split(runs, from, to, func(r *run, from, to uint64) {
		p := piece{from: from, to: to, task: w.outlier.TID, cpu: w.outlier.CPU, state: "runnable", cause: Preempted, why: "delayed softirqs"}
		switch {
		case r.tid < 0:
			unknown(from, to)
			return
		case r.tid == 0:
			p.cause, p.by, p.why = Runnable, w.m.whoSelf("idle"), "the idle CPU had to wake up"
		default:
			p.by = w.m.whoAtPrio(r.tid, r.prio)
		}
		out = w.add(out, p)
	}, unknown)
	return out
}
