package events

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

func TestStackLines(t *testing.T) {
	frames := []Frame{"outer+0x12 (prog)", "[unknown] (prog+0x40)", "main+0x1 (prog)"}
	sources := []Source{
		{File: "/build/prog/src/outer.c", Line: 30, Inlined: []Inlined{
			{Function: "leaf", File: "include/leaf.h", Line: 3}, {Function: "middle", File: "./outer.c", Line: 20}}},
		{},
		{File: "main.c"},
	}
	lines := []string{
		"leaf (inlined)  include/leaf.h:3", "middle (inlined)  outer.c:20", "outer+0x12 (prog)  src/outer.c:30",
		"[unknown] (prog+0x40)", "main+0x1 (prog)  main.c",
	}
	got := StackLines(frames, sources)
	assert.Check(t, slices.Equal(got, lines), "got %q, want %q", got, lines)
	names := []string{"leaf_[i]", "middle_[i]", "outer+0x12 (prog)", "[unknown] (prog+0x40)", "main+0x1 (prog)"}
	if got := StackNames(frames, sources); !slices.Equal(got, names) {
		t.Errorf("got %q, want %q", got, names)
	}
	for _, got := range [][]string{StackLines(frames, nil), StackNames(frames, nil)} {
		assert.Check(t, slices.Equal(got, frames), "without sources: got %q, want %q", got, frames)
	}
}
