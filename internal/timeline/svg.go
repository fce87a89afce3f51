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

// shapes is the style of both themes.
const shapes = `text{font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:var(--fg)}
.h{font-size:16px;font-weight:600}.s{fill:var(--dim);font-size:12px}.n{font-variant-numeric:tabular-nums;text-anchor:end}
.b{font-weight:600}tspan.s{font-weight:400}.bg{fill:var(--bg)}.soft{fill:var(--soft)}.grid{stroke:var(--grid);stroke-width:1}
.bar{fill:var(--c)}.in{fill:var(--on);font-size:12px;text-anchor:middle;pointer-events:none}
.wake{stroke:var(--fg);stroke-width:1.3;fill:none}.tip{fill:var(--fg)}
`

// fonts for what reads no style.
const fonts = `font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13"`

// SVG writes results as one self-contained picture, light or dark as the viewer
// prefers, with tool tips.
func SVG(w io.Writer, results []explain.Result) error {
	d := &drawing{used: map[string]bool{}}
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
	d.legend()
	out := bufio.NewWriter(w)
	height := d.y + svgMargin*2
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n", svgWidth, height, svgWidth, height)
	if len(results) > 0 {
		fmt.Fprintf(out, "<title>%s</title>\n", escape(results[0].Verdict))
	}
	fmt.Fprintf(out, "<style>\n%s%s</style>\n", variables("svg"), shapes)
	fmt.Fprintf(out, `<rect class="bg" width="100%%" height="100%%"%s/><g transform="translate(0 %.0f)" %s%s>`+"\n",
		fillWith(background.light), svgMargin, fonts, fillWith(foreground.light))
	_, _ = out.WriteString(d.b.String()) // Flush returns the error
	_, _ = out.WriteString("</g>\n</svg>\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	return nil
}

// drawing tracks the vertical position.
type drawing struct {
	b    strings.Builder
	y    float64
	used map[string]bool // classes of bars
	// live draws every bar by itself, with its times and step, for a script that zooms.
	live bool
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(term.Clean(s))) // a strings.Builder never fails
	return b.String()
}

// escapeLines keeps the ends of lines, which tool tips show.
func escapeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = escape(lines[i])
	}
	return strings.Join(lines, "\n")
}

// add writes markup; text arguments must be escaped already.
func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.b, format+"\n", args...) }

func (d *drawing) text(x, y float64, class, s string) {
	d.add(`<text x="%.1f" y="%.1f" class="%s"%s>%s</text>`, x, y, class, attributes(class), escape(s))
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
			d.add(`<rect class="soft"%s x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4"/>`, fillWith(soft.light), svgMargin-8, top+svgRow*float64(i), svgWidth-2*svgMargin+16, svgRow)
		}
	}
	for _, at := range ticks(p.To-p.From, 10) {
		x := p.x(p.From + at)
		d.add(`<line class="grid" stroke="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, grid.light, x, top-4, x, bottom)
		label := "0"
		if at > 0 {
			label = axisTime(at)
		}
		d.add(`<text x="%.1f" y="%.1f" class="s axis"%s text-anchor="middle">%s</text>`, x, top-9, attributes("s"), label)
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
		note = fmt.Sprintf(`<tspan class="s"%s font-weight="400" dx="7">%s</tspan>`, attributes("s"), escape(small.cut(row.Note, left)))
	}
	d.add(`<text x="%.1f" y="%.1f" class="%s"%s>%s%s<title>%s</title></text>`, svgMargin+indent, y+svgRow/2+4.5, class, attributes(class),
		escape(name), note, escape(strings.TrimSpace(row.Name+" "+row.Note)))
	kind := `class="path"`
	if !row.Path {
		kind = `class="other" opacity="0.75"`
	}
	d.add(`<g %s>`, kind)
	strips := p.strips
	if d.live {
		strips = each
	}
	for _, s := range strips(row) {
		d.strip(p, row, &s, y)
	}
	d.add(`</g>`)
}

// strip draws one strip of a row that begins at y.
func (d *drawing) strip(p *Picture, row *Row, s *strip, y float64) {
	high := svgBar
	if !row.Path {
		high *= 0.7
	}
	down := (svgRow - high) / 2
	x, end := p.x(s.From), p.x(s.To)
	width := max(end-x, 0.6)
	if s.count > 1 {
		d.pieces(p, s, x, y+down, width, high)
		return
	}
	class := classOf(s.Cause)
	d.used[class] = true
	times := ""
	if d.live {
		times = fmt.Sprintf(` data-from="%d" data-to="%d" data-step="%d"`, s.From-p.From, s.To-p.From, s.Step)
	}
	d.add(`<rect class="bar %s"%s x="%.2f" y="%.1f" width="%.2f" height="%.1f" rx="%.1f"%s%s><title>%s</title></rect>`,
		class, fillOf(class), x, y+down, width, high, min(3, width/3), times, row.look(class), escapeLines(s.tip(p.From)))
	if !row.Path {
		return
	}
	for _, words := range []string{s.Text, term.CauseWords(s.Cause)} {
		if small.pixels(words)+8 < width {
			d.text(x+width/2, y+svgRow/2+4, "in", words)
			break
		}
	}
}

// pieces draws a strip of several bars: the pieces stand upon each other.
func (d *drawing) pieces(p *Picture, s *strip, x, y, width, high float64) {
	d.add(`<g class="strip"><title>%s</title>`, escapeLines(s.tip(p.From)))
	at := y + high
	for i, share := range s.heights() {
		class := s.pieces[i].class
		d.used[class] = true
		at -= high * share
		d.add(`<rect class="bar %s"%s x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, class, fillOf(class), x, at, width, high*share)
	}
	d.add(`</g>`)
}

