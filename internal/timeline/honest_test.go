package timeline

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
)

// crowded is an outlier whose path has thousands of short steps: of three causes, the largest
// piece of nearly every interval is not what most of it went to.
func crowded(seed, scale uint64) *explain.Result {
	r := commit()
	r.Path = nil
	rng := rand.New(rand.NewPCG(seed, 1))
	for at := r.StartMonoNS; at < r.EndMonoNS; {
		add := func(ns uint64, state string, cause explain.Cause) {
			end := min(at+ns*scale, r.EndMonoNS)
			if at < end {
				r.Path = append(r.Path, explain.Step{FromMonoNS: at, ToMonoNS: end, Task: r.Task, CPU: -1, State: state, Cause: cause})
			}
			at = end
		}
		add(4000+rng.Uint64N(300), "running", explain.RunningKernel)
		for range 2 {
			add(3000, "blocked", explain.Locked)
			add(500+rng.Uint64N(300), "runnable", explain.Runnable)
		}
	}
	return r
}

func truth(r *explain.Result) map[string]float64 {
	sums := map[string]float64{}
	for i := range r.Path {
		sums[string(r.Path[i].Cause)] += float64(r.Path[i].ToMonoNS-r.Path[i].FromMonoNS) / float64(r.EndMonoNS-r.StartMonoNS)
	}
	return sums
}

// TestAreas: of bars that are too short to be seen by themselves, each cause has the area that
// its time asks for.
func TestAreas(t *testing.T) {
	room := (svgWidth - 2*svgMargin - svgLabel) * svgBar
	for seed := range uint64(5) {
		r := crowded(seed, 1)
		var b bytes.Buffer
		assert.NilError(t, SVG(&b, []explain.Result{*r}))
		wellFormed(t, b.Bytes())
		assert.Check(t, b.Len() < 1<<20, "%d bytes", b.Len())
		sums := map[string]float64{}
		for _, x := range bars(t, b.Bytes(), "bar ") {
			sums[strings.TrimPrefix(x.class, "bar ")] += x.width * x.height / room
		}
		for cause, share := range truth(r) {
			assert.Check(t, math.Abs(sums[cause]-share) < 0.02, "%s: %.3f drawn, %.3f true", cause, sums[cause], share)
		}
	}
}

// TestCellsOwe: a terminal's columns, too: as many have a cause as its time asks for.
func TestCellsOwe(t *testing.T) {
	r := crowded(7, 1)
	p := New(r, mostRows)
	const n = 60
	counts := map[string]float64{}
	for _, c := range p.cells(&p.Rows[0], n) {
		counts[string(c.cause)]++
	}
	for cause, share := range truth(r) {
		assert.Check(t, math.Abs(counts[cause]-share*n) <= 1, "%s: %.0f of %d columns, %.1f wanted", cause, counts[cause], n, share*n)
	}
	assert.Check(t, counts[string(explain.Locked)] > counts[string(explain.RunningKernel)], "the longest pieces would be %v", counts)
}

// TestPagePixelsInBrowser: the page's script draws bars that share a pixel likewise.
func TestPagePixelsInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	r := crowded(3, 2)
	dom := browse(t, htmlOf(t, &Page{Results: []explain.Result{*r}}), "")
	_, dom, _ = strings.Cut(dom, "<figure")
	dom, _, _ = strings.Cut(dom, "</figure>")
	room := (svgWidth - 2*svgMargin - svgLabel) * svgBar
	sums, shared := map[string]float64{}, 0
	for _, m := range regexp.MustCompile(`<rect ([^>]*)>`).FindAllStringSubmatch(dom, -1) {
		a := map[string]string{}
		for _, f := range fields.FindAllStringSubmatch(m[1], -1) {
			a[f[1]] = html.UnescapeString(f[2])
		}
		words := strings.Fields(a["class"])
		if len(words) < 2 || words[0] != "bar" || a["visibility"] == "hidden" {
			continue
		}
		if len(words) == 3 {
			shared++
		}
		width, _ := strconv.ParseFloat(a["width"], 64)
		height, _ := strconv.ParseFloat(a["height"], 64)
		sums[words[1]] += width * height / room
	}
	assert.Check(t, shared > 500, "%d pixels are shared", shared)
	for cause, share := range truth(r) {
		assert.Check(t, math.Abs(sums[cause]-share) < 0.03, "%s: %.3f drawn, %.3f true", cause, sums[cause], share)
	}
}

// TestSmallCulprits: those below a twentieth have one row for all that have the same name, and
// what was only waited for is not drawn as if it had worked.
func TestSmallCulprits(t *testing.T) {
	r := commit()
	r.Path = nil
	at := r.StartMonoNS
	behind := func(by explain.Who, cause explain.Cause, ns uint64) {
		r.Path = append(r.Path, explain.Step{FromMonoNS: at, ToMonoNS: at + ns, Task: r.Task, State: "runnable", Cause: cause, By: &by})
		at += ns
	}
	for i := range 20 {
		behind(task("cc1plus", 500+i), explain.Runnable, ms)
	}
	behind(task("ld", 700), explain.Runnable, ms)
	behind(task("cc1plus", 600), explain.Runnable, 10*ms)
	behind(explain.Who{Kind: explain.KindNetwork, Name: "the network"}, explain.Network, 10*ms)
	p := New(r, svgRows)
	var rows []string
	for _, row := range p.Rows {
		rows = append(rows, fmt.Sprintf("%s %d %v", row.Name, len(row.Bars), row.Unseen))
	}
	assert.Check(t, is.DeepEqual(rows, []string{"postgres[1234] 23 false", "cc1plus, 20 threads 20 false", "ld[700] 1 false", "cc1plus[600] 1 false", "the network 1 true"}))
	var b bytes.Buffer
	assert.NilError(t, SVG(&b, []explain.Result{*r}))
	assert.Check(t, is.Equal(strings.Count(b.String(), "stroke-dasharray"), 1))
}

// TestDenseArrows: arrows that would touch are drawn once.
func TestDenseArrows(t *testing.T) {
	r := commit()
	r.Path = nil
	other := task("other", 5)
	for i := range uint64(5000) {
		at := r.StartMonoNS + i*10_000
		r.Path = append(r.Path, explain.Step{FromMonoNS: at, ToMonoNS: at + 5000, Task: r.Task, State: "blocked", Cause: explain.Task, By: &other, Waker: &other},
			explain.Step{FromMonoNS: at, ToMonoNS: at + 5000, Task: other, Depth: 1, State: "running", Cause: explain.RunningUser})
	}
	p := New(r, svgRows)
	assert.Assert(t, len(p.Arrows) == 5000, "%d arrows", len(p.Arrows))
	var b bytes.Buffer
	assert.NilError(t, SVG(&b, []explain.Result{*r}))
	n, most := strings.Count(b.String(), `class="arrow"`), int(svgWidth)/6
	assert.Check(t, n > most/2 && n <= most, "%d arrows, at most %d", n, most)
}
