package events

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// A copy that was made before an outlier had names gets them; what the copy has
// of its own stays.
func TestComplete(t *testing.T) {
	o := &Outlier{Task: Task{PID: 7, Comm: "x"}}
	o.NewEnrichment()
	id := "a"
	early := *o
	early.Snapshot = &id
	assert.Check(t, !early.IsComplete(), "complete before anything was found out")
	done := make(chan struct{})
	go func() {
		defer close(done)
		early.Complete(nil)
	}()
	o.Enrichment.Learn(func(o *Outlier) {
		o.Task.Cmdline, o.Stacks.User = "x --serve", []Frame{"main+0x1 (x)"}
		o.Stacks.Sources = &Sources{User: []Source{{File: "x.c", Line: 1}}}
	})
	select {
	case <-done:
		t.Error("completed before the outlier was")
	default:
	}
	o.Enrichment.Done()
	<-done
	assert.Check(t, early.Task.Cmdline == "x --serve" && slices.Equal(early.Stacks.User, o.Stacks.User) &&
		early.Stacks.UserSources()[0].Line == 1 && !early.Partial, "got %+v", early)
	assert.Check(t, *early.Snapshot == "a" && o.Snapshot == nil, "the copy's own snapshot was not left alone")
	early.Complete(nil) // again, and of one that has nothing to wait for
	(&Outlier{}).Complete(nil)
	o.Complete(nil) // of itself, which has nothing to wait for either
	assert.Check(t, early.IsComplete(), "not complete")
}

// Who cannot wait any longer gets what is known, and addresses for the rest.
func TestCompleteGivesUp(t *testing.T) {
	o := &Outlier{Task: Task{PID: 7}, Raw: RawStacks{User: []uint64{0x10, 0x20}, Kernel: []uint64{0x30}, Progress: []RawProgress{{AgeNS: 5, State: "other", Kernel: []uint64{0x40}}}}}
	o.NewEnrichment()
	early := *o
	o.Enrichment.Learn(func(o *Outlier) { o.Task.Cmdline, o.Stacks.Kernel = "x --serve", []Frame{"schedule+0x1"} })
	giveUp := make(chan struct{})
	close(giveUp)
	early.Complete(giveUp)
	assert.Check(t, early.Partial && early.Task.Cmdline == "x --serve" &&
		slices.Equal(early.Stacks.Kernel, []Frame{"schedule+0x1"}), "got %+v", early)
	assert.Check(t, slices.Equal(early.Stacks.User, []Frame{"[unknown] 0x10", "[unknown] 0x20"}),
		"user stack %v", early.Stacks.User)
	p := early.Stacks.Progress
	assert.Check(t, len(p) == 1 && p[0].AgeNS == 5 && slices.Equal(p[0].Kernel, []Frame{"[unknown] 0x40"}),
		"progress %+v", p)
	assert.Check(t, o.Stacks.User == nil && o.Stacks.Progress == nil, "the outlier itself was changed")
	o.Enrichment.Done()
	k := o.Enrichment.Known()
	assert.Check(t, !k.Partial, "partial, though nothing more will be found out")
}
