package daemon

import (
	"testing"
	"time"

	"github.com/tailcam/tailcam/rules"
)

func TestRoundUp(t *testing.T) {
	for _, k := range []struct{ d, want time.Duration }{
		{0, 0}, {-1, 0}, {7, 7}, {42, 42}, {101, 110}, {11700 * time.Microsecond, 12 * time.Millisecond}, {12 * time.Millisecond, 12 * time.Millisecond}, {1234 * time.Millisecond, 1300 * time.Millisecond},
	} {
		if got := roundUp(k.d); got != k.want {
			t.Errorf("roundUp(%v) = %v, want %v", k.d, got, k.want)
		}
	}
}

// Only what a rule says makes it another one.
func TestPlainRule(t *testing.T) {
	a := rules.Rule{Name: "a", Threshold: time.Second, Pos: rules.Position{Line: 3}}
	b := a
	b.Pos.Line, b.Paused = 7, true
	if got := normalized(b); got.Pos != (rules.Position{}) || got.Paused {
		t.Errorf("%+v", got)
	}
}
