package timeline

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/term"
)

// Dimensions in pixels.
const (
	svgWidth  = 1200.0
	svgMargin = 28.0
	svgLabel  = 275.0 // width of the names
	svgRow    = 30.0
	svgBar    = 20.0
	svgLine   = 20.0  // line height of lists
	svgRows   = 24    // maximum rows
	svgMost   = 50    // maximum results
	svgGauge  = 200.0 // width of a part's bar
)

// style defines a light and a dark theme; the viewer chooses.
const style = `
svg{--bg:#ffffff;--fg:#1f2328;--dim:#636c76;--grid:#d1d9e0;--soft:#f6f8fa;--on:#ffffff}
.running,.running_user,.running_kernel{--c:#2da44e}.preempted{--c:#cf222e}.runnable{--c:#bf8700}.misplaced{--c:#bc4c00}
.throttled{--c:#9a6700}.irq{--c:#8250df}.softirq{--c:#a45bd6}.stolen{--c:#82071e}.block_queue{--c:#4184e4}.block_device{--c:#0969da}
.lock{--c:#1b7c83}.task{--c:#2a8f97}.timer{--c:#7d8590}.network{--c:#218bff}.reclaim{--c:#bf3989}.compaction{--c:#d04a9a}
.page_fault{--c:#a0407f}.workqueue{--c:#0e7490}.journal{--c:#0550ae}.stopped{--c:#6e7781}.unexplained{--c:#afb8c1}
@media (prefers-color-scheme:dark){
svg{--bg:#0d1117;--fg:#e6edf3;--dim:#9198a1;--grid:#30363d;--soft:#151b23;--on:#ffffff}
.running,.running_user,.running_kernel{--c:#238636}.preempted{--c:#da3633}.runnable{--c:#9e6a03}.misplaced{--c:#bd561d}
.block_device{--c:#1f6feb}.block_queue{--c:#316dca}.stolen{--c:#b62324}.journal{--c:#1158c7}.timer{--c:#656c76}.unexplained{--c:#484f58}}
text{font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:var(--fg)}
.h{font-size:16px;font-weight:600}.s{fill:var(--dim);font-size:12px}.n{font-variant-numeric:tabular-nums;text-anchor:end}
.b{font-weight:600}tspan.s{font-weight:400}.bg{fill:var(--bg)}.soft{fill:var(--soft)}.grid{stroke:var(--grid);stroke-width:1}
.bar{fill:var(--c)}.other .bar{opacity:.75}.in{fill:var(--on);font-size:12px;text-anchor:middle;pointer-events:none}
.wake{stroke:var(--fg);stroke-width:1.3;fill:none}.tip{fill:var(--fg)}
`

// SVG writes results as one self-contained picture, light or dark as the viewer
// prefers, with tool tips.
func SVG(w io.Writer, results []explain.Result) error {
	d := &drawing{}
	for i := range results {
		if i > 0 {
			d.y += 24
		}
		if i == svgMost {
			d.y += svgLine
			d.text(svgMargin, d.y, "s", fmt.Sprintf("and %d more", len(results)-i))
			break
		}
		d.result(&results[i])
	}
	if len(results) == 0 {
		d.text(svgMargin, 0, "h", "no outlier: the snapshot was taken by hand")
		d.y += svgLine
	}
	out := bufio.NewWriter(w)
	height := d.y + svgMargin*2
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n", svgWidth, height, svgWidth, height)
	if len(results) > 0 {
		fmt.Fprintf(out, "<title>%s</title>\n", escape(results[0].Verdict))
	}
	fmt.Fprintf(out, "<style>%s</style>\n", style)
	fmt.Fprintf(out, `<rect class="bg" width="100%%" height="100%%"/><g transform="translate(0 %.0f)">`+"\n", svgMargin)
	_, _ = out.WriteString(d.b.String()) // Flush returns the error
	_, _ = out.WriteString("</g>\n</svg>\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	return nil
}

// drawing tracks the vertical position.
type drawing struct {
	b strings.Builder
	y float64
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(term.Clean(s))) // a strings.Builder never fails
	return b.String()
}

