package timeline

import (
	"strings"

	"github.com/tailcam/tailcam/internal/term"
)

// face is a font size.
type face struct {
	size float64
	bold bool
}

var (
	heading = face{16, true}
	strong  = face{13, true}
	normal  = face{13, false}
	small   = face{12, false}
)

// pixels returns the maximum width of a text in any of the fonts.
func (f face) pixels(s string) float64 {
	em := 0.0
	for _, r := range s {
		switch {
		case r > 0x2e80: // East Asian characters are square; unknown ones may be
			em += 1.05
		case strings.ContainsRune("MW@%mw—…", r):
			em += 1.0
		case strings.ContainsRune(" .,:;'|!()[]/\\iljtfrI-", r):
			em += 0.42
		case r >= 'A' && r <= 'Z' || r == '_' || r > 0x7e:
			em += 0.79
		default:
			em += 0.65
		}
	}
	if f.bold {
		em *= 1.11
	}
	return em * f.size
}

// cut truncates a text to a width in pixels.
func (f face) cut(s string, room float64) string {
	if f.pixels(s) <= room {
		return s
	}
	end, wide := 0, f.pixels("…")
	for i, r := range s {
		if wide += f.pixels(string(r)); wide > room {
			break
		}
		end = i + len(string(r))
	}
	if end == 0 {
		return ""
	}
	return s[:end] + "…"
}

// wrap breaks a text into lines of a width in pixels.
func (f face) wrap(s string, room float64) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if next := strings.TrimSpace(line + " " + word); f.pixels(next) <= room {
			line = next
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		// Half of what fits if all characters are wide, for words too long for a line.
		pieces := []string{word}
		if f.pixels(word) > room {
			pieces = term.Wrap(word, max(int(room/f.size/2), 1))
		}
		lines, line = append(lines, pieces[:len(pieces)-1]...), pieces[len(pieces)-1]
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
