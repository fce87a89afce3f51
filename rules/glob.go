package rules

import "strings"

// GlobMatch reports whether s matches pattern: `*` matches any bytes, `?` any one
// byte. The kernel side matches in the same way. Time is bounded by
// len(pattern)*len(s).
func GlobMatch(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0 // the last star, and where its run ends so far
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// CgroupMatch reports whether a cgroup v2 path matches pattern. `*` and `?` do not
// match slashes, `**` does. A trailing `/**` also matches the group itself, and
// `/**/` also a single slash: /a/** matches /a and all below it, /a/**/b also /a/b.
// Time is bounded by len(pattern)*len(path).
func CgroupMatch(pattern, path string) bool {
	// reach[i]: the tokens so far can have consumed path[:i].
	reach, next := make([]bool, len(path)+1), make([]bool, len(path)+1)
	reach[0] = true
	for pattern != "" {
		clear(next)
		run := false // a token of any length has begun
		switch {
		case pattern == "/**": // nothing, or a slash and all below
			pattern = ""
			for i := range next {
				next[i] = reach[i] || run
				run = run || reach[i] && i < len(path) && path[i] == '/'
			}
		case strings.HasPrefix(pattern, "/**/"): // a slash, or two with anything between
			pattern = pattern[len("/**/"):]
			for i := range len(path) {
				if path[i] == '/' {
					run = run || reach[i]
					next[i+1] = run
				}
			}
		case strings.HasPrefix(pattern, "**"):
			pattern = strings.TrimLeft(pattern, "*")
			for i := range next {
				run = run || reach[i]
				next[i] = run
			}
		case pattern[0] == '*':
			pattern = pattern[1:]
			for i := range next {
				run = reach[i] || run && path[i-1] != '/'
				next[i] = run
			}
		default:
			c := pattern[0]
			pattern = pattern[1:]
			for i := range len(path) {
				next[i+1] = reach[i] && (c == path[i] || c == '?' && path[i] != '/')
			}
		}
		reach, next = next, reach
	}
	return reach[len(path)]
}