// add writes markup; text arguments must be escaped already.
func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.b, format+"\n", args...) }

func (d *drawing) text(x, y float64, class, s string) {
	d.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, escape(s))
}

func (d *drawing) result(r *explain.Result) {
	d.y += 14
	for _, line := range heading.wrap(term.Clean(r.Verdict), svgWidth-2*svgMargin) {
		d.text(svgMargin, d.y, "h", line)
		d.y += 22
	}
	for _, line := range small.wrap(term.Clean(r.Advice), svgWidth-2*svgMargin) {
		d.text(svgMargin, d.y, "s", line)
		d.y += svgLine
	}
	if len(r.Path) > 0 && r.EndMonoNS > r.StartMonoNS {
		d.y += 18
		d.picture(New(r, svgRows))
	}
	d.parts("Where the time went", r.Parts, r.DelayNS)
	if len(r.Roots) > 0 && !same(r.Parts, r.Roots) {
		d.parts("Root causes", r.Roots, r.DelayNS)
	}
}

// x returns the horizontal position of a time.
func (p *Picture) x(at uint64) float64 {
	room := svgWidth - 2*svgMargin - svgLabel
	return svgMargin + svgLabel + room*float64(at-p.From)/float64(p.To-p.From)
}

func (d *drawing) picture(p *Picture) {
	top := d.y
	bottom := top + svgRow*float64(len(p.Rows))
	for i := range p.Rows {
		if i%2 == 0 {
			d.add(`<rect class="soft" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4"/>`, svgMargin-8, top+svgRow*float64(i), svgWidth-2*svgMargin+16, svgRow)
		}
	}
	for _, at := range ticks(p.To-p.From, 10) {
		x := p.x(p.From + at)
		d.add(`<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, x, top-4, x, bottom)
		label := "0"
		if at > 0 {
			label = axisTime(at)
		}
		d.add(`<text x="%.1f" y="%.1f" class="s" text-anchor="middle">%s</text>`, x, top-9, label)
	}
	for i := range p.Rows {
		d.row(p, i, top+svgRow*float64(i))
	}
	d.arrows(p, top)
	d.y = bottom + 14
}

func (d *drawing) row(p *Picture, i int, y float64) {
	row := &p.Rows[i]
	class := "b"
	if i > 0 {
		class = ""
	}
	indent := 14 * float64(min(row.Depth, 8))
	letters := normal
	if i == 0 {
		letters = strong
	}
	room := svgLabel - indent - 12
	name := letters.cut(row.Name, room)
	note := ""
	if left := room - letters.pixels(name) - 7; row.Note != "" && left > 30 {
		note = fmt.Sprintf(`<tspan class="s" dx="7">%s</tspan>`, escape(small.cut(row.Note, left)))
	}
	d.add(`<text x="%.1f" y="%.1f" class="%s">%s%s<title>%s</title></text>`, svgMargin+indent, y+svgRow/2+4.5, class,
		escape(name), note, escape(strings.TrimSpace(row.Name+" "+row.Note)))
	kind := "path"
	if !row.Path {
		kind = "other"
	}
	d.add(`<g class="%s">`, kind)
	for _, s := range p.strips(row) {
		x, end := p.x(s.From), p.x(s.To)
		width := max(end-x, 0.6)
		high, down := svgBar, (svgRow-svgBar)/2
		if !row.Path {
			high, down = svgBar*0.7, (svgRow-svgBar*0.7)/2
		}
		d.add(`<rect class="bar %s" x="%.2f" y="%.1f" width="%.2f" height="%.1f" rx="%.1f"><title>%s</title></rect>`,
			classOf(s.Cause), x, y+down, width, high, min(3, width/3), escape(s.tip(p.From)))
		for _, words := range []string{s.Text, term.CauseWords(s.Cause)} {
			if row.Path && small.pixels(words)+8 < width {
				d.text(x+width/2, y+svgRow/2+4, "in", words)
				break
			}
		}
	}
	d.add(`</g>`)
}

// classOf returns the CSS class of a known cause.
func classOf(c explain.Cause) string {
	for _, r := range c {
		if (r < 'a' || r > 'z') && r != '_' {
			return "unexplained"
		}
	}
	return string(c)
}

// strip is a drawn interval: one bar, or several short ones.
type strip struct {
	Bar
	count int
}

func (s *strip) tip(begin uint64) string {
	text := fmt.Sprintf("%s\nfor %s, from %s on", s.Text, term.Duration(int64(s.To-s.From)), term.Duration(int64(s.From-begin)))
	if s.count > 1 {
		text = fmt.Sprintf("%s, and %d more\nwithin %s, from %s on", s.Text, s.count-1, term.Duration(int64(s.To-s.From)), term.Duration(int64(s.From-begin)))
	}
	return text
}

// strips merges bars that are too short to be visible, which bounds the size of the
// picture.
func (p *Picture) strips(row *Row) []strip {
	least := (p.To - p.From) / 1200
	var out []strip
	longest := uint64(0)
	for _, b := range row.Bars {
		if n := len(out); n > 0 {
			last := &out[n-1]
			short := last.To-last.From < least || b.To-b.From < least
			if short && b.From < last.To+least && last.To-last.From < 2*least {
				if b.To-b.From > longest {
					longest = b.To - b.From
					last.Cause, last.State, last.Text = b.Cause, b.State, b.Text
				}
				last.To = max(last.To, b.To)
				last.count++
				continue
			}
			if n > 1 && last.To-last.From < least { // too short to be visible
				if before := &out[n-2]; before.To+least >= b.From && before.Cause == b.Cause && before.Text == b.Text {
					out, last = out[:n-1], before
				}
			}
			if last.To+least >= b.From && last.Cause == b.Cause && last.Text == b.Text {
				last.To = max(last.To, b.To)
				continue
			}
		}
		longest = b.To - b.From
		out = append(out, strip{Bar: b, count: 1})
	}
	return out
}

// arrows draws where the path comes from.
func (d *drawing) arrows(p *Picture, top float64) {
	for i, a := range p.Arrows {
		if i == 400 {
			break // too close together
		}
		x, from, to := p.x(a.At), top+svgRow*(float64(a.From)+0.5), top+svgRow*(float64(a.To)+0.5)
		tip := svgBar / 2
		if from < to {
			tip = -tip
		}
		d.add(`<path class="wake" d="M%.1f %.1fL%.1f %.1f"/><path class="tip" d="M%.1f %.1fl-3.5 %.1fh7z"/>`,
			x, from, x, to+tip, x, to+tip, 6*sign(tip))
	}
}

func sign(f float64) float64 {
	if f < 0 {
		return -1
	}
	return 1
}

// parts lists the parts of a result.
func (d *drawing) parts(title string, parts []explain.Part, whole int64) {
	if len(parts) == 0 {
		return
	}
	d.y += 18
	d.text(svgMargin, d.y, "b", title)
	d.y += 8
	shown, rest := worthIt(parts, whole)
	for i := range shown {
		p := &shown[i]
		d.part(classOf(p.Cause), partText(p), p.NS, whole)
	}
	if len(rest) > 0 {
		d.part("unexplained", fmt.Sprintf("%d more", len(rest)), sum(rest), whole)
	}
	d.y += 8
}

// part draws one line of the list.
func (d *drawing) part(class, words string, ns, whole int64) {
	d.y += svgLine
	width := svgGauge * min(max(float64(ns)/float64(max(whole, 1)), 0), 1)
	d.add(`<text x="%.1f" y="%.1f" class="n">%s</text><text x="%.1f" y="%.1f" class="n s">%s</text>`,
		svgMargin+62, d.y, term.Duration(ns), svgMargin+112, d.y, escape(percent(ns, whole)))
	d.add(`<g class="%s"><rect class="bar" x="%.1f" y="%.1f" width="%.2f" height="11" rx="2"/></g>`, class, svgMargin+126, d.y-10, max(width, 1))
	x := svgMargin + 126 + svgGauge + 14
	d.text(x, d.y, "", normal.cut(words, svgWidth-svgMargin-x))
}
