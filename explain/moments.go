package explain

import (
	"cmp"
	"slices"
	"sort"
)

// Moment is a trace that a program had published for one of its threads at one moment, in which
// that was the current task.
type Moment struct {
	// Woken is the thread that it woke then; 0: it left its CPU.
	Woken int
	// TID is the thread, if it left its CPU; who has woken another is in the trace.
	TID             int
	At              uint64 // CLOCK_MONOTONIC, ns
	TraceID, SpanID string
}

// activity is what is told of it.
func (x *Moment) activity() Activity {
	a := Activity{TraceID: x.TraceID, SpanID: x.SpanID, Evidence: asItLeft}
	if x.Woken != 0 {
		a.Evidence = asItWoke
	}
	return a
}

// within reports whether it is of the time of a piece.
func (x *Moment) within(p *piece) bool { return p.from <= x.At && x.At <= p.to+sameEvent }

// knownMoments returns all of them, by thread and in order of time.
func (m *model) knownMoments() map[int][]Moment {
	if m.moments != nil || m.names.Moments == nil {
		return m.moments
	}
	m.moments = map[int][]Moment{}
	wakers := map[int][]Moment{} // by whom they woke
	for _, x := range m.names.Moments() {
		if x.Woken == 0 {
			m.moments[x.TID] = append(m.moments[x.TID], x)
		} else {
			wakers[x.Woken] = append(wakers[x.Woken], x)
		}
	}
	for id, t := range m.tasks {
		for _, x := range wakers[threadID(id)] {
			if by := threadID(t.wokenBy(x.At)); by != 0 {
				m.moments[by] = append(m.moments[by], x)
			}
		}
	}
	for _, list := range m.moments {
		slices.SortFunc(list, func(a, b Moment) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Woken, b.Woken)) })
	}
	return m.moments
}

// wokenBy returns the task that ended a sleep of a task at a time, by itself; 0: none did.
func (t *task) wokenBy(at uint64) int {
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].to+sameEvent >= at })
	for ; i < len(t.segments) && t.segments[i].to <= at+sameEvent; i++ {
		if s := &t.segments[i]; s.state == blocked && s.wake != nil && s.wake.ctx == nil && s.wake.tid != 0 && near(s.wake.at, at) {
			return s.wake.tid
		}
	}
	return 0
}

// sameEvent is how far two times of one event may be apart: the tracker and the recorder are told it
// by one clock reading, and the recorder may have to put its events in order.
const sameEvent = 1000

func near(a, b uint64) bool { return a <= b+sameEvent && b <= a+sameEvent }

// momentOf returns the last moment at which the culprit of a piece was in the way; nil: none is known.
func (m *model) momentOf(p *piece) *Moment {
	if p.by == nil || p.by.Kind != KindTask || p.by.TID <= 0 || m.kernelThread(p.by.TID) {
		return nil
	}
	list := m.knownMoments()[threadID(p.by.TID)]
	for i := range slices.Backward(list) {
		x, found := &list[i], false
		switch {
		case p.state == "blocked":
			found = x.Woken != 0 && x.Woken == threadID(p.task) && near(x.At, p.to)
		case x.Woken == 0:
			found = x.within(p) && p.to-p.from >= leastRun
		case p.state == "running":
			found = x.within(p)
		}
		if found {
			return x
		}
	}
	return nil
}

// nameByMoments names the traces of such moments: on those parts of pieces that they are of for half
// of the time or more, and for which nothing else is known; if others is set, not while a task was
// in its own way.
func (w *walker) nameByMoments(parts []Part, pieces []piece, others bool) {
	if len(w.m.knownMoments()) == 0 {
		return
	}
	sums := map[partKey]map[Activity]uint64{}
	for i := range pieces {
		p := &pieces[i]
		x := w.m.momentOf(p)
		if x == nil || others && p.by.TID == p.task {
			continue
		}
		key := p.key()
		if sums[key] == nil {
			sums[key] = map[Activity]uint64{}
		}
		sums[key][x.activity()] += p.ns()
	}
	for i := range parts {
		p := &parts[i]
		if p.Activity != nil {
			continue
		}
		var most Activity
		of := sums[p.key()]
		for a, ns := range of {
			if ns > of[most] || ns == of[most] && a.SpanID < most.SpanID {
				most = a
			}
		}
		if most.TraceID != "" && of[most]*2 >= uint64(p.NS) {
			most.Same = w.same(&most)
			p.Activity = &most
		}
	}
}

// stepMoment is what the task of a step had published last within it.
func (w *walker) stepMoment(p *piece) *Activity {
	if p.state != "running" {
		return nil
	}
	list := w.m.knownMoments()[threadID(p.task)]
	for i := range slices.Backward(list) {
		if list[i].within(p) {
			a := list[i].activity()
			a.Same = w.same(&a)
			return &a
		}
	}
	return nil
}
