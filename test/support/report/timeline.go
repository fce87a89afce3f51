package main

import (
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/test/support/disturbance"
)

// timeline knows when each package and each top-level test ran.
type timeline map[test]*course

// course is when one of them ran. Tests pause between t.Parallel and their turn.
type course struct {
	spans []disturbance.Span
	since time.Time // it runs; zero: it does not
}

func (t timeline) add(e *event) {
	if strings.Contains(e.Test, "/") {
		return // within the time of its test
	}
	at := test{e.Package, e.Test}
	said := strings.HasPrefix(e.Output, "--- ") // test2json tells of the end only before the next line
	switch {
	case e.Action == "start" || e.Action == "run" || e.Action == "cont":
		if t[at] == nil {
			t[at] = &course{}
		}
		t[at].since = e.Time
	case said || slices.Contains([]string{"pause", "pass", "fail", "skip"}, e.Action):
		if c := t[at]; c != nil && !c.since.IsZero() {
			c.spans = append(c.spans, disturbance.Span{From: c.since, To: e.Time})
			c.since = time.Time{}
		}
	}
}

func (t timeline) spans(at test) []disturbance.Span {
	if c := t[at]; c != nil {
		return c.spans
	}
	return nil
}

// beside reports whether a test that ended had company: a test of its package,
// another package, or the compiler at work for a package that began later.
func (t timeline) beside(at test, onePackage bool) bool {
	own := t.spans(at)
	if len(own) == 0 {
		return false
	}
	for other, c := range t {
		switch {
		case other.pkg == at.pkg && (other.name == "" || other == at):
		case other.pkg != at.pkg && !onePackage && len(c.spans) > 0 && c.spans[len(c.spans)-1].To.After(own[0].From):
			return true
		case slices.ContainsFunc(c.spans, func(s disturbance.Span) bool { return slices.ContainsFunc(own, s.Overlaps) }):
			return true
		}
	}
	return false
}
