package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestPlausible: what would take much more memory than bytes is refused, and no document that
// could be real.
func TestPlausible(t *testing.T) {
	list := func(n int) string { return `{"outliers":[0` + strings.Repeat(",0", n-1) + `]}` }
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"strings", `{"a":"[[[[,,,\"[{","b":["x,y",{"c":1}]}`, ""},
		{"no JSON", `]]]}}},,,"`, ""},
		{"an escape at the end", `"\`, ""},
		{"deep", strings.Repeat("[", maxNesting), ""},
		{"deeper", strings.Repeat("[", maxNesting+1), "more than 64 levels"},
		{"deep in turns", strings.Repeat("[{]}", 1000), ""},
		{"listed", list(maxInList), ""},
		{"one more", list(maxInList + 1), "more values than any"},
		{"two lists", strings.Replace(list(maxInList), "}", "", 1) + `,"tasks":[0` + strings.Repeat(",0", maxInList-1) + "]}", ""},
		{"in a list's element", `{"outliers":[{"path":[0` + strings.Repeat(",0", maxElements-1) + `]}]}`, ""},
		{"and one more", `{"outliers":[{"path":[0` + strings.Repeat(",0", maxElements) + `]}]}`, "more values than any"},
		{"members", `{"a":{"":0` + strings.Repeat(`,"":0`, maxMembers) + "}}", "more values than any"},
	} {
		err := plausible([]byte(c.text))
		if c.want == "" {
			assert.Check(t, err, c.name)
			continue
		}
		assert.Check(t, is.ErrorContains(err, c.want), c.name)
	}
	path := filepath.Join(t.TempDir(), MetaFile)
	assert.NilError(t, os.WriteFile(path, []byte(list(maxInList+1)), 0o600))
	_, err := ReadMeta(filepath.Dir(path))
	assert.Check(t, is.ErrorContains(err, "snapshot.json: it has more values"))
}
