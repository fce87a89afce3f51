// Package timeline draws the critical path of an outlier: one row a task, its
// culprits below it, on a terminal and as an SVG picture. Both draw the same
// Picture.
package timeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/term"
)

// Picture is the time line of one outlier. Its names have been through
// term.Clean, and all times are within From and To.
type Picture struct {
	From, To uint64 // CLOCK_MONOTONIC; To is after From
	Rows     []Row  // the slow task's first
	Arrows   []Arrow
	Left     int // rows that were put together into the last one
}

// Row is what one task, or a device, did.
type Row struct {
	Name  string
	Note  string // what gives it its place: SCHED_FIFO 50
	Depth int    // 0: the slow task
	// Path: the critical path leads through it. Other rows are of culprits: what
	// had the CPU, or the request, meanwhile.
	Path bool
	Bars []Bar // in the order of time; those of a culprit may overlap
}

// Bar is one stretch of a row.
type Bar struct {
	From, To uint64
	Cause    explain.Cause
	State    string
	Text     string // what happened, for people
}

// Arrow is a wake-up: the path goes on from one row to another.
type Arrow struct {
	At       uint64
	From, To int // rows
}

// builder collects rows by whose they are.
type builder struct {
	p    *Picture
	rows map[string]int
}

// New lays out a result with at most most rows; those that matter least are put
// together in the last one.
func New(r *explain.Result, most int) *Picture {
	p := &Picture{From: r.StartMonoNS, To: max(r.EndMonoNS, r.StartMonoNS+1)}
	b := &builder{p: p, rows: map[string]int{}}
	b.row(&r.Task, 0, true)
	for i := range r.Path {
		s := &r.Path[i]
		from, to := max(s.FromMonoNS, p.From), min(s.ToMonoNS, p.To)
		if from >= to || s.Depth < 0 {
			continue
		}
		at := b.path(s, from)
		bar := Bar{From: from, To: to, Cause: s.Cause, State: s.State, Text: stepText(s)}
		p.Rows[at].Bars = append(p.Rows[at].Bars, bar)
		if followed(r.Path[i+1:], s) {
			if s.Waker != nil && s.Waker.Kind == explain.KindTask && to < p.To {
				p.Arrows = append(p.Arrows, Arrow{At: to, From: b.row(s.Waker, s.Depth+1, true), To: at})
			}
			continue
		}
		if s.By != nil && culprit(s) {
			by := b.row(s.By, s.Depth+1, false)
			p.Rows[by].Bars = append(p.Rows[by].Bars, bar)
		}
	}
	b.squeeze(most)
	return p
}

// followed tells whether the path shows what a step waited for.
func followed(after []explain.Step, s *explain.Step) bool {
	for i := range min(len(after), 64) { // those that begin with it stand next to it
		n := &after[i]
		if n.FromMonoNS >= s.ToMonoNS || n.Depth <= s.Depth && n.FromMonoNS > s.FromMonoNS {
			return false
		}
		if n.Depth > s.Depth {
			return true
		}
	}
	return false
}

// culprit tells whether a step's time was somebody else's.
func culprit(s *explain.Step) bool {
	switch s.By.Kind {
	case explain.KindSelf, explain.KindUnknown, explain.KindTimer:
		return false
	case explain.KindTask:
		return s.By.TID != s.Task.TID
	}
	return true
}

// path is the row of a step's task. What a task waited for within what it did,
// such as for a disk in a page fault, stands below it.
func (b *builder) path(s *explain.Step, from uint64) int {
	at := b.row(&s.Task, s.Depth, true)
	bars := b.p.Rows[at].Bars
	if n := len(bars); n == 0 || bars[n-1].To <= from || b.p.Rows[at].Depth >= s.Depth {
		return at
	}
	return b.keyed(fmt.Sprintf("below %d", s.Task.TID), &s.Task, s.Depth, true)
}

// row finds the row of a task or another culprit, or adds it.
func (b *builder) row(w *explain.Who, depth int, path bool) int {
	key := fmt.Sprintf("%s %s", w.Kind, w.Name)
	if w.Kind == explain.KindTask || w.Kind == "" && w.TID != 0 {
		key = fmt.Sprintf("task %d", w.TID)
	}
	return b.keyed(key, w, depth, path)
}

func (b *builder) keyed(key string, w *explain.Who, depth int, path bool) int {
	at, ok := b.rows[key]
	if !ok {
		at = len(b.p.Rows)
		b.rows[key] = at
		b.p.Rows = append(b.p.Rows, Row{Name: name(w), Note: term.Rank(w), Depth: depth, Path: path})
	}
	row := &b.p.Rows[at]
	row.Path = row.Path || path
	row.Depth = min(row.Depth, depth)
	return at
}

func name(w *explain.Who) string {
	if w.Kind == "" && w.TID != 0 {
		return term.Task(w)
	}
	return term.Who(w)
}

