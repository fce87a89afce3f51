package explain

import (
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// lives tells apart the threads that had one id after each other. The first keeps its id
// within the model, later ones get others.
type lives struct {
	ended bool // the last one has
	list  []life
}

// life is one thread of an id, which is seen from a time on.
type life struct {
	from uint64
	id   int
}

// lifeShift is above all ids of threads.
const lifeShift = 32

// threadID is what the kernel calls a thread of the model.
func threadID(id int) int {
	if id <= 0 {
		return id
	}
	return id & (1<<lifeShift - 1)
}

// end notes that a thread has ended: what has its id from now on is another.
func (m *model) end(id int) {
	tid := threadID(id)
	l := m.lives[tid]
	if l == nil {
		if len(m.lives) >= maxTasks {
			return
		}
		l = &lives{list: []life{{id: id}}}
		m.lives[tid] = l
	}
	l.ended = true
}

// maxLives bounds the threads of one id that are told apart.
const maxLives = 1 << 10

// alive returns the thread that has an id now, which is a new one if the last has ended.
func (m *model) alive(tid int, at uint64) int {
	l := m.lives[tid]
	if l == nil {
		return tid
	}
	if n := len(l.list); l.ended && n < maxLives {
		l.ended = false
		l.list = append(l.list, life{at, tid | n<<lifeShift})
	}
	return l.list[len(l.list)-1].id
}

// latest returns the thread that had an id last.
func (m *model) latest(tid int) int {
	if l := m.lives[tid]; l != nil {
		return l.list[len(l.list)-1].id
	}
	return tid
}

// lifeAt returns the thread that had an id just before a time.
func (m *model) lifeAt(tid int, at uint64) int {
	id := tid
	if t := m.tasks[tid]; t != nil && t.born > at {
		id = tid | maxLives<<lifeShift // another one, which the history does not have
	}
	if l := m.lives[tid]; l != nil {
		for _, x := range l.list {
			if x.from < at {
				id = x.id
			}
		}
	}
	return id
}

// identify replaces the ids in an event by those of the model.
func (m *model) identify(ev *trace.Event) {
	if ev.Type == trace.ProcessFork {
		if b, ok := ev.Body.(trace.Fork); ok && b.ChildTID > 0 && m.tasks[m.latest(b.ChildTID)] != nil {
			m.end(m.latest(b.ChildTID)) // in case its end is missing
		}
	}
	if len(m.lives) == 0 {
		return
	}
	if ev.TID > 0 {
		ev.TID = m.alive(ev.TID, ev.Time)
	}
	switch b := ev.Body.(type) {
	case trace.Switch:
		if id := m.alive(b.NextTID, ev.Time); id != b.NextTID {
			b.NextTID = id
			ev.Body = b
		}
	case trace.Wake:
		if id := m.alive(b.TID, ev.Time); id != b.TID {
			b.TID = id
			ev.Body = b
		}
	case trace.Migrate:
		if id := m.alive(b.TID, ev.Time); id != b.TID {
			b.TID = id
			ev.Body = b
		}
	case trace.Fork:
		if id := m.alive(b.ChildTID, ev.Time); id != b.ChildTID {
			b.ChildTID = id
			ev.Body = b
		}
	case trace.Lock:
		if id := m.latest(b.OwnerTID); id != b.OwnerTID {
			b.OwnerTID = id
			ev.Body = b
		}
	case trace.Timer:
		if id := m.latest(b.TCP.Waiter); id != b.TCP.Waiter {
			b.TCP.Waiter = id
			ev.Body = b
		}
	}
}

// identifyOutliers returns the outliers with the ids of the model, and keeps what it asks them for.
func (m *model) identifyOutliers(list []Outlier) []Outlier {
	out := slices.Clone(list)
	for i := range out {
		o := &out[i]
		o.TID = m.lifeAt(o.TID, max(o.End, o.Start+1))
		m.comms[o.TID] = o.Comm
		if len(o.Labels) > 0 && o.TID > 0 && o.Key == nil && o.Began == "" {
			m.labelled = append(m.labelled, o)
		}
	}
	return out
}

// publish replaces the ids of the model in a report by those of the kernel.
func (m *model) publish(r *Report) {
	if len(m.lives) == 0 {
		return
	}
	who := func(w *Who) {
		for ; w != nil; w = w.For {
			w.TID = threadID(w.TID)
		}
	}
	behalf := func(b *Behalf) {
		if b != nil {
			who(b.Client)
		}
	}
	part := func(p *Part) {
		who(p.By)
		behalf(p.Behalf)
		if p.Evicted != nil {
			who(p.Evicted.By)
		}
	}
	for i := range r.Outliers {
		o := &r.Outliers[i]
		who(&o.Task)
		behalf(o.Behalf)
		part(&o.Blame)
		if o.Without != nil {
			who(&o.Without.By)
		}
		if o.Before != nil {
			for j := range o.Before.Changes {
				part(&o.Before.Changes[j].Part)
			}
		}
		for _, list := range [][]Part{o.Parts, o.Roots, o.Chain} {
			for j := range list {
				part(&list[j])
			}
		}
		for j := range o.Path {
			who(&o.Path[j].Task)
			who(o.Path[j].By)
			who(o.Path[j].Waker)
		}
	}
}
