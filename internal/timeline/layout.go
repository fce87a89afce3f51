// Package timeline draws the critical path of an outlier, on a terminal or as SVG: one
// row per task, with its culprits below. Both draw the same Picture.
package timeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/term"
)

// Picture is the layout of one outlier. Names are cleaned by term.Clean, and all times
// lie within From and To.
type Picture struct {
	From, To uint64 // CLOCK_MONOTONIC in nanoseconds; To is after From
	Rows     []Row  // the slow task's row comes first
	Arrows   []Arrow
	Left     int // number of rows merged into the last one
}

// Row is the time line of a task, device or other culprit.
type Row struct {
	Name  string
	Note  string // reason for its priority: SCHED_FIFO 50
	Depth int    // 0: slow task
	// Path: the critical path passes through this row. Other rows are culprits that had
	// the CPU or the device meanwhile.
	Path bool
	// Unseen: it was waited for, but nothing says that it was at work, such as the network.
	Unseen bool
	Bars   []Bar // in order of time; those of a culprit may overlap
}

// Bar is an interval of a row.
type Bar struct {
	From, To uint64
	Cause    explain.Cause
	State    string
	Text     string // description for people
	Step     int    // index in the result's path
}

// Arrow is a wake-up that leads the path from one row to another.
type Arrow struct {
	At       uint64
	From, To int // indexes of rows
}

// builder collects rows by owner.
type builder struct {
	p      *Picture
	rows   map[string]int
	groups []string // of each row: the program that its thread belongs to, or empty
}

// New lays out a result in at most most rows; the least important ones are merged into
// the last.
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
		bar := Bar{From: from, To: to, Cause: s.Cause, State: s.State, Text: stepText(s), Step: i}
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
	b.gather()
	b.squeeze(most)
	return p
}

// followed reports whether the path shows what a step waited for.
func followed(after []explain.Step, s *explain.Step) bool {
	for i := range min(len(after), 64) { // those with the same start are adjacent
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

// culprit reports whether a step's time is due to somebody else.
func culprit(s *explain.Step) bool {
	switch s.By.Kind {
	case explain.KindSelf, explain.KindUnknown, explain.KindTimer:
		return false
	case explain.KindTask:
		return s.By.TID != s.Task.TID
	}
	return true
}

// path returns the row of a step's task. Nested waits, such as for a disk in a page
// fault, get a row below.
func (b *builder) path(s *explain.Step, from uint64) int {
	at := b.row(&s.Task, s.Depth, true)
	bars := b.p.Rows[at].Bars
	if n := len(bars); n == 0 || bars[n-1].To <= from || b.p.Rows[at].Depth >= s.Depth {
		return at
	}
	return b.keyed(fmt.Sprintf("below %d", s.Task.TID), &s.Task, s.Depth, true)
}

// row returns the row of a task or other culprit, creating it if needed.
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
		b.p.Rows = append(b.p.Rows, Row{Name: name(w), Note: term.Rank(w), Depth: depth, Path: path, Unseen: w.Kind == explain.KindNetwork})
		b.groups = append(b.groups, group(w))
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

// group is what small culprits are called together.
func group(w *explain.Who) string {
	if w.Kind != explain.KindTask {
		return ""
	}
	return term.Clean(w.Called())
}

// smallCulprit is the share of a culprit that has a row of its own, whatever its name.
const smallCulprit = 20

// gather makes one row of small culprits that have the same name. No arrow leads to these.
func (b *builder) gather() {
	p := b.p
	first, count := map[string]int{}, map[int]int{}
	for i := range p.Rows {
		row, name := &p.Rows[i], b.groups[i]
		if row.Path || name == "" || row.length() >= (p.To-p.From)/smallCulprit {
			continue
		}
		at, ok := first[name]
		if !ok {
			first[name], count[i] = i, 1
			continue
		}
		to := &p.Rows[at]
		to.Bars, to.Depth = append(to.Bars, row.Bars...), min(to.Depth, row.Depth)
		if to.Note != row.Note {
			to.Note = ""
		}
		row.Bars = nil
		count[at]++
	}
	for at, n := range count {
		if n > 1 {
			p.Rows[at].Name = fmt.Sprintf("%s, %d threads", b.groups[at], n)
		}
	}
}

// length is the time of all bars.
func (r *Row) length() uint64 {
	sum := uint64(0)
	for i := range r.Bars {
		sum += r.Bars[i].To - r.Bars[i].From
	}
	return sum
}

// squeeze keeps the slow task's row and the largest others.
func (b *builder) squeeze(most int) {
	p := b.p
	for i := range p.Rows {
		slices.SortStableFunc(p.Rows[i].Bars, func(x, y Bar) int { return cmp.Compare(x.From, y.From) })
	}
	weight := make([]uint64, len(p.Rows))
	var order []int
	for i := range p.Rows {
		weight[i] = p.Rows[i].length()
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

// visible is the minimum share of a culprit to get a row.
const visible = 250

// keep keeps some rows and merges the others into one if rest.
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
		if _, ok := where[i]; !ok && len(p.Rows[i].Bars) > 0 {
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

// stepText describes a step.
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
	if s.Activity != nil {
		text += ", for " + term.Clean(s.Activity.Words())
	}
	return text
}

// ticks returns round times for an axis of that many nanoseconds, such as 0, 5ms, 10ms:
// at most most after the first.
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
