package timeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/term"
)

// strip is a drawn interval of a row: one bar, or several that are too short to be seen by
// themselves. The area of a colour is the time of its cause.
type strip struct {
	Bar   // the longest one
	count int
	// pieces divide the height of several bars, the largest first.
	pieces []piece
	wide   uint64 // length of the longest one
}

// piece is what one cause took of a strip.
type piece struct {
	class string
	ns    uint64
}

// columns is how many columns a picture has: bars that are shorter share one.
const columns = 1200

// mostPieces bounds the pieces of a strip; what is left becomes one more.
const mostPieces = 4

// strips joins bars that are too short to be visible, which bounds the size of the picture.
func (p *Picture) strips(row *Row) []strip {
	least := (p.To - p.From) / columns
	var out []strip
	for _, b := range row.Bars {
		if n := len(out); n > 0 {
			last := &out[n-1]
			switch {
			case last.count == 1 && last.Cause == b.Cause && last.Text == b.Text && b.From <= last.To:
				last.To = max(last.To, b.To)
				last.wide = last.To - last.From
				continue
			case b.To-b.From < least && last.short(least) && b.From < last.From+2*least:
				last.join(&b)
				continue
			}
		}
		out = append(out, strip{Bar: b, count: 1, wide: b.To - b.From})
	}
	for i := range out {
		out[i].divide()
	}
	return out
}

// each makes a strip of every bar.
func each(row *Row) []strip {
	out := make([]strip, len(row.Bars))
	for i := range row.Bars {
		out[i] = strip{Bar: row.Bars[i], count: 1}
	}
	return out
}

// short reports whether more bars may join a strip.
func (s *strip) short(least uint64) bool {
	return s.To-s.From < 2*least && (s.count > 1 || s.wide < least)
}

func (s *strip) join(b *Bar) {
	if s.count == 1 {
		s.add(&s.Bar)
	}
	s.add(b)
	s.count++
	to := max(s.To, b.To)
	if wide := b.To - b.From; wide > s.wide {
		from := s.From
		s.Bar, s.wide = *b, wide
		s.From = from
	}
	s.To = to
}

func (s *strip) add(b *Bar) {
	class := classOf(b.Cause)
	i := slices.IndexFunc(s.pieces, func(p piece) bool { return p.class == class })
	if i < 0 {
		i = len(s.pieces)
		s.pieces = append(s.pieces, piece{class: class})
	}
	s.pieces[i].ns += b.To - b.From
}

// divide sorts the pieces of several bars, and sums up the least.
func (s *strip) divide() {
	slices.SortStableFunc(s.pieces, func(x, y piece) int { return cmp.Compare(y.ns, x.ns) })
	if len(s.pieces) > mostPieces {
		rest := piece{class: more}
		for _, p := range s.pieces[mostPieces-1:] {
			rest.ns += p.ns
		}
		s.pieces = append(s.pieces[:mostPieces-1], rest)
	}
}

// heights returns the part of the height that each piece has. Bars of a culprit may overlap,
// so that the pieces are longer than the strip; together they are never higher than it.
func (s *strip) heights() []float64 {
	whole := s.To - s.From
	sum := uint64(0)
	for _, p := range s.pieces {
		sum += p.ns
	}
	whole = max(whole, sum, 1)
	out := make([]float64, len(s.pieces))
	for i, p := range s.pieces {
		out[i] = float64(p.ns) / float64(whole)
	}
	return out
}

func (s *strip) tip(begin uint64) string {
	if s.count == 1 {
		return fmt.Sprintf("%s\nfor %s, from %s on", s.Text, term.Duration(int64(s.To-s.From)), term.Duration(int64(s.From-begin)))
	}
	text := fmt.Sprintf("%s, and %d more\nwithin %s, from %s on", s.Text, s.count-1, term.Duration(int64(s.To-s.From)), term.Duration(int64(s.From-begin)))
	for _, p := range s.pieces {
		words := "other"
		if p.class != more {
			words = term.CauseWords(explain.Cause(p.class))
		}
		text += fmt.Sprintf("\n%s %s", term.Duration(int64(p.ns)), words)
	}
	return text
}
