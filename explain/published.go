package explain

import (
	"cmp"
	"slices"
)

// Published is the trace that the program of a task had published for it at one moment, while it
// was the current task.
type Published struct {
	TID             int
	TraceID, SpanID string
	// Of who woke the slow task: when it had fallen asleep, and was woken. 0: of who kept its CPU.
	From, At uint64
}

// What a trace is known by that was read at one moment.
const (
	asItWoke = "as it woke it"
	asItLeft = "as it left the CPU"
)

// leastRun is how long a task has run, at least, when its trace is read as it leaves the CPU.
const leastRun = 1_000_000

// collectPublished notes what tasks published for all of the time of an outlier of theirs.
func (m *model) collectPublished(outliers []Outlier) {
	for i := range outliers {
		o := &outliers[i]
		if o.TraceID == "" || o.TID <= 0 || o.Start >= o.End {
			continue
		}
		if m.published == nil {
			m.published = map[int][]carried{}
		}
		c := &Carried{Activity: Activity{TraceID: o.TraceID, SpanID: o.SpanID}}
		m.published[o.TID] = append(m.published[o.TID], carried{span{o.Start, o.End}, c})
	}
	for tid, list := range m.published {
		m.published[tid] = withoutOverlap(list)
	}
}

// withoutOverlap sorts times, and leaves the first one of those about the same time: they say the
// same, as outliers of several rules do.
func withoutOverlap(list []carried) (out []carried) {
	slices.SortStableFunc(list, func(a, b carried) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	var end uint64
	for _, c := range list {
		if c.from = max(c.from, end); c.from < c.to {
			out = append(out, c)
			end = c.to
		}
	}
	return out
}

// publishedBy is carriedBy for traces.
func (m *model) publishedBy(tid int) []carried { return m.published[threadID(tid)] }

// same reports whether an activity is that of the slow task.
func (w *walker) same(a *Activity) bool {
	switch {
	case a == nil:
		return false
	case w.own.Token != "" && a.Token != "":
		return a.Token == w.own.Token
	}
	return a.TraceID != "" && a.TraceID == w.own.TraceID
}

// nameByPublished names the traces that were read at one moment: on those parts that they are of for
// half of the time or more, and for which nothing is known of all the time.
func (w *walker) nameByPublished(parts []Part, pieces []piece) {
	o := w.outlier
	for i := range parts {
		p := &parts[i]
		if p.Activity != nil || !p.ofTask() || w.m.kernelThread(p.By.TID) {
			continue
		}
		known := o.Waker
		ns, evidence := w.endedBy(p, pieces, known), asItWoke
		if ns == 0 {
			known = o.OnCPU
			ns, evidence = w.leftBy(p, pieces, known), asItLeft
		}
		if ns == 0 || ns*2 < uint64(p.NS) {
			continue
		}
		p.Activity = &Activity{TraceID: known.TraceID, SpanID: known.SpanID, Evidence: evidence}
		p.Activity.Same = w.same(p.Activity)
	}
}

// endedBy is how much of a part was in the sleep that its task ended; 0: it did not end one, or
// published nothing then.
func (w *walker) endedBy(part *Part, pieces []piece, known *Published) (ns uint64) {
	if known == nil || known.At == 0 || threadID(part.By.TID) != known.TID {
		return 0
	}
	key, ended := part.key(), false
	for i := range pieces {
		p := &pieces[i]
		if p.key() != key || p.task != w.outlier.TID || p.to <= known.From || p.from >= known.At {
			continue
		}
		ns += min(p.to, known.At) - max(p.from, known.From)
		ended = ended || p.to+lateEvents >= known.At && p.to <= known.At+lateEvents
	}
	if !ended {
		return 0
	}
	return ns
}

// leftBy is how much of a part was the last run of its task that its trace was read after; 0: none.
func (w *walker) leftBy(part *Part, pieces []piece, known *Published) uint64 {
	if known == nil || threadID(part.By.TID) != known.TID {
		return 0
	}
	switch part.Cause {
	case Preempted, Runnable, Misplaced:
	default:
		return 0
	}
	for i := range slices.Backward(pieces) {
		p := &pieces[i]
		if p.key() == part.key() && p.task == w.outlier.TID && p.to-p.from >= leastRun {
			return p.to - p.from
		}
	}
	return 0
}
