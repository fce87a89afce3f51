package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestSecurityTests: each test that SECURITY.md names exists.
func TestSecurityTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	assert.NilError(t, err)
	found := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(code, -1) {
			found[string(m[1])] = true
		}
		return err
	})
	assert.NilError(t, err)
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(text), -1)
	assert.Assert(t, len(named) != 0, "SECURITY.md names no tests")
	for _, m := range named {
		assert.Check(t, found[m[1]], "SECURITY.md names %s, which does not exist", m[1])
	}
	for line := range strings.Lines(string(text)) {
		assert.Check(t, !strings.HasPrefix(line, "| ") || !strings.Contains(line, ". |") ||
			strings.Contains(line, "`"), "a sentence without a test: %s", line)
	}
}
