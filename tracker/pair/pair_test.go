package pair

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// Rules that run are not looked for again; others, and changed ones, are.
func TestUnknownPairs(t *testing.T) {
	spec := func(hook string) *rules.PairSpec {
		return &rules.PairSpec{Entry: []rules.Hook{{Text: hook}}, OnDuplicate: rules.Duplicates[0]}
	}
	p := &Set{specs: map[string]*rules.PairSpec{"same": spec("a"), "changed": spec("a"), "gone": spec("a")}}
	got := p.Unknown([]rules.Rule{
		{Name: "same", Track: rules.Pair, Pair: spec("a")}, {Name: "changed", Track: rules.Pair, Pair: spec("b")},
		{Name: "new", Track: rules.Pair, Pair: spec("a")},
	})
	assert.Check(t, len(got) == 2 && got[0].Name == "changed" && got[1].Name == "new", "got %+v", got)
}

// The templates of hooks are there.
func TestTemplates(t *testing.T) {
	spec, err := bpf.LoadPair()
	assert.NilError(t, err)
	for _, name := range []string{templateRaw, templateRecord, templateRegs, templateTracing} {
		assert.Check(t, spec.Programs[name] != nil, "there is no template %q", name)
	}
}
