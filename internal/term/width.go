package term

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// Widths of a terminal that is drawn for. A wider one leaves room at the right.
const (
	MinColumns     = 40
	MaxColumns     = 200
	defaultColumns = 100 // where the stream is no terminal
)

// cells measures as terminals do outside East Asia; it does not look at the environment.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// Width is how many columns of a terminal a text takes: two for what is wide,
// none for what combines with the character before it.
func Width(s string) int { return cells.StringWidth(s) }

// Shorten cuts text to at most n columns, the last of which then is "…".
func Shorten(s string, n int) string {
	if n < 1 {
		return ""
	}
	return cells.Truncate(s, n, "…")
}

// Fill cuts or fills text with blanks to exactly n columns.
func Fill(s string, n int) string {
	s = Shorten(s, n)
	return s + strings.Repeat(" ", max(0, n-Width(s)))
}

// Wrap breaks text into lines of at most n columns, at blanks where there are
// some.
func Wrap(s string, n int) []string {
	n = max(n, 1)
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		for {
			next := word
			if line != "" {
				next = line + " " + word
			}
			if Width(next) <= n {
				line = next
				break
			}
			if line != "" {
				lines, line = append(lines, line), ""
				continue
			}
			head := cells.Truncate(word, n, "")
			if head == "" { // wider than a whole line
				head = string([]rune(word)[:1])
			}
			lines = append(lines, head)
			if word = word[len(head):]; word == "" {
				break
			}
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
