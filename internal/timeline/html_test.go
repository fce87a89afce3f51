package timeline

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/tracker/events"
)

// attack is a name that wants to be markup.
const attack = `</script></style></title><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"'` + "`${x}\x1b[2J\u202e"

// hostilePage has the attack wherever something comes from outside.
func hostilePage() *Page {
	r := *commit()
	r.Verdict, r.Advice, r.Rule, r.Task.Comm, r.Task.Title = attack, attack, attack, attack, attack
	r.Path = append([]explain.Step{}, r.Path...)
	for i := range r.Path {
		by := *r.Path[0].By
		by.Comm, by.Name, by.Policy = attack, attack, attack
		r.Path[i].By, r.Path[i].Task.Comm, r.Path[i].Why, r.Path[i].Stack = &by, attack, attack, []string{attack}
	}
	r.Path[2].Cause, r.Path[2].State = explain.Cause(attack), attack
	r.Parts = []explain.Part{{Cause: explain.Cause(attack), By: r.Path[0].By, NS: -1, Reason: attack}}
	o := events.Outlier{Stacks: events.Stacks{Kernel: []string{attack}, User: []string{attack}, Waker: []string{attack}, Progress: []events.Progress{{State: attack, Kernel: []string{attack}}}}}
	return &Page{
		Title: attack, Notes: []string{attack}, Facts: []Fact{{"host", attack}}, Results: []explain.Result{r}, Outliers: []events.Outlier{o},
		Neighbours: []Neighbour{{attack, attack, attack}},
	}
}

func somePage() *Page {
	r := commit()
	r.Path[1].Stack = []string{"io_schedule+0x1", "jbd2_log_wait_commit+0x2"}
	return &Page{
		Title: "20261121T000000.000000000Z-fsync-000001", Facts: []Fact{{"host", "vm"}}, Results: []explain.Result{*r, *commit()},
		Outliers: []events.Outlier{{Time: time.Unix(0, 0), Stacks: events.Stacks{Kernel: []string{"schedule+0x1"}}}},
	}
}

func htmlOf(t testing.TB, p *Page) []byte {
	t.Helper()
	var b bytes.Buffer
	assert.NilError(t, HTML(&b, p))
	return b.Bytes()
}

// TestHTML: the page has all that is known, and names in it are text.
func TestHTML(t *testing.T) {
	page := html.UnescapeString(string(htmlOf(t, somePage())))
	for _, want := range []string{
		"postgres 1234 spent 50.0 ms in fdatasync", "Limit the I/O of backup 77.", "Where the time went", "Root causes", "jbd2_log_wait_commit+0x2", "schedule+0x1",
		`data-from="2000000" data-to="40000000" data-step="1"`, "prefers-color-scheme:dark", "default-src 'none'", `data-ns="38000000" width="152.000"`, "\nfor 38.0ms, from 2.00ms on",
	} {
		assert.Check(t, strings.Contains(page, want), "no %q", want)
	}
	hostile := string(htmlOf(t, hostilePage()))
	assert.Check(t, is.Equal(strings.Count(hostile, "<script"), 1))
	assert.Check(t, !strings.Contains(hostile, "<img") && !strings.ContainsAny(hostile, "\x1b\u202e"))
	for _, p := range []*Page{{}, {Results: make([]explain.Result, 1000)}} {
		assert.Check(t, len(htmlOf(t, p)) < 1<<20)
	}
	assert.Check(t, strings.Contains(string(htmlOf(t, &Page{})), "taken by hand"))
	long := commit()
	long.Path = nil
	for i := range uint64(60_000) {
		long.Path = append(long.Path, explain.Step{FromMonoNS: 1000*ms + i*800, ToMonoNS: 1000*ms + (i+1)*800, Task: long.Task, State: "running", Cause: explain.RunningUser})
	}
	assert.Check(t, len(htmlOf(t, &Page{Results: []explain.Result{*long}})) < 1<<20, "the longest path")
	assert.Check(t, HTML(full{}, somePage()) != nil, "a full disk is not told")
}

// browse opens a page in a browser that has no network, and returns what it made of it.
func browse(t *testing.T, page []byte, fragment string) string {
	t.Helper()
	return string(inBrowser(t, page, fragment, "--dump-dom"))
}

