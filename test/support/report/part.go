package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// ofPart takes the flag -part=K/N from the arguments of go test, and has them run
// only each Nth test of the packages from the Kth on (0 to N-1), in the order of
// the source. Other flags may leave out more.
func ofPart(args []string) ([]string, error) {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-part=") {
		return args, nil
	}
	var k, n int
	if _, err := fmt.Sscanf(args[0], "-part=%d/%d", &k, &n); err != nil || k < 0 || k >= n {
		return nil, fmt.Errorf("%s: want -part=K/N with K from 0 to N-1", args[0])
	}
	args = args[1:]
	c := parse(args)
	out, err := exec.Command("go", append([]string{"test", "-list=^Test"}, c.packages...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	var names []string
	seen := 0
	for name := range strings.Lines(string(out)) {
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		if seen%n == k {
			names = append(names, regexp.QuoteMeta(strings.TrimSpace(name)))
		}
		seen++
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("part %d of %d of %s: no test", k, n, strings.Join(c.packages, " "))
	}
	return append([]string{"-run=^(" + strings.Join(names, "|") + ")$"}, args...), nil
}
