package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
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
	skipped map[string][]string       // tests by the reason that they were skipped for
	passed  int
	failed  bool
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, output: map[test]*strings.Builder{}, skipped: map[string][]string{}}
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
	text := s.text(test{e.Package, e.Test})
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		why := reason(text)
		s.skipped[why] = append(s.skipped[why], e.Package+" "+e.Test)
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

// finish prints what was not run.
func (s *summary) finish() {
	total := 0
	for _, tests := range s.skipped {
		total += len(tests)
	}
	if total == 0 {
		fmt.Fprintf(s.w, "\n%d tests passed, none was skipped\n", s.passed)
		return
	}
	fmt.Fprintf(s.w, "\n%d tests passed, %d were not run:\n", s.passed, total)
	for _, why := range slices.Sorted(maps.Keys(s.skipped)) {
		fmt.Fprintf(s.w, "  %s\n", why)
		for _, name := range s.skipped[why] {
			fmt.Fprintf(s.w, "      %s\n", name)
		}
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