// squeeze leaves most rows: the slow task's, and those with most time.
func (b *builder) squeeze(most int) {
	p := b.p
	for i := range p.Rows {
		slices.SortStableFunc(p.Rows[i].Bars, func(x, y Bar) int { return cmp.Compare(x.From, y.From) })
	}
	weight := make([]uint64, len(p.Rows))
	var order []int
	for i := range p.Rows {
		for _, bar := range p.Rows[i].Bars {
			weight[i] += bar.To - bar.From
		}
		if i == 0 || weight[i] > 0 && (p.Rows[i].Path || weight[i] >= (p.To-p.From)/visible) {
			order = append(order, i)
		}
	}
	kept := order
	if len(order) > max(most, 2) {
		slices.SortStableFunc(order[1:], func(x, y int) int { return cmp.Compare(weight[y], weight[x]) })
		kept = slices.Sorted(slices.Values(order[:max(most, 2)-1]))
	}
	b.keep(kept, len(order) > len(kept))
}

// visible is the part of the whole from which on a culprit has a row.
const visible = 250

// keep leaves some rows, and puts the other ones into one more if rest.
func (b *builder) keep(kept []int, rest bool) {
	p := b.p
	where := map[int]int{}
	var rows []Row
	for _, i := range kept {
		where[i] = len(rows)
		rows = append(rows, p.Rows[i])
	}
	others := Row{Depth: 1}
	for i := range p.Rows {
		if _, ok := where[i]; !ok {
			others.Bars = append(others.Bars, p.Rows[i].Bars...)
			p.Left++
		}
	}
	if rest {
		others.Name = fmt.Sprintf("%d more", p.Left)
		slices.SortStableFunc(others.Bars, func(x, y Bar) int { return cmp.Compare(x.From, y.From) })
		rows = append(rows, others)
	} else {
		p.Left = 0
	}
	p.Rows = rows
	var arrows []Arrow
	for _, a := range p.Arrows {
		from, ok := where[a.From]
		to, known := where[a.To]
		if ok && known && from != to {
			arrows = append(arrows, Arrow{At: a.At, From: from, To: to})
		}
	}
	p.Arrows = arrows
}

// stepText says what happened in a step.
func stepText(s *explain.Step) string {
	who := s.By
	if who != nil && who.Kind == explain.KindTask && who.TID == s.Task.TID {
		who = nil // itself
	}
	text := term.Blame(s.Cause, who)
	if s.CPU >= 0 {
		text += fmt.Sprintf(" on CPU %d", s.CPU)
	}
	if s.Why != "" {
		text += ", " + term.Clean(s.Why)
	}
	return text
}

// cell is what a row shows of one stretch of the picture.
type cell struct {
	cause explain.Cause
	state string
	text  string
	share float64 // of the stretch that is covered
}

// cells cuts a row into n stretches of the same length; in each the cause with
// most time shows.
func (p *Picture) cells(row *Row, n int) []cell {
	out := make([]cell, n)
	sums := make([]map[explain.Cause]uint64, n)
	longest := make([]uint64, n)
	whole := p.To - p.From
	at := func(i int) uint64 { return p.From + uint64(float64(whole)*float64(i)/float64(n)) }
	for b := range row.Bars {
		bar := &row.Bars[b]
		first := int(float64(bar.From-p.From) / float64(whole) * float64(n))
		for i := max(first-1, 0); i < n && at(i) < bar.To; i++ {
			end := p.To
			if i+1 < n {
				end = at(i + 1)
			}
			lo, hi := max(bar.From, at(i)), min(bar.To, end)
			if lo >= hi {
				continue
			}
			if sums[i] == nil {
				sums[i] = map[explain.Cause]uint64{}
			}
			sums[i][bar.Cause] += hi - lo
			out[i].share += float64(hi-lo) / float64(max(end-at(i), 1))
			c := &out[i]
			if sum := sums[i][bar.Cause]; sum > longest[i] {
				longest[i] = sum
				c.cause, c.state, c.text = bar.Cause, bar.State, bar.Text
			}
		}
	}
	for i := range out {
		out[i].share = min(out[i].share, 1)
	}
	return out
}

// ticks are round times for an axis of so many nanoseconds: 0, 5ms, 10ms, with
// at most most of them after the first.
func ticks(whole uint64, most int) []uint64 {
	step := uint64(1)
	for _, m := 0, []uint64{2, 5, 10}; ; {
		for _, f := range m {
			if whole/step <= uint64(max(most, 1)) {
				return tickList(whole, step)
			}
			if f*step/step != f {
				return []uint64{0}
			}
			if f == 10 {
				step *= 10
			} else if whole/(step*f) <= uint64(max(most, 1)) {
				return tickList(whole, step*f)
			}
		}
	}
}

func tickList(whole, step uint64) []uint64 {
	var out []uint64
	for t := uint64(0); t <= whole; t += step {
		out = append(out, t)
		if t+step < t {
			break
		}
	}
	return out
}
