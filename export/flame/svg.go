package flame

import (
	"bufio"
	_ "embed"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

//go:embed flame.js
var script string

//go:embed flame.css
var style string

// Sizes of the picture, in its own units.
const (
	width    = 1200
	margin   = 10
	rowH     = 18
	headH    = 62
	footH    = 30
	charW    = 6.6 // of the font, about
	maxDepth = 200
	// maxFrames bounds the picture; the narrowest frames are left out first.
	maxFrames = 20_000
)

// node is one frame of the tree of all stacks.
type node struct {
	name     string
	weight   uint64
	children map[string]*node
}

func (n *node) child(name string) *node {
	c := n.children[name]
	if c == nil {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		c = &node{name: name}
		n.children[name] = c
	}
	return c
}

// tree joins the stacks from their outermost frames on.
func (s *Stacks) tree() *node {
	root := &node{name: "all"}
	for key, weight := range s.weights {
		n := root
		n.weight += weight
		for depth, name := range strings.Split(key, ";") {
			if depth == maxDepth {
				break
			}
			n = n.child(name)
			n.weight += weight
		}
	}
	return root
}

// frame is one box of the picture.
type frame struct {
	name   string
	depth  int
	at     uint64 // nanoseconds from the left
	weight uint64
}

// layOut lists the frames, outer ones before inner ones, those lighter than
// least left out.
func layOut(root *node, least uint64) []frame {
	var out []frame
	var walk func(n *node, depth int, at uint64)
	walk = func(n *node, depth int, at uint64) {
		out = append(out, frame{n.name, depth, at, n.weight})
		for _, name := range slices.Sorted(maps.Keys(n.children)) {
			c := n.children[name]
			if c.weight >= least {
				walk(c, depth+1, at)
			}
			at += c.weight
		}
	}
	walk(root, 0, 0)
	return out
}

// WriteSVG writes the stacks as a flame graph: a picture of its own, with a
// script in it that zooms into the frame that is clicked and searches. The
// address may carry #zoom=NUMBER or #search=TEXT.
func (s *Stacks) WriteSVG(w io.Writer, title, subtitle string) error {
	root := s.tree()
	least := max(root.weight/100_000, 1)
	frames := layOut(root, least)
	for len(frames) > maxFrames {
		least *= 2
		frames = layOut(root, least)
	}
	depth := 0
	for i := range frames {
		depth = max(depth, frames[i].depth)
	}
	height := headH + (depth+1)*rowH + footH
	out := bufio.NewWriterSize(w, 64<<10)
	fmt.Fprintf(out, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="100%%" preserveAspectRatio="xMidYMin" data-total="%d" data-width="%d" data-margin="%d" data-char="%g">
<title>%s</title>
<style><![CDATA[
%s]]></style>
<rect class="back" width="100%%" height="100%%"/>
<text class="title" x="%d" y="24">%s</text>
<text class="subtitle" x="%d" y="44">%s</text>
<text class="button" id="reset" x="%d" y="24">reset zoom</text>
<text class="button" id="search" x="%d" y="24">search</text>
<text class="subtitle" id="matched" x="%d" y="44"></text>
<text class="details" id="details" x="%d" y="%d"> </text>
<g id="frames">
`, width, height, root.weight, width, margin, charW, escape(title), style, margin, escape(title), margin, escape(subtitle),
		width-margin-90, width-margin, width-margin, margin, height-11)
	for i := range frames {
		writeFrame(out, i, &frames[i], root.weight, headH+(depth-frames[i].depth)*rowH)
	}
	fmt.Fprintf(out, "</g>\n<script><![CDATA[\n%s]]></script>\n</svg>\n", script)
	return out.Flush()
}

func writeFrame(out *bufio.Writer, id int, f *frame, total uint64, y int) {
	scale := float64(width-2*margin) / float64(max(total, 1))
	x, w := margin+float64(f.at)*scale, float64(f.weight)*scale
	share := 100 * float64(f.weight) / float64(max(total, 1))
	fmt.Fprintf(out, `<g class="%s" id="f%d" data-x="%d" data-w="%d" data-d="%d"><title>%s (%s, %.2f %%)</title>`+
		`<rect x="%.2f" y="%d" width="%.2f" height="%d" rx="2"/><text x="%.2f" y="%d">%s</text></g>`+"\n",
		class(f), id, f.at, f.weight, f.depth, escape(f.name), time.Duration(f.weight), share,
		x, y, w, rowH-1, x+3, y+rowH-5, escape(fit(f.name, w)))
}

// class gives a frame its colour: one of five of its kind, by its name.
func class(f *frame) string {
	kind := "u"
	switch {
	case f.depth == 0:
		return "f all"
	case strings.HasSuffix(f.name, "_[k]"):
		kind = "k"
	case strings.HasPrefix(f.name, "blocked"), strings.HasPrefix(f.name, "runnable"), strings.HasPrefix(f.name, "woken"):
		kind = "w"
	}
	var sum uint32
	for _, b := range []byte(f.name) {
		sum = sum*31 + uint32(b)
	}
	return fmt.Sprintf("f %s%d", kind, sum%5)
}

// fit cuts a name to a box; flame.js does the same when it zooms.
func fit(name string, w float64) string {
	n := int((w - 6) / charW)
	r := []rune(name)
	switch {
	case n < 3:
		return ""
	case len(r) <= n:
		return name
	}
	return string(r[:n-1]) + "…"
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
