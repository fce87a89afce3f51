package daemon

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/rules"
)

// TestWordsOfConditions: rules imports nothing of ours, so it has its own list of the
// causes and kinds that explain knows.
func TestWordsOfConditions(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../explain/report.go", nil, 0)
	assert.NilError(t, err)
	var causes, kinds []string
	for _, decl := range file.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			lit, ok := v.Values[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				continue
			}
			word, err := strconv.Unquote(lit.Value)
			assert.NilError(t, err)
			if of, ok := v.Type.(*ast.Ident); ok && of.Name == "Cause" {
				causes = append(causes, word)
			} else if strings.HasPrefix(v.Names[0].Name, "Kind") {
				kinds = append(kinds, word)
			}
		}
	}
	same := func(what string, got, want []string) {
		slices.Sort(want)
		assert.DeepEqual(t, slices.Sorted(slices.Values(got)), want)
		assert.Check(t, len(want) > 10, "%s: %q", what, want)
	}
	same("causes", rules.VerdictCauses, causes)
	same("kinds", rules.CulpritKinds, kinds)
	assert.DeepEqual(t, rules.Confidences, []string{string(explain.Seen), string(explain.Inferred), string(explain.Guess)})
}
