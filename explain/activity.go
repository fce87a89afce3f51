package explain

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Activity is a request, or another unit of work, that a task worked for: its token, which
// the program set, says so.
type Activity struct {
	Token   string `json:"token,omitempty"`
	Name    string `json:"name,omitempty"`
	Text    string `json:"text,omitempty"`
	TraceID string `json:"trace_id,omitempty"`
	SpanID  string `json:"span_id,omitempty"`
	// NS is for how long of the part, or of the outlier; 0 in a path.
	NS int64 `json:"ns,omitempty"`
	// Same: it is that of the slow task.
	Same bool `json:"same,omitempty"`
	// Evidence is set if it is known of one moment alone: "as it woke it", "as it left the CPU".
	Evidence string `json:"evidence,omitempty"`
}

// Carried is an activity, and when tasks carried its token.
type Carried struct {
	Activity
	Times   []CarriedTime
	Evicted []EvictedPages // by these tasks meanwhile, and read again by others
}

// CarriedTime is in nanoseconds of CLOCK_MONOTONIC.
type CarriedTime struct {
	TID      int
	From, To uint64
}

// carried is a time in which a thread worked for an activity.
type carried struct {
	span
	of *Carried
}

// carriedBy returns what a thread worked for, in order of time. It never did for two at once.
func (m *model) carriedBy(tid int) []carried {
	if m.names.Activities == nil {
		return nil
	}
	if m.carried == nil {
		m.carried, m.refaults = map[int][]carried{}, map[int][]refault{}
		m.activities = m.names.Activities()
		list := m.activities
		for i := range list {
			for _, t := range list[i].Times {
				if t.From < t.To {
					m.carried[t.TID] = append(m.carried[t.TID], carried{span{t.From, t.To}, &list[i]})
				}
			}
			for j := range list[i].Evicted {
				e := &list[i].Evicted[j]
				m.refaults[e.TID] = append(m.refaults[e.TID], refault{e, &list[i]})
			}
		}
		for _, times := range m.carried {
			slices.SortFunc(times, func(a, b carried) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
		}
	}
	return m.carried[threadID(tid)]
}

// asked is a time in which a thread was in the way, or asked for what was; weight is for how
// long it was.
type asked struct {
	span
	tid    int
	weight uint64
}

// activityIn returns what threads worked for in half of some time or more, by their tokens, or else
// by what they published; nil: that is not known.
func (m *model) activityIn(times []asked) *Activity {
	if a := mostOf(times, m.carriedBy); a != nil {
		return a
	}
	return mostOf(times, m.publishedBy)
}

// mostOf does so by what is known of a thread, in order of time.
func mostOf(times []asked, known func(tid int) []carried) *Activity {
	var all uint64
	sums := map[Activity]uint64{}
	for _, t := range times {
		all += t.weight
		list := known(t.tid)
		i := sort.Search(len(list), func(i int) bool { return list[i].to > t.from })
		for ; i < len(list) && list[i].from < t.to; i++ {
			ns := min(list[i].to, t.to) - max(list[i].from, t.from)
			if t.weight != t.to-t.from {
				ns = t.weight
			}
			sums[list[i].of.Activity] += ns
		}
	}
	var most Activity
	for a, ns := range sums {
		if ns > sums[most] || ns == sums[most] && cmp.Or(cmp.Compare(a.Token, most.Token), cmp.Compare(a.SpanID, most.SpanID)) < 0 {
			most = a
		}
	}
	if most == (Activity{}) || sums[most]*2 < all {
		return nil
	}
	most.NS = int64(min(sums[most], all))
	return &most
}

// activities adds to the slow task, to parts, and to links of the chain which requests the
// tasks worked for.
func (w *walker) activities(r *Result, pieces []piece) {
	o := w.outlier
	if w.m.names.Activities == nil && w.m.names.Moments == nil && w.m.published == nil && o.Waker == nil && o.OnCPU == nil {
		return
	}
	if o.Key == nil && o.Began == "" && o.TID > 0 && o.Track != "activity" {
		r.Activity = w.m.activityIn([]asked{{span{o.Start, o.End}, o.TID, o.End - o.Start}})
	}
	w.own = Activity{Token: o.Token, TraceID: o.TraceID}
	if r.Activity != nil {
		w.own = Activity{Token: r.Activity.Token, TraceID: cmp.Or(r.Activity.TraceID, o.TraceID)}
	}
	w.name(r.Parts, pieces)
	w.nameByPublished(r.Parts, pieces)
	w.nameByMoments(r.Parts, pieces, true)
	for i := range r.Parts {
		if p := &r.Parts[i]; p.key() == r.Blame.key() {
			r.Blame.Activity = p.Activity
		}
	}
	for i := range w.chained {
		l := &w.chained[i]
		w.name(l.parts, l.pieces)
		w.nameByMoments(l.parts, l.pieces, true)
		r.Chain[i].Activity = l.parts[0].Activity
	}
	w.nameRoots(r, pieces)
	w.evictors(r, pieces)
}

// name adds to parts of pieces what their culprits worked for while they were in the way, but
// not while a task was in its own.
func (w *walker) name(parts []Part, pieces []piece) {
	times := map[partKey][]asked{}
	for i := range pieces {
		if t, ok := w.m.culpritAt(&pieces[i]); ok && t.tid != pieces[i].task {
			times[pieces[i].key()] = append(times[pieces[i].key()], t)
		}
	}
	w.nameBy(parts, times)
}

// nameBy does so by when the culprits were.
func (w *walker) nameBy(parts []Part, times map[partKey][]asked) {
	for i := range parts {
		a := w.m.activityIn(times[parts[i].key()])
		if a != nil {
			a.Same = w.same(a)
		}
		parts[i].Activity = a
	}
}

// nameRoots adds them to the ends of the path, with those of who ran there.
func (w *walker) nameRoots(r *Result, pieces []piece) {
	times := map[partKey][]asked{}
	var ends []piece
	moments := len(w.m.knownMoments()) > 0
	leaves(pieces, func(p *piece) {
		if t, ok := w.m.culpritAt(p); ok && t.tid != w.outlier.TID {
			times[p.key()] = append(times[p.key()], t)
			if moments {
				ends = append(ends, *p)
			}
		}
	})
	w.nameBy(r.Roots, times)
	w.nameByMoments(r.Roots, ends, false)
	same := make(map[partKey]*Part, len(r.Parts))
	for i := range r.Parts {
		same[r.Parts[i].key()] = &r.Parts[i]
	}
	for i := range r.Roots { // the same part where nothing is below it
		if p := same[r.Roots[i].key()]; p != nil && p.NS == r.Roots[i].NS {
			r.Roots[i].Activity = p.Activity
		}
	}
}

// culpritAt returns the thread whose token says for whom the culprit of a piece was at work:
// its own; of a work item that of its queuer, when it was queued. false: there is none.
func (m *model) culpritAt(p *piece) (asked, bool) {
	ns := p.to - p.from
	switch {
	case p.item != nil:
		return asked{span{p.item.queued, p.item.queued + 1}, p.item.queuer, ns}, p.item.queued > 0 && p.item.queuer > 0
	case p.by == nil || p.by.Kind != KindTask || p.by.TID <= 0:
		return asked{}, false
	case m.kernelThread(p.by.TID):
		x := m.workIn(p.by.TID, p.from, p.to)
		if x == nil || x.queued == 0 || x.queuer <= 0 {
			return asked{}, false
		}
		return asked{span{x.queued, x.queued + 1}, x.queuer, ns}, true
	}
	return asked{span{p.from, p.to}, p.by.TID, ns}, true
}

// workIn returns the work item that a worker ran for half of an interval or more; nil: none.
func (m *model) workIn(worker int, from, to uint64) *work {
	t := m.tasks[worker]
	if t == nil {
		return nil
	}
	i := sort.Search(len(t.works), func(i int) bool { return t.works[i].end > from })
	for ; i < len(t.works) && t.works[i].start < to; i++ {
		x := t.works[i]
		if ns := min(x.end, to) - max(x.start, from); ns*2 >= to-from {
			return x
		}
	}
	return nil
}

// activity is what a verdict says of the request that the culprit of a group of parts worked
// for.
func (g *group) activity() string { return g.parts[0].Activity.text(g.parts[0].NS) }

// text says it in parentheses; "" for nil. ns is how long the part is.
func (a *Activity) text(ns int64) string {
	if a == nil {
		return ""
	}
	s := "at work on " + a.Words()
	switch {
	case a.Evidence != "":
		s += ", " + a.Evidence
	case a.NS < ns-ns/10:
		s += ", " + duration(a.NS) + " of it"
	}
	return " (" + s + ")"
}

// Words returns what it is called in a sentence: request "report", token 3.17.5. Programs
// choose names, and whoever made the snapshot all of it: it is bounded.
func (a *Activity) Words() string {
	s := "request"
	switch name := shortText(a.Name); {
	case a.Same:
		s = "the same request"
	case name == "":
		s = "a request"
	}
	for _, name := range []string{a.Name, a.Text} {
		if name = shortText(name); name != "" {
			s += fmt.Sprintf(" %q", name)
		}
	}
	for _, x := range []struct{ what, id string }{{"token", a.Token}, {"trace", a.TraceID}} {
		if id := shortText(x.id); id != "" {
			s += ", " + x.what + " " + id
		}
	}
	return s
}

// shortText is what somebody has chosen, in one line of maxLabel characters at most.
func shortText(s string) string {
	text := []rune(strings.Join(strings.Fields(s), " "))
	if len(text) > maxLabel {
		text = append(text[:maxLabel-1], '…')
	}
	return string(text)
}

// stepActivity is what the task of a step worked for.
func (w *walker) stepActivity(times []asked) *Activity {
	a := w.m.activityIn(times)
	if a != nil {
		a.NS, a.Same = 0, w.same(a)
	}
	return a
}