// look is how bars look of something that was waited for, and not seen at work.
func (r *Row) look(class string) string {
	if !r.Unseen {
		return ""
	}
	return ` fill-opacity="0.15" stroke-width="1" stroke-dasharray="3 2" stroke="` + causeColor(class) + `"`
}

// arrows draws where the path comes from.
func (d *drawing) arrows(p *Picture, top float64) {
	const apart = 6 // pixels: arrows that are closer become one, unless a script draws them apart
	last := map[[2]int]float64{}
	for i, a := range p.Arrows {
		if before, ok := last[[2]int{a.From, a.To}]; !d.live && ok && p.x(a.At)-before < apart {
			continue
		}
		if d.live && i == maxArrows {
			break
		}
		last[[2]int{a.From, a.To}] = p.x(a.At)
		x, from, to := p.x(a.At), top+svgRow*(float64(a.From)+0.5), top+svgRow*(float64(a.To)+0.5)
		tip := svgBar / 2
		if from < to {
			tip = -tip
		}
		time := ""
		if d.live {
			time = fmt.Sprintf(` data-at="%d" data-x="%.2f" data-rows="%d-%d"`, a.At-p.From, x, a.From, a.To)
		}
		d.add(`<g class="arrow"%s><path class="wake" stroke="%s" stroke-width="1.3" fill="none" d="M%.1f %.1fL%.1f %.1f"/><path class="tip" d="M%.1f %.1fl-3.5 %.1fh7z"/></g>`,
			time, foreground.light, x, from, x, to+tip, x, to+tip, 6*sign(tip))
	}
}

func sign(f float64) float64 {
	if f < 0 {
		return -1
	}
	return 1
}

// legend says what the colours mean that were used.
func (d *drawing) legend() {
	x := svgMargin
	d.y += svgLine
	seen := map[string]bool{}
	for i := range causes {
		class, words := string(causes[i].cause), term.CauseWords(causes[i].cause)
		if !d.used[class] || seen[words] {
			continue
		}
		seen[words] = true
		room := 14 + small.pixels(words) + 18
		if x+room > svgWidth-svgMargin {
			x, d.y = svgMargin, d.y+svgLine
		}
		d.add(`<rect class="key bar %s"%s x="%.1f" y="%.1f" width="10" height="10" rx="2"/>`, class, fillOf(class), x, d.y-9)
		d.text(x+14, d.y, "s", words)
		x += room
	}
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
		d.part(more, fmt.Sprintf("%d more", len(rest)), sum(rest), whole)
	}
	d.y += 8
}

// part draws one line of the list.
func (d *drawing) part(class, words string, ns, whole int64) {
	d.y += svgLine
	width := svgGauge * min(max(float64(ns)/float64(max(whole, 1)), 0), 1)
	d.text(svgMargin+62, d.y, "n", term.Duration(ns))
	d.text(svgMargin+112, d.y, "n s", percent(ns, whole))
	d.used[class] = true
	d.add(`<rect class="part bar %s"%s x="%.1f" y="%.1f" width="%.2f" height="11" rx="2"/>`, class, fillOf(class), svgMargin+126, d.y-10, max(width, 1))
	x := svgMargin + 126 + svgGauge + 14
	d.text(x, d.y, "", normal.cut(words, svgWidth-svgMargin-x))
}
