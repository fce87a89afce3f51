package symbols

import "unicode/utf8"

// sourceFile makes a file's name safe to print and bounds it: its end tells
// more than its beginning.
func sourceFile(name string) string {
	if len(name) <= maxPath {
		return clean(name)
	}
	start := len(name) - maxPath
	for start < len(name) && !utf8.RuneStart(name[start]) {
		start++
	}
	return truncatedSuffix + clean(name[start:])
}

// sourceLine bounds a line number.
func sourceLine(n int64) int {
	if n < 0 || n > 1<<31-1 {
		return 0
	}
	return int(n)
}
