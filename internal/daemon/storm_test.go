package daemon

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
)

func TestRoundUp(t *testing.T) {
	for _, k := range []struct{ d, want time.Duration }{
		{0, 0}, {-1, 0}, {7, 7}, {42, 42}, {101, 110}, {11700 * time.Microsecond, 12 * time.Millisecond}, {12 * time.Millisecond, 12 * time.Millisecond}, {1234 * time.Millisecond, 1300 * time.Millisecond},
	} {
		assert.Check(t, is.Equal(roundUp(k.d), k.want), "roundUp(%v)", k.d)
	}
}

// Only what a rule says makes it another one.
func TestPlainRule(t *testing.T) {
	a := rules.Rule{Name: "a", Threshold: time.Second, Pos: rules.Position{Line: 3}}
	b := a
	b.Pos.Line, b.Paused = 7, true
	got := normalized(b)
	assert.Check(t, got.Pos == (rules.Position{}) && !got.Paused, "%+v", got)
}
