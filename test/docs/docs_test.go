package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

const root = "../.."

// The pages that must stay short, and the number of lines they may have.
var longest = map[string]int{"README.md": 200, "docs/architecture.md": 150}

// pages returns the text of every page by its path in the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", ".github/*.md", ".github/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		assert.NilError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			assert.NilError(t, err)
			name, err := filepath.Rel(root, path)
			assert.NilError(t, err)
			all[name] = string(text)
		}
	}
	assert.Assert(t, len(all) >= 10, "found only %d pages", len(all))
	return all
}

// prose calls f with each line of text that is not part of a code block.
func prose(text string, f func(number int, line string)) {
	code := false
	number := 0
	for line := range strings.Lines(text) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			f(number, strings.TrimRight(line, "\n"))
		}
	}
}

// TestForm: prose is wrapped at 100 columns, except for tables and for words
// that are longer than that, and no page outgrows its limit.
func TestForm(t *testing.T) {
	for name, text := range pages(t) {
		prose(text, func(number int, line string) {
			table := strings.HasPrefix(line, "|")
			assert.Check(t, utf8.RuneCountInString(line) <= 100 || table ||
				!strings.Contains(strings.TrimSpace(line), " "), "%s:%d: more than 100 columns", name, number)
		})
		limit := longest[name]
		assert.Check(t, limit <= 0 || strings.Count(text, "\n") <= limit,
			"%s: %d lines, the limit is %d", name, strings.Count(text, "\n"), limit)
	}
}

// TestBlocks: headings and tables stand apart from what is around them, and tables have a
// head. Otherwise GitHub shows their lines as text.
func TestBlocks(t *testing.T) {
	for name, text := range pages(t) {
		before, rows := "", 0
		prose(text, func(number int, line string) {
			check := func(ok bool, what string) {
				t.Helper()
				assert.Check(t, ok, "%s:%d: %s", name, number, what)
			}
			blank, table := strings.TrimSpace(before) == "", strings.HasPrefix(line, "|")
			check(!heading.MatchString(line) || blank, "no empty line before the heading")
			check(line == "" || !heading.MatchString(before) || heading.MatchString(line), "no empty line after the heading")
			switch {
			case !table:
				check(rows == 0 || strings.TrimSpace(line) == "", "no empty line after the table")
				check(rows != 1, "a table of one line")
				rows = 0
			case rows == 0:
				check(blank, "no empty line before the table")
				rows++
			default:
				check(rows > 1 || tableRule.MatchString(line), "the table has no head")
				rows++
			}
			before = line
		})
	}
}

var (
	tableRule = regexp.MustCompile(`^\|( *:?-+:? *\|)+$`)

	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ +(.*)$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors that the headings of a page have on GitHub.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	prose(text, func(_ int, line string) {
		if m := heading.FindStringSubmatch(line); m != nil {
			found[strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
	})
	return found
}

// TestLinks: each link within the repository leads to a file, and to a heading
// where it names one.
func TestLinks(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		prose(text, func(number int, line string) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				target, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, "://") {
					continue
				}
				path := name
				if target != "" {
					path = filepath.Join(filepath.Dir(name), target)
				}
				if _, err := os.Stat(filepath.Join(root, path)); err != nil {
					t.Errorf("%s:%d: %s does not exist", name, number, m[1])
				} else if anchor != "" && !anchors(all[path])[anchor] {
					t.Errorf("%s:%d: %s has no heading #%s", name, number, path, anchor)
				}
			}
		})
	}
}

var (
	span = regexp.MustCompile("`([^`]+)`")
	// `a`, `b` and `c` in `path`
	pair       = regexp.MustCompile("((?:`[^`]+`(?:, | and |,? or ))*`[^`]+`)\\s+in\\s+\\[?`([\\w./-]+)`")
	identifier = regexp.MustCompile(`^[A-Za-z_][\w.]*$`)
	sourcePath = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*(/|\.(go|h|c|md|yaml))$`)
)

// TestNamesInArchitecture: the files that these pages name exist, and what they
// say to be in a file is in it: "`freeze` in `bpf/recorder/ring.h`".
func TestNamesInArchitecture(t *testing.T) {
	pairs := 0
	for _, name := range []string{"docs/architecture.md", "docs/losses.md", "docs/where.md"} {
		text := pages(t)[name]
		prose(text, func(number int, line string) {
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				if sourcePath.MatchString(m[1]) && strings.Contains(m[1], "/") {
					if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
						t.Errorf("%s:%d: %s does not exist", name, number, m[1])
					}
				}
			}
		})
		for _, m := range pair.FindAllStringSubmatch(text, -1) {
			code := source(filepath.Join(root, m[2]))
			for _, word := range span.FindAllStringSubmatch(m[1], -1) {
				if !identifier.MatchString(word[1]) {
					continue
				}
				pairs++
				last := word[1][strings.LastIndex(word[1], ".")+1:]
				assert.Check(t, regexp.MustCompile(`\b`+last+`\b`).MatchString(code),
					"%s: there is no %s in %s", name, word[1], m[2])
			}
		}
	}
	assert.Check(t, pairs >= 20, "found only %d names with their files", pairs)
}

// TestTree: what the tree in architecture.md shows is there.
func TestTree(t *testing.T) {
	_, tree, _ := strings.Cut(pages(t)["docs/architecture.md"], "```\n")
	tree, _, _ = strings.Cut(tree, "```")
	entry := regexp.MustCompile(`^( {0,2})([\w./*-]+)  `)
	folder, entries := "", 0
	for line := range strings.Lines(tree) {
		m := entry.FindStringSubmatch(line)
		if m == nil {
			continue // goes on from the line before
		}
		path := m[2]
		if m[1] == "" {
			folder = path
		} else {
			path = filepath.Join(folder, path)
		}
		found, err := filepath.Glob(filepath.Join(root, path))
		assert.Check(t, err == nil && len(found) != 0, "%s does not exist", path)
		entries++
	}
	assert.Check(t, entries >= 15, "found only %d entries of the tree", entries)
}

// source is the text of a file, or of all files of a directory.
func source(path string) string {
	var code strings.Builder
	paths, err := filepath.Glob(filepath.Join(path, "*"))
	if err != nil || len(paths) == 0 {
		paths = []string{path}
	}
	for _, p := range paths {
		if text, err := os.ReadFile(p); err == nil {
			code.Write(text)
		}
	}
	return code.String()
}
