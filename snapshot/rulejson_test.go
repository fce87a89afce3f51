package snapshot

import (
	"reflect"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
)

// TestRuleJSONIsWhole fails when package rules grows a field that the JSON
// form does not know.
func TestRuleJSONIsWhole(t *testing.T) {
	for _, c := range []struct{ of, as any }{
		{rules.Rule{}, RuleJSON{}},
		{rules.Match{}, MatchJSON{}},
		{rules.Override{}, OverrideJSON{}},
		{rules.SnapshotPolicy{}, PolicyJSON{}},
		{rules.Action{}, ActionJSON{}},
		{rules.Condition{}, ConditionJSON{}},
		{rules.ActionLimit{}, ActionLimitJSON{}},
		{rules.ActionBounds{}, ActionBoundsJSON{}},
		{rules.Adaptive{}, AdaptiveJSON{}},
		{rules.Histogram{}, HistogramJSON{}},
		{rules.PairSpec{}, PairJSON{}},
		{rules.Position{}, RulePositionJSON{}},
	} {
		a, b := reflect.TypeOf(c.of), reflect.TypeOf(c.as)
		assert.Check(t, a.NumField() == b.NumField(),
			"%v has %d fields, %v has %d", a, a.NumField(), b, b.NumField())
	}
}
