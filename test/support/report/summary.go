package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/test/support/skips"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	Test       string
	Output     string
	ImportPath string // of a build
}

// test names one; in the zero name's place stands the package itself.
type test struct{ pkg, name string }

// summary prints the outcome of each package when it is known.
type summary struct {
	w       io.Writer
	output  map[test]*strings.Builder // of tests that have not ended
	skipped map[string][]test         // by the reason they gave
	ended   []skips.Outcome
	passed  int
	failed  bool

	list     skips.List
	machine  *skips.Machine
	all      bool     // every test of a package runs
	packages []string // that came to their end
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, output: map[test]*strings.Builder{}, skipped: map[string][]test{}}
}

func (s *summary) add(e *event) {
	at := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		if s.output[at] == nil {
			s.output[at] = &strings.Builder{}
		}
		s.output[at].WriteString(e.Output)
	case "build-output":
		fmt.Fprint(s.w, e.Output)
	case "build-fail":
		s.failed = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
		delete(s.output, at)
	}
}

func (s *summary) endTest(e *event) {
	at := test{e.Package, e.Test}
	text := s.text(at)
	s.ended = append(s.ended, skips.Outcome{Package: e.Package, Test: e.Test, Action: e.Action})
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		why := reason(text)
		s.skipped[why] = append(s.skipped[why], at)
	case "fail":
		s.failed = true
		fmt.Fprint(s.w, text)
	}
}

func (s *summary) endPackage(e *event) {
	text := s.text(test{pkg: e.Package})
	if e.Action == "fail" {
		s.failed = true
		s.unfinished(e.Package)
		fmt.Fprint(s.w, text)
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
			fmt.Fprint(s.w, s.text(at))
			delete(s.output, at)
		}
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
	total := 0
	for _, why := range slices.Sorted(maps.Keys(s.skipped)) {
		for _, at := range s.skipped[why] {
			total++
			if !s.list.Allows(s.machine, at.pkg, at.name, why) {
				refused = append(refused, fmt.Sprintf("%s %s: %s", at.pkg, at.name, why))
			}
		}
	}
	if total == 0 {
		fmt.Fprintf(s.w, "\n%d tests passed, none was skipped\n", s.passed)
	} else {
		fmt.Fprintf(s.w, "\n%d tests passed, %d were skipped:\n", s.passed, total)
	}
	for _, why := range slices.Sorted(maps.Keys(s.skipped)) {
		fmt.Fprintf(s.w, "  %s\n", why)
		for _, at := range s.skipped[why] {
			fmt.Fprintf(s.w, "      %s %s\n", at.pkg, at.name)
		}
	}
	s.section("SKIPPED, but the list of allowed skips does not allow it here", refused)
	if !s.all {
		return len(refused) == 0
	}
	missing, ran := s.list.Stale(s.machine, s.packages, s.ended)
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
