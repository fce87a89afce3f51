package timeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/term"
)

// Maximum rows drawn on a terminal, and parts listed.
const (
	mostRows  = 14
	mostParts = 12
)

// Print draws a result: verdict, time line and parts, as wide as the console. Without
// colors, patterns distinguish running, waiting and interrupted time.
func Print(c *term.Console, r *explain.Result) {
	width := c.Columns()
	for i, line := range term.Wrap(term.Clean(r.Verdict), width) {
		if i == 0 || line != "" {
			c.Printf("%s\n", c.Paint(term.Bold, line))
		}
	}
	for _, line := range term.Wrap(term.Clean(r.Advice), width) {
		c.Printf("%s\n", line)
	}
	for _, remark := range r.Remarks() {
		for _, line := range term.Wrap(term.Clean(remark), width) {
			c.Printf("%s\n", line)
		}
	}
	if len(r.Path) > 0 && r.EndMonoNS > r.StartMonoNS {
		c.Printf("\n")
		t := text{c: c, p: New(r, mostRows), width: width}
		t.draw()
	}
	if len(r.Parts) > 0 {
		c.Printf("\n")
		printParts(c, "where the time went", r.Parts, r.DelayNS)
	}
	if len(r.Roots) > 0 && !same(r.Parts, r.Roots) {
		c.Printf("\n")
		printParts(c, "root causes", r.Roots, r.DelayNS)
	}
}

// same reports whether two lists of parts are equal.
func same(a, b []explain.Part) bool {
	return slices.EqualFunc(a, b, func(a, b explain.Part) bool {
		return a.Cause == b.Cause && a.NS == b.NS && term.Who(a.By) == term.Who(b.By)
	})
}

// text draws one picture.
type text struct {
	c      *term.Console
	p      *Picture
	width  int // total columns
	labels int // columns for names
	room   int // columns for bars
}

func (t *text) draw() {
	for i := range t.p.Rows {
		t.labels = max(t.labels, term.Width(t.label(i)))
	}
	t.labels = min(t.labels, max(t.width/3, 12))
	t.room = t.width - t.labels - 2
	t.axis()
	for i := range t.p.Rows {
		row := &t.p.Rows[i]
		style := term.Plain
		switch {
		case i == 0:
			style = term.Bold
		case !row.Path:
			style = term.Dim
		}
		bars := t.path(row)
		if !row.Path {
			bars = t.culprit(row)
		}
		t.c.Printf("%s  %s\n", t.c.Paint(style, term.Fill(t.label(i), t.labels)), bars)
	}
}

// label returns a row's name, indented by depth.
func (t *text) label(i int) string {
	row := &t.p.Rows[i]
	s := row.Name
	if row.Depth > 0 {
		s = strings.Repeat(" ", min(row.Depth-1, 5)) + "└ " + s
	}
	if row.Note != "" {
		s += " " + row.Note
	}
	return s
}

// axis draws times above the bars.
func (t *text) axis() {
	whole := t.p.To - t.p.From
	line := []rune(strings.Repeat("─", t.room))
	names := []rune(strings.Repeat(" ", t.room))
	for _, at := range ticks(whole, max(t.room/12, 2)) {
		x := min(int(float64(at)/float64(whole)*float64(t.room)), t.room-1)
		line[x] = '┬'
		name := []rune(axisTime(at))
		if at == 0 {
			name = []rune("0")
		}
		x = min(x, t.room-len(name))
		if x < 0 || x > 0 && strings.TrimSpace(string(names[x-1:])) != "" {
			continue
		}
		copy(names[x:], name)
	}
	line[0] = '┌'
	if line[t.room-1] == '┬' {
		line[t.room-1] = '┐'
	}
	t.c.Printf("%s  %s\n", strings.Repeat(" ", t.labels), t.c.Paint(term.Dim, strings.TrimRight(string(names), " ")))
	t.c.Printf("%s  %s\n", strings.Repeat(" ", t.labels), t.c.Paint(term.Dim, string(line)))
}

// axisTime formats a round time without trailing digits.
func axisTime(ns uint64) string {
	for _, u := range []struct {
		ns   uint64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if ns >= u.ns {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(ns)/float64(u.ns)), ".0") + u.name
		}
	}
	return fmt.Sprintf("%dns", ns)
}

// fills distinguish the states of a task without colors.
var fills = map[string]string{"running": "█", "runnable": "▒", "blocked": "░", "interrupted": "▓", "unknown": "·"}

func fill(c *cell) string {
	if c.cause == explain.Unexplained {
		return "·"
	}
	if f := fills[c.state]; f != "" {
		return f
	}
	return "░"
}

