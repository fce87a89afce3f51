package timeline

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
)

// bar is a rectangle of the picture, with its colour as an attribute.
type bar struct {
	class, fill         string
	x, y, width, height float64
}

// bars reads the rectangles of a class out of a picture.
func bars(t *testing.T, svg []byte, class string) []bar {
	t.Helper()
	var out []bar
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		assert.NilError(t, err)
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != "rect" {
			continue
		}
		b, is := bar{}, false
		number := func(s string) float64 { v, _ := strconv.ParseFloat(s, 64); return v }
		for _, a := range e.Attr {
			switch a.Name.Local {
			case "class":
				b.class, is = a.Value, strings.HasPrefix(a.Value, class)
			case "fill":
				b.fill = a.Value
			case "x":
				b.x = number(a.Value)
			case "y":
				b.y = number(a.Value)
			case "width":
				b.width = number(a.Value)
			case "height":
				b.height = number(a.Value)
			}
		}
		if is {
			out = append(out, b)
		}
	}
}

// TestSVGOutsideBrowsers: a program that knows no CSS variables draws the colours, and bars
// as long as the parts.
func TestSVGOutsideBrowsers(t *testing.T) {
	viewer, err := exec.LookPath("rsvg-convert")
	if err != nil {
		t.Skip("needs rsvg-convert (apt install librsvg2-bin)")
	}
	r := commit()
	var svg, drawn, complaints bytes.Buffer
	assert.NilError(t, SVG(&svg, []explain.Result{*r}))
	cmd := exec.CommandContext(t.Context(), viewer)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(svg.Bytes()), &drawn, &complaints
	assert.NilError(t, cmd.Run(), "%s", complaints.String())
	picture, err := png.Decode(&drawn)
	assert.NilError(t, err)

	list := bars(t, svg.Bytes(), "part")
	assert.Assert(t, is.Len(list, len(r.Parts)+len(r.Roots)))
	for i, p := range append(append([]explain.Part{}, r.Parts...), r.Roots...) {
		want := svgGauge * float64(p.NS) / float64(r.DelayNS)
		got := run(picture, int(list[i].x), int(list[i].y+svgMargin+list[i].height/2), list[i].fill)
		assert.Check(t, got >= want-2 && got <= want+1, "%s %d ns: %.0f pixels of %s, want %.1f", p.Cause, p.NS, got, list[i].fill, want)
	}
	black, all := 0, picture.Bounds().Dx()*picture.Bounds().Dy()
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			if near(picture.At(x, y), "#000000") {
				black++
			}
		}
	}
	assert.Check(t, black < all/1000, "%d of %d pixels are black", black, all)
	var classes []string
	for _, b := range bars(t, svg.Bytes(), "key") {
		classes = append(classes, strings.TrimPrefix(b.class, "key bar "))
	}
	assert.Check(t, is.DeepEqual(classes, []string{"running_kernel", "preempted", "block_queue", "block_device", "journal"}))
}

// run is the number of pixels of a colour in a row, from a place on.
func run(picture image.Image, x, y int, want string) float64 {
	n := 0.0
	for x++; near(picture.At(x, y), want); x++ { // the first one is half covered
		n++
	}
	return n
}

// near reports whether a pixel has a colour.
func near(c color.Color, want string) bool {
	rgb, err := strconv.ParseUint(strings.TrimPrefix(want, "#"), 16, 32)
	r, g, b, _ := c.RGBA()
	close := func(a uint32, shift int) bool {
		return max(a>>8, uint32(rgb>>shift)&0xff)-min(a>>8, uint32(rgb>>shift)&0xff) < 6
	}
	return err == nil && close(r, 16) && close(g, 8) && close(b, 0)
}
