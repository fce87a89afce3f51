package timeline

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
	"io"
	"strings"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/tracker/events"
)

// Page is what HTML shows. All of it may come from anywhere.
type Page struct {
	Title string
	Facts []Fact // of the snapshot
	Notes []string
	// Results have their outliers at the same index; there may be fewer outliers.
	Results    []explain.Result
	Outliers   []events.Outlier
	Neighbours []Neighbour
}

// Fact is a name with a value.
type Fact struct{ Name, Value string }

// Neighbour is another snapshot, taken shortly before or after.
type Neighbour struct{ When, ID, Text string }

var (
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
	//go:embed page.html
	pageBody string
)

var body = template.Must(template.New("page").Funcs(template.FuncMap{"clean": term.Clean}).Parse(pageBody))

// Bounds of a page.
const (
	maxLiveBars  = 20_000 // that a script moves
	maxArrows    = 2_000  // of one picture
	maxPageParts = 200    // of one list
	maxStacks    = 200    // of one outlier
)

// pageOutlier is what the template shows of one outlier.
type pageOutlier struct {
	Number                     int
	When, Rule                 string
	Verdict, Advice            string
	Remarks                    []string
	Picture                    template.HTML // made by drawing, which escapes
	Left, Room, Top, Bottom    float64
	Whole                      uint64
	Lists                      []pageParts
	Steps, Stacks              []pageStack
	Live, HasPicture, HasSteps bool
}

type pageParts struct {
	Title string
	Parts []pagePart
	More  int
}

type pagePart struct {
	Class, Fill, Time, Share, Words string
	NS                              int64
	Width                           string
}

type pageStack struct {
	Step   int
	Title  string
	Frames []string
}

// HTML writes a page that loads nothing, and says so to the browser: style and script are in
// it, and no others may run. Without its script it shows the same.
func HTML(w io.Writer, p *Page) error {
	out := bufio.NewWriter(w)
	style := "\n" + variables(":root") + shapes + pageStyle
	script := "\n" + pageScript
	fmt.Fprintf(out, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<style>%s</style>
</head>
`, sourceHash(style), sourceHash(script), html.EscapeString(term.Clean(p.Title)), style)
	data := struct {
		*Page
		Shown []pageOutlier
		Rest  int
	}{Page: p}
	bars := 0
	for i := range min(len(p.Results), svgMost) {
		data.Shown = append(data.Shown, p.outlier(i, &bars))
	}
	data.Rest = len(p.Results) - len(data.Shown)
	if err := body.Execute(out, &data); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	fmt.Fprintf(out, "<script>%s</script>\n</body>\n</html>\n", script)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// sourceHash is how a policy names what may run.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// outlier prepares one outlier; bars counts those that a script can move.
func (p *Page) outlier(i int, bars *int) pageOutlier {
	r := &p.Results[i]
	o := pageOutlier{Number: i + 1, Rule: r.Rule, Verdict: r.Verdict, Advice: r.Advice, Remarks: r.Remarks()}
	if i < len(p.Outliers) {
		o.When = term.Time(p.Outliers[i].Time)
		o.Stacks = stacksOf(&p.Outliers[i])
	}
	d := &drawing{used: map[string]bool{}}
	if len(r.Path) > 0 && r.EndMonoNS > r.StartMonoNS {
		pic := New(r, svgRows)
		n := 0
		for j := range pic.Rows {
			n += len(pic.Rows[j].Bars)
		}
		if *bars+n <= maxLiveBars {
			d.live, *bars = true, *bars+n
		}
		d.y = 24
		o.Top, o.HasPicture, o.Live = d.y, true, d.live
		d.picture(pic)
		o.Bottom = d.y - 14
		o.Left, o.Room, o.Whole = svgMargin+svgLabel, svgWidth-2*svgMargin-svgLabel, pic.To-pic.From
		d.legend()
		o.Picture = template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img"><g>`+"\n%s</g></svg>", //nolint:gosec // drawing escapes
			svgWidth, d.y+10, d.b.String()))
		o.Steps = stepStacks(r)
	}
	o.Lists = append(o.Lists, pageList("Where the time went", r.Parts, r.DelayNS))
	if len(r.Roots) > 0 && !same(r.Parts, r.Roots) {
		o.Lists = append(o.Lists, pageList("Root causes", r.Roots, r.DelayNS))
	}
	return o
}

func pageList(title string, parts []explain.Part, whole int64) pageParts {
	l := pageParts{Title: title}
	for i := range min(len(parts), maxPageParts) {
		p := &parts[i]
		class := classOf(p.Cause)
		width := svgGauge * min(max(float64(p.NS)/float64(max(whole, 1)), 0), 1)
		l.Parts = append(l.Parts, pagePart{
			Class: class, Fill: causeColor(class), Time: term.Duration(p.NS), Share: percent(p.NS, whole), Words: partText(p), NS: p.NS, Width: fmt.Sprintf("%.3f", width),
		})
	}
	l.More = len(parts) - len(l.Parts)
	return l
}

// stacksOf lists the stacks of an outlier.
func stacksOf(o *events.Outlier) []pageStack {
	var out []pageStack
	add := func(title string, frames []events.Frame) {
		if len(frames) > 0 && len(out) < maxStacks {
			out = append(out, pageStack{Title: title, Frames: frames})
		}
	}
	add("in the kernel", o.Stacks.Kernel)
	add("in the program", o.Stacks.User)
	add("of who woke it", o.Stacks.Waker)
	for i := range o.Stacks.Progress {
		p := &o.Stacks.Progress[i]
		add(fmt.Sprintf("%s after its entry, %s", term.Duration(p.AgeNS), p.State), p.Kernel)
	}
	return out
}

// stepStacks lists the stacks on the path.
func stepStacks(r *explain.Result) []pageStack {
	var out []pageStack
	for i := range r.Path {
		s := &r.Path[i]
		frames := s.Stack
		if len(s.WakerStack) > 0 {
			frames = append(append(append([]string{}, frames...), "woken by"), s.WakerStack...)
		}
		if len(frames) == 0 {
			continue
		}
		if len(out) == maxStacks {
			break
		}
		from := int64(max(s.FromMonoNS, r.StartMonoNS) - r.StartMonoNS)
		out = append(out, pageStack{Step: i, Frames: frames, Title: fmt.Sprintf("from %s on: %s", term.Duration(from), stepText(s))})
	}
	return out
}

// Text is a stack as lines.
func (s pageStack) Text() string {
	var b strings.Builder
	for _, f := range s.Frames {
		b.WriteString(term.Clean(f) + "\n")
	}
	return b.String()
}