// path draws a task's time line, with causes where they fit.
func (t *text) path(row *Row) string {
	cells := t.p.cells(row, t.room)
	var b strings.Builder
	for i := 0; i < len(cells); {
		j, one := i+1, true
		for j < len(cells) && cells[j].cause == cells[i].cause && cells[j].state == cells[i].state && (cells[j].share > 0) == (cells[i].share > 0) {
			one = one && cells[j].text == cells[i].text
			j++
		}
		c := cells[i]
		if !one {
			c.text = "" // several causes, listed below
		}
		b.WriteString(t.stretch(&c, j-i))
		i = j
	}
	return strings.TrimRight(b.String(), " ")
}

// stretch draws n equal columns.
func (t *text) stretch(c *cell, n int) string {
	if c.share == 0 {
		return strings.Repeat(" ", n)
	}
	style := term.CauseStyle(c.cause)
	name := ""
	for _, words := range []string{c.text, term.CauseWords(c.cause)} {
		if w := term.Width(words); words != "" && w+4 <= n {
			name = " " + words + " "
			break
		}
	}
	left := (n - term.Width(name)) / 2
	if name == "" {
		return t.c.Paint(style, strings.Repeat(fill(c), n))
	}
	right := n - left - term.Width(name)
	return t.c.Paint(style, strings.Repeat(fill(c), left)) + t.c.Paint(term.Bold, name) + t.c.Paint(style, strings.Repeat(fill(c), right))
}

// levels show how much of a column a culprit took.
var levels = []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}

// culprit draws when a culprit had the resource.
func (t *text) culprit(row *Row) string {
	cells := t.p.cells(row, t.room)
	var b strings.Builder
	for i := 0; i < len(cells); {
		j := i + 1
		for j < len(cells) && cells[j].cause == cells[i].cause && level(&cells[j]) == level(&cells[i]) {
			j++
		}
		columns := strings.Repeat(level(&cells[i]), j-i)
		if cells[i].share > 0 {
			columns = t.c.Paint(term.CauseStyle(cells[i].cause), columns)
		}
		b.WriteString(columns)
		i = j
	}
	return strings.TrimRight(b.String(), " ")
}

func level(c *cell) string {
	if c.share <= 0 {
		return " "
	}
	return levels[min(int(c.share*float64(len(levels))), len(levels)-1)]
}

// printParts lists the parts with their share.
func printParts(c *term.Console, title string, parts []explain.Part, whole int64) {
	c.Printf("%s\n", c.Paint(term.Dim, title))
	gauge := max(min(c.Columns()/6, 24), 6)
	shown, rest := worthIt(parts, whole)
	for i := range shown {
		p := &shown[i]
		c.Printf("%s\n", partLine(c, p.NS, whole, gauge, term.CauseStyle(p.Cause), partText(p)))
	}
	if len(rest) > 0 {
		c.Printf("%s\n", partLine(c, sum(rest), whole, gauge, term.Dim, fmt.Sprintf("%d more", len(rest))))
	}
}

// worthIt splits parts, largest first, into those to list and those to sum up.
// Unexplained time is always listed.
func worthIt(parts []explain.Part, whole int64) (shown, rest []explain.Part) {
	for i := range parts {
		p := &parts[i]
		if i < 3 || i < mostParts && p.NS >= whole/1000 || p.Cause == explain.Unexplained {
			shown = append(shown, *p)
		} else {
			rest = append(rest, *p)
		}
	}
	if len(rest) == 1 {
		return append(shown, rest...), nil
	}
	return shown, rest
}

func sum(parts []explain.Part) int64 {
	var ns int64
	for i := range parts {
		ns += parts[i].NS
	}
	return ns
}

// partText describes a part.
func partText(p *explain.Part) string {
	words := term.Blame(p.Cause, p.By)
	if rank := term.Rank(p.By); rank != "" {
		words += " (" + rank + ")"
	}
	if p.Reason != "" {
		words += ": " + term.Clean(p.Reason)
	}
	if p.Activity != nil {
		words += ", for " + term.Clean(p.Activity.Words())
	}
	if e := p.Evicted; e != nil && e.Activity != nil {
		words += ", evicted for " + term.Clean(e.Activity.Words())
	}
	if p.Count > 1 {
		words += fmt.Sprintf(", %s times", term.Count(uint64(p.Count)))
	}
	return words
}

func partLine(c *term.Console, ns, whole int64, gauge int, style term.Style, words string) string {
	head := fmt.Sprintf("%8s %6s  ", term.Duration(ns), percent(ns, whole))
	room := c.Columns() - term.Width(head) - gauge - 2
	return head + c.Paint(style, term.Fill(term.Gauge(float64(ns)/float64(max(whole, 1)), gauge), gauge)) + "  " + term.Shorten(words, room)
}

func percent(part, whole int64) string {
	if whole <= 0 {
		return ""
	}
	share := 100 * float64(part) / float64(whole)
	if share < 0.1 && part > 0 {
		return "<0.1%"
	}
	return fmt.Sprintf("%.1f%%", share)
}
