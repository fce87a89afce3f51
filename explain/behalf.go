package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Behalf is for whom a task was at work: whose request it worked on.
type Behalf struct {
	Client  *Who   `json:"client,omitempty"`  // the task that asked
	Address string `json:"address,omitempty"` // of the client's end of the connection
	// Labels are those of a declared pair of that thread at that time.
	Labels map[string]string `json:"labels,omitempty"`
	// NS is for how long of the part, or of the outlier.
	NS         int64      `json:"ns"`
	Confidence Confidence `json:"confidence"`
	Evidence   string     `json:"evidence,omitempty"`
}

// basis is what a client is known by.
type basis uint8

const (
	byPair basis = iota
	byConversation
	byOnlyConnection
	byReplyAlone
	byRequestAlone
	byEndedClient
	byParent
	byLoosePair
)

// bases says how sure each is, and why.
var bases = [...]struct {
	confidence Confidence
	words      string
}{
	byPair:           {Seen, ""},
	byConversation:   {Inferred, "it woke the server for it, and got the next reply"},
	byOnlyConnection: {Inferred, "the server has this connection alone"},
	byReplyAlone:     {Guess, "it got the next reply, its request was not seen"},
	byRequestAlone:   {Guess, "it woke the server for it and still waited, no reply was seen"},
	byEndedClient:    {Guess, "it woke the server for it and got the next reply, but its connection had been closed when the snapshot was taken"},
	byParent:         {Guess, "it woke the server, which it had started, and was woken next"},
	byLoosePair:      {Guess, "the pair is of that thread, which may have done other work meanwhile"},
}

// span is an interval in which a task was in the way of another.
type span struct{ from, to uint64 }

// onBehalfOf adds to parts, and to links of the chain, for whom the tasks worked that were
// waited for.
func (w *walker) onBehalfOf(r *Result, pieces []piece) {
	if o := w.outlier; o.Key == nil && o.Began == "" && o.TID > 0 && (o.Track != "wakeup") && !w.m.kernelThread(o.TID) {
		r.Behalf = w.behalf(o.TID, []span{{o.Start, o.End}}, nil)
	}
	for _, g := range named(r) {
		for i := range r.Parts {
			if p := &r.Parts[i]; p.key() == g.parts[0].key() {
				p.Behalf = w.partBehalf(p, pieces)
			}
		}
	}
	for i := range r.Parts {
		if p := &r.Parts[i]; p.key() == r.Blame.key() {
			r.Blame.Behalf = p.Behalf
		}
	}
	for i := range r.Roots { // the same part where nothing is below it
		for j := range r.Parts {
			if p := &r.Parts[j]; p.key() == r.Roots[i].key() && p.NS == r.Roots[i].NS {
				r.Roots[i].Behalf = p.Behalf
			}
		}
	}
	for i := range w.chained {
		l := &w.chained[i]
		l.parts[0].Behalf = w.partBehalf(&l.parts[0], l.pieces)
		r.Chain[i].Behalf = l.parts[0].Behalf
	}
}

// partBehalf tells for whom the task of a part worked while another waited for it, or behind
// it.
func (w *walker) partBehalf(part *Part, pieces []piece) *Behalf {
	if !part.ofTask() || w.m.kernelThread(part.By.TID) {
		return nil
	}
	key := part.key()
	var spans []span
	waiters := map[int]bool{w.m.pidOf(w.outlier.TID): true}
	for i := range pieces {
		p := &pieces[i]
		if p.key() != key || p.task == part.By.TID {
			continue
		}
		spans = append(spans, span{p.from, p.to})
		waiters[w.m.pidOf(p.task)] = true
	}
	if len(spans) == 0 {
		return nil
	}
	return w.behalf(part.By.TID, spans, waiters)
}

// ofTask reports whether a part is a wait for a task, or behind one.
func (p *Part) ofTask() bool {
	switch p.Cause {
	case Task, Locked, Preempted, Runnable, Misplaced:
		return p.By != nil && p.By.Kind == KindTask && p.By.TID > 0
	}
	return false
}

// client is who a task may have worked for.
type client struct {
	tid     int
	address string
}

