// Package skips reads the list of tests that may be skipped (test/skips.yaml),
// and decides whether a skip is on it. The conditions are evaluated here, from
// the machine and the command line, and not by the test that was skipped.
package skips

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Entry is one item of the list.
type Entry struct {
	Tests []string `yaml:"tests"` // "PACKAGE TEST", with * for anything
	Says  []string `yaml:"says"`  // the message of the skip, with *; empty: any
	When  []string `yaml:"when"`  // one of these conditions must hold
	Why   string   `yaml:"why"`

	tests, says []*regexp.Regexp
}

// List is the whole list.
type List []*Entry

// Load reads the list from a file.
func Load(path string) (List, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the list of allowed skips: %w", err)
	}
	list, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

func parse(text []byte) (List, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var list List
	if err := decoder.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for i, e := range list {
		if e == nil || len(e.Tests) == 0 || len(e.When) == 0 || e.Why == "" {
			return nil, fmt.Errorf("entry %d: tests, when and why are required", i+1)
		}
		for _, c := range e.When {
			if err := checkCondition(c); err != nil {
				return nil, fmt.Errorf("entry %d: %w", i+1, err)
			}
		}
		for _, name := range e.Tests {
			if _, _, ok := strings.Cut(name, " "); !ok {
				return nil, fmt.Errorf("entry %d: %q: want PACKAGE TEST", i+1, name)
			}
		}
		e.tests, e.says = globs(e.Tests), globs(e.Says)
	}
	return list, nil
}

// globs compiles patterns in which * stands for anything.
func globs(patterns []string) []*regexp.Regexp {
	var list []*regexp.Regexp
	for _, p := range patterns {
		quoted := strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, `.*`)
		list = append(list, regexp.MustCompile(`(?s)^`+quoted+`$`))
	}
	return list
}

func matchAny(list []*regexp.Regexp, s string) bool {
	return slices.ContainsFunc(list, func(r *regexp.Regexp) bool { return r.MatchString(s) })
}

// module is the prefix that package names in the list lack.
const module = "github.com/tailcam/tailcam/"

func name(pkg, test string) string { return strings.TrimPrefix(pkg, module) + " " + test }

// Allows reports whether a test of a package may be skipped with this message.
func (l List) Allows(on *Machine, pkg, test, message string) bool {
	return slices.ContainsFunc(l, func(e *Entry) bool {
		return matchAny(e.tests, name(pkg, test)) &&
			(len(e.says) == 0 || matchAny(e.says, message)) &&
			slices.ContainsFunc(e.When, func(c string) bool { return on.holds(c, message) })
	})
}

// Outcome is how one test of a package ended.
type Outcome struct{ Package, Test, Action string }

// Stale returns what is wrong with the list, given how every test of the named
// packages ended: entries whose test does not exist, and entries whose test was
// not skipped although the condition holds.
func (l List) Stale(on *Machine, packages []string, ended []Outcome) (missing, ran []string) {
	actions := map[string]string{}
	for _, o := range ended {
		actions[name(o.Package, o.Test)] = o.Action
	}
	for _, e := range l {
		for _, test := range e.Tests {
			pkg, _, _ := strings.Cut(test, " ")
			if strings.Contains(test, "*") || !slices.Contains(packages, module+pkg) {
				continue
			}
			action, found := actions[test]
			switch {
			case !found && actions[parentOf(test)] != "skip":
				missing = append(missing, test)
			case action == "pass" && len(e.says) == 0 && slices.ContainsFunc(e.When, func(c string) bool { return on.holds(c, "") }):
				ran = append(ran, test)
			}
		}
	}
	return missing, ran
}

// parentOf is the top-level test of a subtest.
func parentOf(test string) string {
	pkg, name, _ := strings.Cut(test, " ")
	top, _, _ := strings.Cut(name, "/")
	return pkg + " " + top
}
