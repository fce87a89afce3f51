package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// command is what go test was told.
type command struct {
	flags    []flagValue
	packages []string
	args     []string // from -args on
}

// flagValue is a flag by its name without dashes, and as it was written.
type flagValue struct {
	name, value string
	words       []string
}

// switches are the flags of go test that take no value as a word of its own.
var switches = []string{
	"a", "artifacts", "asan", "benchmem", "c", "cover", "failfast", "fullpath", "json", "linkshared", "modcacherw", "msan",
	"n", "race", "short", "trimpath", "v", "work", "x",
}

func parse(args []string) command {
	var c command
	for i := 0; i < len(args); i++ {
		word := args[i]
		name := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "test.")
		switch name, value, joined := strings.Cut(name, "="); {
		case !strings.HasPrefix(word, "-"):
			c.packages = append(c.packages, word)
		case name == "args":
			c.args = args[i:]
			return c
		case joined || slices.Contains(switches, name) || i+1 == len(args):
			c.flags = append(c.flags, flagValue{name, value, args[i : i+1]})
		default:
			c.flags = append(c.flags, flagValue{name, args[i+1], args[i : i+2]})
			i++
		}
	}
	return c
}

// chosen are the flags that say what runs, and how much of it at once.
var chosen = []string{"count", "json", "list", "p", "parallel", "run", "v"}

// alone are the arguments that run one test of a package, or only some subtests of it, the rest as
// it was.
func (c command) alone(at test, only ...string) []string {
	run := "-run=^" + regexp.QuoteMeta(at.name) + "$"
	if len(only) > 0 {
		quoted := make([]string, len(only))
		for i, name := range only {
			quoted[i] = regexp.QuoteMeta(name)
		}
		run += "/^(" + strings.Join(quoted, "|") + ")$"
	}
	args := []string{"-count=1", "-p=1", run}
	for _, f := range c.flags {
		if !slices.Contains(chosen, f.name) {
			args = append(args, f.words...)
		}
	}
	return append(append(args, at.pkg), c.args...)
}

// ofEach takes the flag -each=REGEXP from the arguments.
func ofEach(args []string) (rest []string, each *regexp.Regexp, err error) {
	i := slices.IndexFunc(args, func(word string) bool { return strings.HasPrefix(word, "-each=") })
	if i < 0 {
		return args, nil, nil
	}
	if each, err = regexp.Compile(strings.TrimPrefix(args[i], "-each=")); err != nil {
		return nil, nil, fmt.Errorf("-each: %w", err)
	}
	return slices.Delete(slices.Clone(args), i, i+1), each, nil
}

// onePackage reports whether packages run one after the other.
func (c command) onePackage() bool {
	return slices.ContainsFunc(c.flags, func(f flagValue) bool { return f.name == "p" && f.value == "1" })
}

// selects reports whether a flag leaves some tests of a package out.
func (c command) selects() bool {
	return slices.ContainsFunc(c.flags, func(f flagValue) bool { return f.name == "run" || f.name == "skip" })
}
