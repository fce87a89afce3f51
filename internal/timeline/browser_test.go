package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
)

// measure is run in the browser: it says which texts leave the picture or what
// they are written in, and what colours the page has.
const measure = `<script>
const svg = document.querySelector("svg"), wide = svg.viewBox.baseVal.width, high = svg.viewBox.baseVal.height, out = {texts: 0, bars: 0, over: []};
const first = Math.min(...[...document.querySelectorAll(".path rect, .other rect")].map(r => r.getBBox().x));
for (const t of document.querySelectorAll("text")) {
  const b = t.getBBox(), words = t.textContent;
  out.texts++;
  if (b.x < 0 || b.x + b.width > wide || b.y + b.height > high) out.over.push("leaves the picture: " + words);
  if (t.classList.contains("in")) {
    const bar = t.previousElementSibling.getBBox();
    if (b.x < bar.x || b.x + b.width > bar.x + bar.width) out.over.push("wider than its bar: " + words);
  }
  if (t.querySelector("title") && b.x + b.width > first) out.over.push("runs into the bars: " + words);
}
out.bars = document.querySelectorAll(".path rect, .other rect").length;
out.background = getComputedStyle(document.querySelector(".bg")).fill;
out.preempted = getComputedStyle(document.querySelector("rect.preempted")).fill;
out.scripts = document.querySelectorAll("svg script, svg image, svg a").length;
const pre = document.createElement("pre");
pre.id = "measured";
pre.textContent = JSON.stringify(out);
document.body.append(pre);
</script>`

type measured struct {
	Texts, Bars, Scripts  int
	Over                  []string
	Background, Preempted string
}

// The picture in a real browser: whatever the names, no text leaves its place;
// and it is dark where the viewer is.
func TestSVGInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs a browser (apt install chromium)")
	}
	wide := commit()
	wide.Verdict, wide.Advice = strings.Repeat("WWWW MMMM ", 60), strings.Repeat("W", 400)
	wide.Task.Comm, wide.Path[0].Task.Comm, wide.Path[1].By.Comm = "WWWWWWWWWWWWWWW", "日本語の名前日本語の名前", "MMMMMMMMMMMMMMM"
	wide.Path[2].Why = strings.Repeat("W", 200)
	results := []explain.Result{*commit(), *wide}
	var svg bytes.Buffer
	assert.NilError(t, SVG(&svg, results))
	page := filepath.Join(t.TempDir(), "page.html")
	assert.NilError(t, os.WriteFile(page, fmt.Appendf(nil, "<!doctype html><meta charset=utf-8><body>%s%s</body>", svg.Bytes(), measure), 0o600))
	colors := map[string]bool{}
	for _, theme := range []string{"1", "0"} { // light, dark
		cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--blink-settings=preferredColorScheme="+theme, "--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+page)
		var complaints bytes.Buffer
		cmd.Stderr = &complaints
		dom, err := cmd.Output()
		assert.NilError(t, err, "chromium: %v\n%s", err, complaints.String())
		found := regexp.MustCompile(`(?s)<pre id="measured">(.*?)</pre>`).FindSubmatch(dom)
		assert.Assert(t, found != nil, "the page was not measured:\n%s", dom)
		var m measured
		assert.NilError(t, json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), &m))
		assert.Check(t, m.Texts >= 30 && m.Bars >= 12 && m.Scripts == 0 && len(m.Over) == 0,
			"%d texts, %d bars, %d scripts: %s", m.Texts, m.Bars, m.Scripts, strings.Join(m.Over, "\n"))
		colors[m.Background], colors[m.Preempted] = true, true
	}
	assert.Check(t, len(colors) == 4, "light and dark have the colours %v", colors)
}
