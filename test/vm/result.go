package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// How many lines of each log are printed when a guest fails. Where tests failed
// and the kernel is well, its log says little.
const (
	testTail    = 200
	kernelTail  = 60
	healthyTail = 5
)

// counts are the top-level tests of a log.
type counts struct {
	passed, failed int
	skipped        []string // with their reasons
}

// finished matches the line that ends a top-level test.
var finished = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+).*$`)

// count reads the output of go test -v.
func count(log []byte) counts {
	var c counts
	for _, m := range finished.FindAllSubmatchIndex(log, -1) {
		name := string(log[m[4]:m[5]])
		switch string(log[m[2]:m[3]]) {
		case "PASS":
			c.passed++
		case "FAIL":
			c.failed++
		case "SKIP":
			c.skipped = append(c.skipped, name+": "+reason(log[:m[0]]))
		}
	}
	return c
}

// reason returns the last message before the end of a test: with -v, messages
// come first. They are indented, and start with file and line.
func reason(before []byte) string {
	lines := bytes.Split(bytes.TrimRight(before, "\n"), []byte("\n"))
	last := lines[len(lines)-1]
	if !bytes.HasPrefix(last, []byte("    ")) {
		return "no reason given"
	}
	return string(bytes.TrimSpace(last))
}

// fatal are kernel messages that explain why a guest ended.
var fatal = regexp.MustCompile(`(?m)^.*(Kernel panic|Out of memory: Killed|BUG: |Oops: |general protection fault).*$`)

// judge says why a guest failed; "" when it passed.
func judge(exit int, c counts, kernelLog []byte, messages string) string {
	trouble := string(bytes.TrimSpace(fatal.Find(kernelLog)))
	because := ""
	if trouble != "" {
		because = ": " + trouble
	}
	switch exit {
	case boot.Passed.ExitCode():
		switch {
		case trouble != "":
			return "tests passed, but the kernel says" + because
		case c.failed > 0:
			return fmt.Sprintf("%d tests failed, though their exit status is 0", c.failed)
		case c.passed == 0:
			return "no test ran"
		}
		return ""
	case boot.Failed.ExitCode():
		if c.failed > 0 && trouble == "" {
			return fmt.Sprintf("%d tests failed", c.failed)
		}
		return "the tests ended early" + because
	case boot.Broken.ExitCode():
		return "init could not set up the guest" + because
	case boot.Expired.ExitCode():
		return "the tests took too long" + because
	case boot.Warned.ExitCode():
		return "tests passed, but the kernel warned" + because
	case 0:
		return "no exit status: the kernel restarted" + because
	}
	return strings.TrimSpace(fmt.Sprintf("qemu exits with %d: %s", exit, messages)) + because
}

// verdict is one line on a finished guest.
func (r *result) verdict() string {
	if r.failure != "" {
		return "FAILED: " + r.failure
	}
	return fmt.Sprintf("passed in %.1f s", r.took.Seconds())
}

// printDetails prints why a guest failed, with the ends of its logs, and which
// tests it skipped. With all, it prints the whole output of the tests.
func printDetails(w io.Writer, r *result, all bool) {
	switch {
	case all && r.test != nil:
		section(w, r.target.name+": tests", r.test, 0)
	case r.failure != "" && r.test != nil:
		section(w, r.target.name+": tests", r.test, testTail)
	}
	if r.failure != "" && r.kernel == nil {
		fmt.Fprintf(w, "\n%s: %s\n", r.target.name, r.failure)
	} else if r.failure != "" {
		lines := kernelTail
		if r.counts.failed > 0 && !fatal.Match(r.kernel) {
			lines = healthyTail
		}
		section(w, r.target.name+": kernel", r.kernel, lines)
		fmt.Fprintf(w, "\n%s: %s\nwhole logs: %s\n", r.target.name, r.failure, r.logs)
	}
	for _, s := range r.counts.skipped {
		fmt.Fprintf(w, "%s: skipped %s\n", r.target.name, s)
	}
}

// section prints the last lines of a log; with 0, all.
func section(w io.Writer, title string, log []byte, lines int) {
	text := strings.Split(strings.TrimRight(strings.ReplaceAll(string(log), "\r", ""), "\n"), "\n")
	if lines > 0 && len(text) > lines {
		title += fmt.Sprintf(" (last %d lines of %d)", lines, len(text))
		text = text[len(text)-lines:]
	}
	fmt.Fprintf(w, "\n=== %s\n%s\n", title, strings.Join(text, "\n"))
}

// printTable prints a line a kernel, and reports whether all passed.
func printTable(w io.Writer, results []*result) bool {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KERNEL\tRELEASE\tRESULT\tSECONDS\tPASSED\tFAILED\tSKIPPED")
	for _, r := range results {
		verdict := "ok"
		if r.failure != "" {
			verdict = "FAILED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%d\t%d\t%d\n", r.target.name, dash(r.release), verdict,
			r.took.Round(100*time.Millisecond).Seconds(), r.counts.passed, r.counts.failed, len(r.counts.skipped))
	}
	_ = t.Flush()
	return !slices.ContainsFunc(results, func(r *result) bool { return r.failure != "" })
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
