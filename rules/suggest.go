package rules

import "fmt"

// Unknown describes a name that is not allowed, with the nearest allowed one if it
// is probably a misspelling: `unknown key "treshold", did you mean "threshold"`.
func Unknown(what, name string, allowed []string) string {
	msg := fmt.Sprintf("unknown %s %q", what, cut(name))
	if near := nearest(name, allowed); near != "" {
		msg += fmt.Sprintf(", did you mean %q", near)
	}
	return msg
}

// nearest returns the allowed name with the fewest edits from name, at most a third
// of its length, or "".
func nearest(name string, allowed []string) string {
	if len(name) > 64 {
		return ""
	}
	best, least := "", max(1, len(name)/3)+1
	for _, a := range allowed {
		if d := edits(name, a); d < least {
			best, least = a, d
		}
	}
	return best
}

// edits counts insertions, removals, replacements and swaps of neighbours
// (each pair once) that turn a into b.
func edits(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, prev, row = prev, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := 1
			if a[i-1] == b[j-1] {
				replace = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
