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
	backend.Finish("/snapshots/one", []events.Outlier{*firstDone})
	third, _ := explained("c", 3)
	backend.Publish(third)
	backend.Finish("/snapshots/one", []events.Outlier{*secondDone})

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

// TestFinished: each complete snapshot comes to who goes on from a cursor, also one without a
// verdict, and one that was taken by hand, which is no outlier; those forgotten are counted.
func TestFinished(t *testing.T) {
	backend := newFake() // remembers three
	c, _ := serve(t, backend)
	here := backend.Cursor()
	o, done := explained("a", 1)
	backend.Publish(o)
	done.Explained = nil
	backend.Finish("/snapshots/a", []events.Outlier{*done})
	backend.FinishManual("/snapshots/by-hand", &events.Outlier{Rule: "manual"})

	got, cursor, _ := after(t, c, "", here, 3)
	assert.Check(t, is.DeepEqual(got, []string{"outlier a", "verdict a", "verdict manual"}))
	assert.Equal(t, cursor, backend.Cursor())
	got, _, _ = after(t, c, "manual", here, 1)
	assert.Check(t, is.DeepEqual(got, []string{"verdict manual"}))
	assert.Check(t, is.Len(backend.Recent(""), 1))
	assert.Check(t, is.Equal(backend.Recent("")[0].Dir, "/snapshots/a"))

	s, err := c.Events(t.Context(), &EventsOptions{Follow: true, Verdicts: true, After: here})
	assert.NilError(t, err)
	defer s.Close()
	e, err := s.Next()
	assert.Check(t, err == nil && e.Outlier.Dir == "/snapshots/a", "the directory is known by now: %+v, %v", e, err)

	for range 1000 {
		backend.FinishManual("/snapshots/by-hand", &events.Outlier{Rule: "manual"})
	}
	_, _, loss := after(t, c, "", here, 1)
	assert.Check(t, loss.Lost == 0 && loss.LostVerdicts == 1002-3, "%+v", loss)
	_, _, loss = after(t, c, "", cursor, 1)
	assert.Check(t, loss.Lost == 0 && loss.LostVerdicts == 1000-2, "one is of a: %+v", loss)
}
