package api

import (
	"context"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/events"
)

// after follows a stream from a cursor on, and returns n outliers and verdicts, by kind
// and key, with the cursor of the last one, and the loss before them.
func after(t *testing.T, c *Client, rule, cursor string, n int) (got []string, last string, loss Event) {
	t.Helper()
	s, err := c.Events(context.Background(), &EventsOptions{Rule: rule, Follow: true, Verdicts: true, After: cursor})
	assert.NilError(t, err)
	defer s.Close()
	for len(got) < n {
		e, err := s.Next()
		assert.NilError(t, err)
		switch {
		case e.Outlier != nil:
			got, last = append(got, "outlier "+e.Outlier.Rule), e.Outlier.Cursor
		case e.Verdict != nil:
			got, last = append(got, "verdict "+e.Verdict.Rule), e.Verdict.Cursor
		default:
			loss = e
		}
	}
	return got, last, loss
}

// explained is an outlier with a snapshot, and with its verdict.
func explained(rule string, at int64) (o, done *events.Outlier) {
	o = outlier(rule, at)
	id := rule
	o.Snapshot = &id
	again := *o
	again.Explained = &events.Explained{Verdict: "It waited."}
	return o, &again
}

// TestCursor: what comes between two calls is not missed, from whichever line one goes on;
// what is forgotten is counted, for a rule only if it lost some of its own.
func TestCursor(t *testing.T) {
	backend := newFake() // remembers three
	c, stop := serve(t, backend)
	defer stop()
	first, firstDone := explained("a", 1)
	backend.Publish(first)
	_, here, _ := after(t, c, "", "x.0.0", 1)

	second, secondDone := explained("disk", 2)
	backend.Publish(second)
	backend.Explain([]events.Outlier{*firstDone})
	third, _ := explained("c", 3)
	backend.Publish(third)
	backend.Explain([]events.Outlier{*secondDone})

	all := []string{"outlier disk", "outlier c", "verdict a", "verdict disk"}
	for n := 1; n <= len(all); n++ { // interrupted anywhere
		got, cursor, loss := after(t, c, "", here, n)
		assert.Check(t, is.DeepEqual(got, all[:n]))
		assert.Check(t, loss == Event{}, "%+v", loss)
		if n < len(all) {
			rest, _, _ := after(t, c, "", cursor, len(all)-n)
			assert.Check(t, is.DeepEqual(rest, all[n:]), "after %d", n)
		}
	}
	got, _, _ := after(t, c, "disk", here, 2)
	assert.Check(t, is.DeepEqual(got, []string{"outlier disk", "verdict disk"}))

	backend.Publish(outlier("c", 4)) // a or c loses one; a has but one
	backend.Publish(outlier("c", 5))
	_, _, loss := after(t, c, "", here, 1)
	assert.Check(t, loss.Lost > 0 && !loss.Restarted, "%+v", loss)
	_, _, loss = after(t, c, "disk", here, 1)
	assert.Check(t, loss == Event{}, "disk lost none: %+v", loss)
	_, _, loss = after(t, c, "", "before.7.7", 1)
	assert.Check(t, loss.Restarted, "%+v", loss)

	for _, bad := range []string{"x", "x.1", "x.1.b", ".1.1", "x.-1.1", "x.1.1.1"} {
		_, err := c.Events(context.Background(), &EventsOptions{Follow: true, After: bad})
		assert.Check(t, is.ErrorContains(err, "invalid cursor"), "%q", bad)
	}
}
