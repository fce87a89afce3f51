package export

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/export/flame"
	"github.com/tailcam/tailcam/snapshot/trace"
)

func TestFolded(t *testing.T) {
	dir := story(t)
	for kind, want := range map[flame.Kind]string{
		flame.OutlierTime: "slow-read;victim;main;fill_[i];read;do_syscall_64_[k];ksys_read_[k];schedule_[k] 16900\n",
		flame.OnCPU: "hog;13 9000\nother;11 4500\nother;11;softirq NET_RX_[k] 1500\n" +
			"victim;10 3100\nvictim;10;read_[k] 1900\n",
		flame.OffCPU: "hog;13;blocked (S) 4000\nother;11;blocked (S) 1000\nother;11;runnable: waits for a CPU 13000\n" +
			"victim;10;blocked (S) in read;woken by softirq NET_RX 5000\nvictim;10;runnable: waits for a CPU 10000\n",
	} {
		o := all(Folded, Stdout)
		o.Time = kind
		got, _ := exported(t, dir, o)
		diff := cmp.Diff(want, string(got))
		assert.Check(t, diff == "", "%s (-want +got):\n%s", kind, diff)
	}
}

// However many tasks there are, their stacks are bounded, and no time is lost.
func TestManyTasks(t *testing.T) {
	const tasks = 80_000
	r := newRecords(0, bootNS)
	for i := range tasks {
		r.swtch(i+1, fmt.Sprintf("t%d", i+1), 16, i+2, fmt.Sprintf("t%d", i+2))
		r.now += 10
	}
	r.swtch(tasks+1, "last", 16, 0, "swapper")
	o := all(Folded, Stdout)
	o.Time = flame.OnCPU
	out, _ := exported(t, writeSnapshot(t, traceOf(r), nil, nil), o)
	lines, sum := 0, 0
	for line := range strings.Lines(string(out)) {
		var ns int
		_, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &ns)
		assert.NilError(t, err)
		lines++
		sum += ns
	}
	assert.Check(t, sum == 10*tasks && lines <= 1<<16+2048 && bytes.Contains(out, []byte("[others] ")),
		"%d lines, %d ns of %d", lines, sum, 10*tasks)
}

// chromium returns the page as the browser has it when its script has run.
func chromium(t *testing.T, path, fragment string) string {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs a browser (apt install chromium)")
	}
	cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+path+fragment)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	assert.NilError(t, err, "chromium: %v\n%s", err, complaints.String())
	return string(out)
}

var drawnFrame = regexp.MustCompile(`<g class="([^"]*)" id="f(\d+)"[^>]*><title>([^<]*) \([^<]*</title><rect x="([0-9.]+)" y="\d+" width="([0-9.]+)"[^>]*/?>(?:</rect>)?<text[^>]*>([^<]*)</text>`)

// box is a frame in the browser.
type box struct{ class, id, name, x, width, text string }

func boxes(t *testing.T, page string) map[string]box {
	t.Helper()
	out := map[string]box{}
	for _, m := range drawnFrame.FindAllStringSubmatch(page, -1) {
		out[m[3]] = box{m[1], m[2], m[3], m[4], m[5], m[6]}
	}
	return out
}

// The flame graph in a browser: all frames, zoomed by its address and by a
// click, and searched.
func TestFlameGraphInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	o := all(SVG, filepath.Join(t.TempDir(), "offcpu.svg"))
	o.Time = flame.OffCPU
	exported(t, story(t), o)

	page := chromium(t, o.Out, "")
	all := boxes(t, page)
	assert.Assert(t, len(all) == 12-1, "%d frames in the page:\n%s", len(all), page) // one name is there twice
	root, victim := all["all"], all["victim"]
	assert.Check(t, root.width == "1180.00" && strings.Contains(page, `data-zoom="0"`),
		"the root has a width of %s", root.width)
	// 15 of 33 µs.
	assert.Check(t, victim.width == "536.36" && victim.text == "victim" && !strings.Contains(victim.class, "gone"),
		"before the zoom: %+v", victim)

	zoomed := boxes(t, chromium(t, o.Out, "#zoom="+victim.id+"&search=softirq"))
	checkZoom(t, "by its address", zoomed)
	hit := zoomed["woken by softirq NET_RX"]
	assert.Check(t, strings.Contains(hit.class, "hit"), "searched: %+v", hit)

	// A click, as a person does it, on the frame that is under the pointer.
	svg, err := os.ReadFile(o.Out)
	assert.NilError(t, err)
	click := `<script>document.querySelector("#f` + victim.id + ` rect").dispatchEvent(new MouseEvent("click", {bubbles: true}))</script></svg>`
	clicked := filepath.Join(t.TempDir(), "clicked.svg")
	assert.NilError(t, os.WriteFile(clicked, bytes.Replace(svg, []byte("</svg>"), []byte(click), 1), 0o600))
	checkZoom(t, "by a click", boxes(t, chromium(t, clicked, "")))
}

func checkZoom(t *testing.T, how string, b map[string]box) {
	t.Helper()
	v := b["victim"]
	assert.Check(t, v.width == "1180.00" && v.x == "10.00", "zoomed %s: %+v", how, v)
	w := b["blocked (S) in read"]
	assert.Check(t, w.width == "393.33", "zoomed %s: %+v", how, w) // 5 of 15 µs
	assert.Check(t, strings.Contains(b["hog"].class, "gone") && strings.Contains(b["all"].class, "parent") &&
		!strings.Contains(b["victim"].class, "gone"), "zoomed %s: hog %+v, all %+v", how, b["hog"], b["all"])
}

// A picture without its script is whole, and whatever is in a trace, it is XML.
func TestFlameGraphIsBounded(t *testing.T) {
	r := newRecords(0, bootNS)
	for i := range 60_000 {
		r.swtch(i%30_000+1, fmt.Sprintf("t%d", i%30_000), 1, (i+1)%30_000+1, fmt.Sprintf("t%d", (i+1)%30_000))
		r.now += 10
	}
	for _, kind := range []flame.Kind{flame.OnCPU, flame.OffCPU} {
		o := all(SVG, Stdout)
		o.Time = kind
		out, _ := exported(t, writeSnapshot(t, trace.Trace{CPUs: []trace.CPU{{Records: r.out}}}, nil, nil), o)
		n := bytes.Count(out, []byte(`<g class="f`))
		assert.Check(t, n <= 20_000 && n != 0, "%s: %d frames", kind, n)
		if !bytes.HasSuffix(out, []byte("</svg>\n")) {
			t.Errorf("%s: ends in %q", kind, out[len(out)-20:])
		}
	}
}
