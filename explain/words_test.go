package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// constants returns the string constants of a type in a source file of this package.
func constants(t *testing.T, file, kind string) []string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	assert.NilError(t, err)
	var list []string
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := s.Type.(*ast.Ident); !ok || id.Name != kind {
			return true
		}
		for _, v := range s.Values {
			text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			assert.NilError(t, err)
			list = append(list, text)
		}
		return true
	})
	assert.Assert(t, len(list) > 0, "%s has no constants of type %s", file, kind)
	return list
}

// TestEveryCauseHasWords: as a part, as a link of a chain, and in the documentation.
func TestEveryCauseHasWords(t *testing.T) {
	docs, err := os.ReadFile("../docs/explain.md")
	assert.NilError(t, err)
	w := &walker{m: newModel(nil, Names{}), outlier: &Outlier{Track: "offcpu"}}
	for _, name := range constants(t, "report.go", "Cause") {
		for _, by := range []*Who{{Kind: KindTask, Name: "other 2", Comm: "other", TID: 2}, {Kind: KindUnknown, Name: "something"}} {
			g := group{cause: Cause(name), ns: 5_000_000, parts: []Part{{Cause: Cause(name), By: by, NS: 5_000_000, Count: 1, Reason: "why"}}}
			l := link{group: g}
			phrase, words := w.phrase(&g, nil), l.words()
			assert.Check(t, linkWords[g.cause] != nil, "%s has no words as a link", name)
			assert.Check(t, strings.Contains(phrase, "5.0 ms") && strings.Contains(words, "5.0 ms"), "%s: %q, %q", name, phrase, words)
			assert.Check(t, name == string(Unexplained) || !strings.Contains(phrase, "unexplained"), "%s: %q", name, phrase)
		}
		assert.Check(t, strings.Contains(string(docs), "`"+name+"`"), "docs/explain.md does not know %s", name)
	}
}

// TestEveryEvidenceIsDocumented: confidences, kinds of waits, and what they rest on.
func TestEveryEvidenceIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../docs/explain.md")
	assert.NilError(t, err)
	docs := strings.Join(strings.Fields(string(data)), " ")
	for _, c := range constants(t, "evidence.go", "Confidence") {
		assert.Check(t, strings.Contains(docs, "`"+c+"`"), "confidence %s", c)
	}
	for i, e := range evidences {
		assert.Check(t, e.confidence != "" && (e.words == "") == (e.confidence == Seen), "evidence %d: %+v", i, e)
		assert.Check(t, strings.Contains(docs, e.words), "docs/explain.md does not have %q", e.words)
	}
	for i, k := range waits {
		assert.Check(t, k.name == "" || strings.Contains(docs, "`"+k.name+"`"), "wait %s", k.name)
		assert.Check(t, waitOf(k.name) == wait(i) && k.words != "", "%d: %+v", i, k)
	}
}

func readDocs(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../docs/explain.md")
	assert.NilError(t, err)
	return string(data)
}

// TestCalled: a task is called by the title of its process, and threads by their own names, each once.
func TestCalled(t *testing.T) {
	for _, c := range []struct {
		who  Who
		want string
	}{
		{Who{TID: 7, PID: 7, Comm: "perl"}, "perl"},
		{Who{TID: 7, PID: 7, Comm: "postgres", Title: "postgres: checkpointer"}, "postgres: checkpointer"},
		{Who{TID: 8, PID: 7, Comm: "GC Thread#1", Title: "app.jar"}, "GC Thread#1 of app.jar"},
		{Who{TID: 8, PID: 7, Comm: "server", Title: "server of main.js"}, "server of main.js"},
		{Who{TID: 8, PID: 7, Comm: "serve", Title: "server of main.js"}, "serve of server of main.js"},
	} {
		got := c.who.Called()
		assert.Check(t, got == c.want, "%q, want %q", got, c.want)
	}
}