// inBrowser opens a page in a browser that has no network, and returns what that prints.
func inBrowser(t *testing.T, page []byte, fragment string, flags ...string) []byte {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs a browser (apt install chromium)")
	}
	file := filepath.Join(t.TempDir(), "page.html")
	assert.NilError(t, os.WriteFile(file, page, 0o600))
	cmd := exec.CommandContext(t.Context(), browser, append(append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir=" + t.TempDir()}, flags...), "file://"+file+fragment)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	assert.NilError(t, err, "chromium: %v\n%s", err, complaints.String())
	return out
}

// drawnBar is a bar of the time line as the browser has it.
type drawnBar struct {
	class    string
	from, to float64
	x, width float64
	seen     bool
	ofTask   bool // it is in the slow task's row
}

var (
	rects  = regexp.MustCompile(`<rect ([^>]*)>`)
	fields = regexp.MustCompile(`([a-z-]+)="([^"]*)"`)
)

// drawn lists the bars of the first time line in a page.
func drawn(dom string) (list []drawnBar) {
	_, dom, _ = strings.Cut(dom, "<figure")
	dom, _, _ = strings.Cut(dom, "</figure>")
	for row, group := range strings.Split(dom, `<g class="`)[1:] {
		for _, m := range rects.FindAllStringSubmatch(group, -1) {
			a := map[string]string{}
			for _, f := range fields.FindAllStringSubmatch(m[1], -1) {
				a[f[1]] = html.UnescapeString(f[2])
			}
			number := func(name string) float64 { v, _ := strconv.ParseFloat(a[name], 64); return v }
			if _, ok := a["data-from"]; ok {
				list = append(list, drawnBar{
					class: strings.TrimPrefix(a["class"], "bar "), from: number("data-from"), to: number("data-to"), x: number("x"), width: number("width"),
					seen: a["visibility"] != "hidden", ofTask: row == 0,
				})
			}
		}
	}
	return list
}

// TestPageInBrowser: the lengths that a browser draws are those of the explanation, at
// every zoom; what is not of the page's own does not run.
func TestPageInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	p := somePage()
	r := &p.Results[0]
	page := htmlOf(t, p)
	page = bytes.Replace(page, []byte("</main>"), []byte(`</main><script>document.title="strange"</script><img src="http://192.0.2.1/x.png" onerror="document.title='strange'">`), 1)
	room := svgWidth - 2*svgMargin - svgLabel
	whole := float64(r.EndMonoNS - r.StartMonoNS)
	for _, zoom := range []struct{ from, to float64 }{{0, whole}, {31_000_000, 41_000_000}} {
		dom := browse(t, page, fmt.Sprintf("#1:%.0f-%.0f", zoom.from, zoom.to))
		assert.Check(t, !strings.Contains(dom, "<title>strange"), "a script that is not the page's has run")
		assert.Check(t, !strings.Contains(dom, `class="tools" hidden`), "the page's own script has not run")
		list := drawn(dom)
		sums := map[string]float64{}
		for _, b := range list {
			lo, hi := math.Max(b.from, zoom.from), math.Min(b.to, zoom.to)
			assert.Check(t, b.seen == (hi > lo), "%+v", b)
			if hi <= lo {
				continue
			}
			scale := room / (zoom.to - zoom.from)
			x, width := svgMargin+svgLabel+(lo-zoom.from)*scale, (hi-lo)*scale
			assert.Check(t, math.Abs(b.x-x) < 0.02 && math.Abs(b.width-math.Max(width, 0.6)) < 0.02, "%+v: x %.2f, width %.2f wanted", b, x, width)
			if b.ofTask {
				sums[b.class] += b.width / scale
			}
		}
		for _, part := range r.Parts {
			if zoom.from == 0 {
				assert.Check(t, math.Abs(sums[string(part.Cause)]-float64(part.NS)) < whole/10_000, "%s: %.0f ns drawn of %d", part.Cause, sums[string(part.Cause)], part.NS)
			}
		}
		assert.Check(t, len(list) >= 8, "%d bars", len(list))
	}
}

// TestHostilePageInBrowser: nothing in a name runs.
func TestHostilePageInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	dom := browse(t, htmlOf(t, hostilePage()), "")
	title := regexp.MustCompile(`<title>([^<]*)</title>`).FindStringSubmatch(dom)
	assert.Assert(t, len(title) == 2 && strings.Contains(html.UnescapeString(title[1]), "onerror"), "%q", title)
	assert.Check(t, !strings.Contains(dom, "<img"))
	assert.Check(t, !strings.Contains(dom, `class="tools" hidden`), "the page's own script has not run")
}

func FuzzHTML(f *testing.F) {
	f.Add(attack, int64(5), uint64(3), uint64(9))
	f.Fuzz(func(t *testing.T, s string, ns int64, from, to uint64) {
		r := explain.Result{
			Verdict: s, Task: explain.Who{Comm: s, TID: 1}, StartMonoNS: from, EndMonoNS: to, DelayNS: ns,
			Path:  []explain.Step{{FromMonoNS: from, ToMonoNS: to, Cause: explain.Cause(s), State: s, By: &explain.Who{Name: s, Kind: s}, Stack: []string{s}}},
			Parts: []explain.Part{{Cause: explain.Cause(s), NS: ns, Reason: s}},
		}
		var b bytes.Buffer
		assert.NilError(t, HTML(&b, &Page{Title: s, Results: []explain.Result{r}, Notes: []string{s}, Facts: []Fact{{s, s}}}))
		assert.Check(t, bytes.Count(b.Bytes(), []byte("<script")) == 1 && bytes.Count(b.Bytes(), []byte("</script")) == 1, "%s", b.String())
	})
}