// behalf tells for whom a task worked for half of some time or more; nil: that is not known,
// or it was one of the waiters.
func (w *walker) behalf(tid int, spans []span, waiters map[int]bool) *Behalf {
	var all uint64
	for _, s := range spans {
		all += s.to - s.from
	}
	b := w.mostAsked(tid, spans, waiters, all)
	labels, ns, loose := w.labelsOf(tid, spans)
	if ns*2 < all || len(labels) == 0 {
		return b
	}
	if b == nil {
		b = &Behalf{NS: int64(ns), Confidence: Seen}
		if loose {
			b.Confidence, b.Evidence = bases[byLoosePair].confidence, bases[byLoosePair].words
		}
	}
	b.Labels = labels
	return b
}

// mostAsked finds the client that a task worked for most.
func (w *walker) mostAsked(tid int, spans []span, waiters map[int]bool, all uint64) *Behalf {
	t := w.m.tasks[tid]
	if t == nil || w.m.names.Sockets == nil {
		return nil
	}
	sums, bases := map[client]uint64{}, map[client]basis{}
	steps := 0
	for _, s := range spans {
		for at := s.from; at < s.to; steps++ {
			if steps >= maxStretches || w.asked > maxAsked {
				return nil
			}
			x := w.stretchAt(t, at)
			to := min(max(x.to, at+1), s.to)
			if c := (client{x.client, x.address}); c != (client{}) {
				sums[c] += to - at
				bases[c] = max(bases[c], x.basis)
			}
			at = to
		}
	}
	for c, ns := range sums {
		if ns*2 >= all && ns > 0 && !waiters[w.m.pidOf(c.tid)] {
			return w.client(c, ns, bases[c], w.m.pidOf(tid))
		}
	}
	return nil
}

func (w *walker) client(c client, ns uint64, by basis, server int) *Behalf {
	b := &Behalf{Address: c.address, NS: int64(ns), Confidence: bases[by].confidence, Evidence: bases[by].words}
	if c.tid != 0 {
		b.Client = w.m.whoTask(c.tid)
		b.Address = w.m.address(w.m.pidOf(c.tid), server)
	}
	return b
}

// labelsOf returns the labels of the declared pair that a thread was in for most of some time,
// of those in the same snapshot.
func (w *walker) labelsOf(tid int, spans []span) (labels map[string]string, most uint64, loose bool) {
	for i := range w.m.labelled {
		o := w.m.labelled[i]
		if o == w.outlier || o.TID != tid {
			continue
		}
		var ns uint64
		for _, s := range spans {
			if from, to := max(s.from, o.Start), min(s.to, o.End); from < to {
				ns += to - from
			}
		}
		if ns > most {
			labels, most, loose = o.Labels, ns, o.Loose
		}
	}
	return labels, most, loose
}

// behalf is what a verdict says of whom the first task of a group of parts worked for.
func (g *group) behalf() string {
	first := &g.parts[0]
	return first.Behalf.text(first.NS)
}

// text says it in parentheses; "" for nil. ns is how long the part is.
func (b *Behalf) text(ns int64) string {
	if b == nil {
		return ""
	}
	s := b.words()
	if b.NS < ns-ns/10 {
		s += ", " + duration(b.NS) + " of it"
	}
	return " (" + s + ")"
}

// words are "at work for the client psql 811, query "select 1"".
func (b *Behalf) words() string {
	s := "at work for the client "
	switch {
	case b.Client != nil:
		s += b.Client.Name
		if at := b.Client.where(); at != "" {
			s += " in " + at
		}
	case b.Address != "":
		s += "at " + strings.Join(strings.Fields(b.Address), " ")
	default:
		s = "at work on "
	}
	if labels := labelText(b.Labels); labels != "" {
		if !strings.HasSuffix(s, " ") {
			s += ", "
		}
		s += labels
	}
	if b.Confidence == Guess {
		return "perhaps " + s
	}
	return s
}

// maxLabel is how many characters of a label are told.
const maxLabel = 80

// labelText is labels for people: query "select 1".
func labelText(labels map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		text := []rune(cmp.Or(strings.Join(strings.Fields(labels[name]), " "), "-"))
		if len(text) > maxLabel {
			text = append(text[:maxLabel-1], '…')
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %q", name, string(text))))
	}
	return strings.Join(list, ", ")
}
