package pair

import (
	"testing"

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
	if len(got) != 2 || got[0].Name != "changed" || got[1].Name != "new" {
		t.Errorf("got %+v", got)
	}
}

// The templates of hooks are there.
func TestTemplates(t *testing.T) {
	spec, err := bpf.LoadPair()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{templateRaw, templateRecord, templateRegs, templateTracing} {
		if spec.Programs[name] == nil {
			t.Errorf("there is no template %q", name)
		}
	}
}
