// Package text makes text from outside harmless where it is shown. Any process
// may call itself what it likes: escape sequences, characters that turn the
// direction of writing (U+202E), invisible ones, invalid UTF-8. Names stay as
// they are while they are processed; each output makes them safe once:
//
//   - for people (terminals, folded stacks, text, SVG, HTML): Clean, which
//     writes such characters as visible \x and \u escapes;
//   - JSON and YAML: NewEncoder, Marshal, EscapeJSON or YAML, which use the escapes
//     of the format, so that a reader decodes the name as it was;
//   - binary formats for machines (CTF, Perfetto): the bytes as they are.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes untrusted text safe for a terminal: control characters, invalid UTF-8,
// invisible characters and those that change the writing direction are replaced by \x
// and \u escapes. Backslashes stay as they are, so the result cannot be decoded.
func Clean(s string) string {
	i := strings.IndexFunc(s, unsafeRune)
	if i < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !unsafeRune(r):
			b.WriteString(s[:size])
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		s = s[size:]
	}
	return b.String()
}

// unsafeRune reports whether a rune is a control (Cc) or format (Cf) character, a
// separator, private use, or not assigned.
func unsafeRune(r rune) bool {
	return !unicode.IsPrint(r)
}
