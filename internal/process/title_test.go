package process

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestTitleOf: a thread with a name of its own is told by its process's.
func TestTitleOf(t *testing.T) {
	for _, c := range []struct {
		id   Identity
		tid  int
		comm string
		want string
	}{
		{Identity{Comm: "beam.smp"}, 8, "2_scheduler", "beam.smp"},
		{Identity{Comm: "mariadbd"}, 8, "mariadbd", ""},
		{Identity{Comm: "server"}, 7, "renamed since", ""},
		{Identity{Comm: "java", Title: "app.jar"}, 8, "GC Thread#1", "app.jar"},
		{Identity{}, 8, "anything", ""},
	} {
		got := c.id.TitleOf(7, c.tid, c.comm)
		assert.Check(t, got == c.want, "%q, want %q", got, c.want)
	}
}
