package timeline

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
)

// screenshot is what a page looks like, in the light or the dark theme.
func screenshot(t *testing.T, page []byte, fragment string, dark bool) image.Image {
	t.Helper()
	file, scheme := filepath.Join(t.TempDir(), "page.png"), 1
	if dark {
		scheme = 0
	}
	inBrowser(t, page, fragment, "--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=1600,900",
		fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme), "--screenshot="+file)
	data, err := os.ReadFile(file)
	assert.NilError(t, err)
	picture, err := png.Decode(bytes.NewReader(data))
	assert.NilError(t, err)
	return picture
}

// pixels counts those of each colour of the palette in a row of a picture.
func pixels(picture image.Image, y int, dark bool) (total int, by map[string]int) {
	by = map[string]int{}
	for x := range picture.Bounds().Dx() {
		for i := range causes {
			want := causes[i].light
			if dark {
				want = causes[i].dark
			}
			if near(picture.At(x, y), want) {
				by[want]++
				total++
				break
			}
		}
	}
	return total, by
}

// TestScreenshot: of what one sees in the slow task's row, each colour has as many pixels as
// its parts have of the delay, in both themes, for the whole time and for a stretch of it.
func TestScreenshot(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser: left out with -short")
	}
	p := somePage()
	r := &p.Results[0]
	page := htmlOf(t, p)
	whole := map[explain.Cause]float64{}
	for _, part := range r.Parts {
		whole[part.Cause] += float64(part.NS) / float64(r.DelayNS)
	}
	for _, c := range []struct {
		fragment string
		share    map[explain.Cause]float64
	}{
		{"", whole},
		{"#1:31000000-41000000", map[explain.Cause]float64{explain.Journal: 0.9, explain.Preempted: 0.1}}, // until and from 40 ms on
	} {
		for _, dark := range []bool{false, true} {
			picture := screenshot(t, page, c.fragment, dark)
			y, total, by := 0, 0, map[string]int{}
			for ; y < picture.Bounds().Dy() && total < svgWidth/2; y++ { // nothing above it is as wide
				total, by = pixels(picture, y, dark)
			}
			for end := min(y+16, picture.Bounds().Dy()); y < end; y++ { // the widest of its lines: without round corners, and text
				if n, of := pixels(picture, y, dark); n > total {
					total, by = n, of
				}
			}
			want := map[string]float64{}
			for cause, share := range c.share {
				for i := range causes {
					if causes[i].cause == cause && dark {
						want[causes[i].dark] += share
					} else if causes[i].cause == cause {
						want[causes[i].light] += share
					}
				}
			}
			seen := 0
			for color, share := range want {
				n := by[color]
				seen += n
				assert.Check(t, float64(n) > share*float64(total)-4 && float64(n) < share*float64(total)+4,
					"%s, dark %v: %d of %d pixels are %s, and %.1f should be", c.fragment, dark, n, total, color, share*float64(total))
			}
			assert.Check(t, total-seen <= 4 && total > 860, "%s, dark %v: %v", c.fragment, dark, by)
		}
	}
}
