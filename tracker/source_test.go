package tracker

import (
	"slices"
	"testing"
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
	if got := StackLines(frames, sources); !slices.Equal(got, lines) {
		t.Errorf("got %q, want %q", got, lines)
	}
	names := []string{"leaf_[i]", "middle_[i]", "outer+0x12 (prog)", "[unknown] (prog+0x40)", "main+0x1 (prog)"}
	if got := StackNames(frames, sources); !slices.Equal(got, names) {
		t.Errorf("got %q, want %q", got, names)
	}
	for _, got := range [][]string{StackLines(frames, nil), StackNames(frames, nil)} {
		if !slices.Equal(got, frames) {
			t.Errorf("without sources: got %q, want %q", got, frames)
		}
	}
}

// A copy that was made before an outlier had names gets them; what the copy has
// of its own stays.
func TestComplete(t *testing.T) {
	o := &Outlier{Task: Task{PID: 7, Comm: "x"}}
	o.NewLater()
	id := "a"
	early := *o
	early.Snapshot = &id
	done := make(chan struct{})
	go func() {
		defer close(done)
		early.Complete()
	}()
	o.Task.Cmdline, o.Stacks.User = "x --serve", []Frame{"main+0x1 (x)"}
	o.Stacks.Sources = &Sources{User: []Source{{File: "x.c", Line: 1}}}
	select {
	case <-done:
		t.Error("completed before the outlier was")
	default:
	}
	o.Later.Done()
	<-done
	if early.Task.Cmdline != "x --serve" || !slices.Equal(early.Stacks.User, o.Stacks.User) || early.Stacks.UserSources()[0].Line != 1 {
		t.Errorf("got %+v", early)
	}
	if *early.Snapshot != "a" || o.Snapshot != nil {
		t.Error("the copy's own snapshot was not left alone")
	}
	early.Complete() // again, and of one that has nothing to wait for
	(&Outlier{}).Complete()
	o.Complete() // of itself, which has nothing to wait for either
}
