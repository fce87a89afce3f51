package symbols

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ianlancetaylor/demangle"
)

const (
	maxName         = 512  // bytes of a printed name
	maxMangled      = 1024 // longer ones are printed as they are
	demangledPower  = 12   // the demangler may write 1<<12 bytes
	truncatedSuffix = "…"
)

// readable demangles C++ and Rust names, without parameter lists, and makes
// any name safe to print. Go and C names stay as they are.
func readable(name string) string {
	if len(name) <= maxMangled && (strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R")) {
		name = demangled(name)
	}
	return clean(name)
}

func demangled(name string) (out string) {
	defer func() {
		if recover() != nil { // names come from files of others
			out = name
		}
	}()
	return demangle.Filter(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.MaxLength(demangledPower))
}

// clean bounds a name and replaces what could harm a terminal or a folded
// stack: control characters, line ends, invalid UTF-8, semicolons.
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
