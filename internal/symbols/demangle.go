package symbols

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ianlancetaylor/demangle"
)

const (
	maxName         = 512  // bytes of a printed name
	maxMangled      = 1024 // longer ones are not demangled
	demangledPower  = 12   // limits the demangled name to 1<<12 bytes
	truncatedSuffix = "…"
)

// printableName demangles C++ and Rust names, without parameters, and makes any name
// safe to print.
func printableName(name string) string {
	if len(name) <= maxMangled && (strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R")) {
		name = demangled(name)
	}
	return clean(name)
}

func demangled(name string) (out string) {
	defer func() {
		if recover() != nil { // names are untrusted
			out = name
		}
	}()
	return demangle.Filter(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.MaxLength(demangledPower))
}

// clean limits a name and replaces control characters, newlines, invalid UTF-8, and
// semicolons (which separate folded frames).
func clean(name string) string {
	const most = maxName

	cut := len(name) > most
	if cut {
		end := most
		for end > 0 && !utf8.RuneStart(name[end]) {
			end--
		}
		name = name[:end]
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r == ';':
			return ':'
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, name)
	if cut {
		name += truncatedSuffix
	}
	return name
}
