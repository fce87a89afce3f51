package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/test/support/disturbance"
	"github.com/tailcam/tailcam/test/support/skips"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Output  string
}

// repeated is how many lines of each failure are printed again at the end.
const repeated = 40

// test names one; in the zero name's place stands the package itself.
type test struct{ pkg, name string }

// outcome is how a test or subtest ended; with the reason of a skip.
type outcome struct {
	test
	action, why string
}

// summary prints the outcome of each package when it is known.
type summary struct {
	w      io.Writer
	output map[test]*strings.Builder // of tests that have not ended
	times  timeline
	ended  []outcome

	failures []test            // top-level tests
	failed   []string          // packages
	never    map[test]string   // what no disturbance excuses in the output of a top-level test or a package
	early    map[string]string // why packages ended with more than failed tests
	broken   bool              // something was not built
	verdicts []string          // on each top-level test that failed
	said     []string          // what failed tests and packages have printed, in the order of their ends

	list     skips.List
	machine  *skips.Machine
	all      bool     // every test of a package runs
	packages []string // that came to their end
}

func newSummary(w io.Writer) *summary {
	return &summary{
		w: w, output: map[test]*strings.Builder{}, times: timeline{}, never: map[test]string{}, early: map[string]string{},
	}
}

func (s *summary) add(e *event) {
	at := test{e.Package, e.Test}
	s.times.add(e)
	switch e.Action {
	case "output":
		if s.output[at] == nil {
			s.output[at] = &strings.Builder{}
		}
		s.output[at].WriteString(e.Output)
		if what := disturbance.Never(e.Output); what != "" {
			s.never[test{e.Package, topLevel(e.Test)}] = what
		}
	case "build-output":
		fmt.Fprint(s.w, e.Output)
	case "build-fail":
		s.broken = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
		delete(s.output, at)
	}
}

func topLevel(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return top
}

func (s *summary) endTest(e *event) {
	at := test{e.Package, e.Test}
	text := s.text(at)
	o := outcome{test: at, action: e.Action}
	switch e.Action {
	case "skip":
		o.why = reason(text)
	case "fail":
		s.tell(text)
		if at.name == topLevel(at.name) && !slices.Contains(s.failures, at) {
			s.failures = append(s.failures, at)
		}
	}
	s.ended = append(s.ended, o)
}

func (s *summary) endPackage(e *event) {
	text := s.text(test{pkg: e.Package})
	if e.Action == "fail" {
		s.failed = append(s.failed, e.Package)
		s.unfinished(e.Package)
		s.tell(text)
		return
	}
	s.packages = append(s.packages, e.Package)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ok") || strings.HasPrefix(line, "coverage") {
			fmt.Fprint(s.w, line)
		}
	}
}

// unfinished prints what tests of a package said that never came to their end.
func (s *summary) unfinished(pkg string) {
	for _, at := range slices.SortedFunc(maps.Keys(s.output), func(a, b test) int { return strings.Compare(a.name, b.name) }) {
		if at.pkg == pkg && at.name != "" {
			s.tell(s.text(at))
			delete(s.output, at)
			s.early[pkg] = cmp.Or(s.early[pkg], "its package ended before "+at.name)
		}
	}
}

// tell prints what something that failed has said, and keeps it for the end.
func (s *summary) tell(text string) {
	fmt.Fprint(s.w, text)
	s.said = append(s.said, text)
}

// repeat prints once more, shortened, what failed: a reader of a long log begins at its end.
func (s *summary) repeat() {
	if len(s.said) == 0 {
		return
	}
	fmt.Fprint(s.w, "\nOnce more, the ends of what failed:\n")
	for _, text := range s.said {
		lines := strings.SplitAfter(text, "\n")
		fmt.Fprint(s.w, strings.Join(lines[max(0, len(lines)-repeated):], ""))
	}
}

func (s *summary) text(at test) string {
	if b := s.output[at]; b != nil {
		return b.String()
	}
	return ""
}

// finish prints what was skipped, and reports whether all of that is on the list.
func (s *summary) finish() (honest bool) {
	var refused []string
	var ended []skips.Outcome
	skipped := map[string][]test{} // by the reason they gave
	passed, total := 0, 0
	for _, o := range s.ended {
		ended = append(ended, skips.Outcome{Package: o.pkg, Test: o.name, Action: o.action})
		switch o.action {
		case "pass":
			passed++
		case "skip":
			total++
			skipped[o.why] = append(skipped[o.why], o.test)
			if !s.list.Allows(s.machine, o.pkg, o.name, o.why) {
				refused = append(refused, fmt.Sprintf("%s %s: %s", o.pkg, o.name, o.why))
			}
		}
	}
	if total == 0 {
		fmt.Fprintf(s.w, "\n%d tests passed, none was skipped\n", passed)
	} else {
		fmt.Fprintf(s.w, "\n%d tests passed, %d were skipped:\n", passed, total)
	}
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(s.w, "  %s\n", why)
		for _, at := range skipped[why] {
			fmt.Fprintf(s.w, "      %s %s\n", at.pkg, at.name)
		}
	}
	s.section("SKIPPED, but the list of allowed skips does not allow it here", refused)
	if !s.all {
		return len(refused) == 0
	}
	missing, ran := s.list.Stale(s.machine, s.packages, ended)
	s.section("On the list of allowed skips, but there is no such test", missing)
	s.section("Allowed to be skipped here, but it ran", ran)
	return len(refused) == 0 && len(missing) == 0
}

func (s *summary) section(title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(s.w, "\n%s:\n  %s\n", title, strings.Join(lines, "\n  "))
	}
}

// position is what the testing package puts before a message.
var position = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason finds the message of t.Skip: the last one before the closing line.
func reason(output string) string {
	why := ""
	for line := range strings.Lines(output) {
		switch {
		case position.MatchString(line):
			why = position.ReplaceAllString(strings.TrimRight(line, "\n"), "")
		case why != "" && strings.HasPrefix(line, "        "): // the message goes on
			why += " " + strings.TrimSpace(line)
		}
	}
	if why == "" {
		return "no reason given"
	}
	return why
}
