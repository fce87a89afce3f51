package explain

import (
	"fmt"
	"slices"
)

// Evicted is who had evicted pages that a task had to read again.
type Evicted struct {
	By       *Who      `json:"by"`
	Activity *Activity `json:"activity,omitempty"` // that By worked for then
	Pages    int       `json:"pages"`
	// BeforeNS is how long before the pages were evicted, the last of them.
	BeforeNS int64 `json:"before_ns"`
}

// EvictedPages are pages that the task TID brought in between two times, and that the task
// ByTID had evicted. Times are in nanoseconds of CLOCK_MONOTONIC.
type EvictedPages struct {
	TID      int
	From, To uint64
	Pages    int
	ByTID    int
	At       uint64 // when they were evicted
}

// refault is EvictedPages, and the activity that evicted them.
type refault struct {
	*EvictedPages
	of *Carried
}

// evictor is who evicted pages, for what.
type evictor struct {
	of  *Carried
	tid int
}

func (f *refault) evictor() evictor { return evictor{f.of, f.ByTID} }

// readSlack is for how long before a task blocks on a read its pages may have been added to
// the page cache: it asks the file system where they are in between.
const readSlack = 1_000_000

// evictors adds to waits for disks who had evicted what is read.
func (w *walker) evictors(r *Result, pieces []piece) {
	w.evictedParts(r.Parts, pieces)
	for i := range r.Parts {
		if p := &r.Parts[i]; p.key() == r.Blame.key() {
			r.Blame.Evicted = p.Evicted
		}
	}
	for i := range w.chained {
		l := &w.chained[i]
		w.evictedParts(l.parts[:1], l.pieces)
		r.Chain[i].Evicted = l.parts[0].Evicted
	}
	for i := range r.Roots {
		if j := slices.IndexFunc(r.Parts, func(p Part) bool { return p.key() == r.Roots[i].key() && p.NS == r.Roots[i].NS }); j >= 0 {
			r.Roots[i].Evicted = r.Parts[j].Evicted
		}
	}
}

// reads reports whether a cause may be a read from a disk.
func (c Cause) reads() bool { return c == BlockDevice || c == BlockQueue || c == PageFault }

func (w *walker) evictedParts(parts []Part, pieces []piece) {
	for i := range parts {
		p := &parts[i]
		if !p.Cause.reads() {
			continue
		}
		key := p.key()
		var times span
		task := 0
		for j := range pieces {
			if x := &pieces[j]; x.key() == key {
				if task == 0 {
					task, times.from = x.task, readBegan(pieces, j)
				}
				times.to = x.to
			}
		}
		if task != 0 {
			p.Evicted = w.m.evictorOf(task, times)
		}
		if e := p.Evicted; e != nil {
			e.Activity.Same = w.same(e.Activity)
		}
	}
}

// readBegan is when the wait began that a piece is the end of: in the queue, and for the disk.
func readBegan(pieces []piece, i int) uint64 {
	for ; i > 0 && pieces[i-1].to == pieces[i].from && pieces[i-1].task == pieces[i].task && pieces[i-1].cause.reads(); i-- {
	}
	return pieces[i].from
}

// evictorOf returns who had evicted most of the pages that a task brought in for a wait; nil:
// that is not known.
func (m *model) evictorOf(tid int, wait span) *Evicted {
	m.carriedBy(tid) // reads them
	var most *refault
	pages := map[evictor]int{}
	for i := range m.refaults[threadID(tid)] {
		f := &m.refaults[threadID(tid)][i]
		if f.To+readSlack < wait.from || f.From > wait.to {
			continue
		}
		pages[f.evictor()] += f.Pages
		if most == nil || pages[f.evictor()] >= pages[most.evictor()] {
			most = f
		}
	}
	if most == nil {
		return nil
	}
	a := most.of.Activity
	return &Evicted{
		By: m.whoTask(m.lifeAt(most.ByTID, most.At)), Activity: &a, Pages: pages[most.evictor()], BeforeNS: int64(most.From - min(most.At, most.From)),
	}
}

// evicted is what a verdict says of it.
func (g *group) evicted() string {
	e := g.parts[0].Evicted
	if e == nil {
		return ""
	}
	pages := "a page"
	if e.Pages > 1 {
		pages = fmt.Sprintf("%d pages", e.Pages)
	}
	return fmt.Sprintf(", for %s that %s had evicted from the page cache %s before%s", pages, describe(e.By), duration(e.BeforeNS), e.Activity.text(0))
}
