package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tailcam/tailcam/test/support/skips"
	"github.com/tailcam/tailcam/test/vm/boot"
)

// How many lines of each log are printed when a guest fails. Where tests failed
// and the kernel is well, its log says little.
const (
	testTail    = 200
	failedTail  = 40
	kernelTail  = 60
	healthyTail = 5
)

// counts are the top-level tests of a log, and all skips in it.
type counts struct {
	passed, failed   int
	passes, failures []string            // their names
	told             map[string][]string // what each that failed has printed
	still            map[string]string   // how the guest stood still while a test ran
	skipped          []skip
	facts            map[string]fact
	unfinished       string // test that ran when the guest ended
}

// skip is a test or subtest that was skipped.
type skip struct{ test, why string }

func (s skip) String() string { return s.test + ": " + s.why }

var (
	// running matches the line after which a test's messages stand.
	running = regexp.MustCompile(`^=== (?:RUN|NAME|CONT) +(\S+)`)
	// finished matches the line that ends a test.
	finished = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+)`)
	// message matches what t.Log and t.Skip print.
	message = regexp.MustCompile(`^ +\S+\.go:\d+: (.*)`)
)

// count reads the output of go test -v.
func count(log []byte) counts {
	c := counts{facts: map[string]fact{}, told: map[string][]string{}, still: map[string]string{}}
	said := map[string]string{} // last message of each test
	now := ""
	var lines []string // of the top-level test that runs
	for line := range strings.Lines(string(log)) {
		line = strings.TrimRight(line, "\r\n")
		lines = append(lines, line)
		if m := running.FindStringSubmatch(line); m != nil {
			now = m[1]
			if top, _, _ := strings.Cut(now, "/"); top != c.unfinished {
				c.unfinished, lines = top, []string{line}
			}
		} else if _, how, ok := strings.Cut(line, boot.StoodStill); ok {
			c.still[c.unfinished] = how
		} else if m := message.FindStringSubmatch(line); m != nil {
			said[now] = m[1]
			if name, value, why, ok := boot.ParseFact(m[1]); ok {
				c.facts[name] = fact{value, why}
			}
		} else if m := finished.FindStringSubmatch(line); m != nil {
			if c.unfinished == m[3] {
				c.unfinished = ""
			}
			switch {
			case m[2] == "SKIP":
				c.skipped = append(c.skipped, skip{m[3], cmp.Or(said[m[3]], "no reason given")})
			case m[1] != "": // a subtest: the test counts
			case m[2] == "PASS":
				c.passed++
				c.passes = append(c.passes, m[3])
			default:
				c.failed++
				c.failures = append(c.failures, m[3])
				c.told[m[3]] = lines
			}
		}
	}
	if c.unfinished != "" {
		c.told[c.unfinished] = lines
	}
	return c
}

// refused returns the skips that the list does not allow on a kernel.
func (c *counts) refused(list skips.List, kernel string, packages []string) []skip {
	on := &skips.Machine{Root: true, Guest: kernel}
	return slices.DeleteFunc(slices.Clone(c.skipped), func(s skip) bool {
		return slices.ContainsFunc(packages, func(pkg string) bool {
			return list.Allows(on, strings.TrimPrefix(pkg, "./"), s.test, s.why)
		})
	})
}

// fatal are kernel messages that explain why a guest ended.
var fatal = regexp.MustCompile(`(?m)^.*(Kernel panic|Out of memory: Killed|BUG: |Oops: |general protection fault).*$`)

// provoked are lockups that a test has asked for.
var provoked = regexp.MustCompile(`(?m)^.*BUG: soft lockup - CPU#\d+ stuck for \d+s! \[` + boot.LockupComm + `:\d+\].*$`)

// trouble is the first fatal message of a kernel that no test has asked for.
func trouble(kernelLog []byte) string {
	return string(bytes.TrimSpace(fatal.Find(provoked.ReplaceAll(kernelLog, nil))))
}

// judge says why a guest failed; "" when it passed.
func judge(exit int, c counts, kernelLog []byte, messages string) string {
	trouble, because := trouble(kernelLog), ""
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
// tests it skipped or ran again. With all, it prints the whole output of the tests.
func printDetails(w io.Writer, r *result, all bool) {
	switch {
	case all && r.test != nil:
		section(w, r.target.name+": tests", r.test, 0)
	case (r.failure != "" || r.said != nil) && r.test != nil:
		section(w, r.target.name+": tests", r.test, testTail)
	}
	if r.failure != "" && r.kernel == nil {
		fmt.Fprintf(w, "\n%s: %s\n", r.target.name, r.failure)
	} else if r.failure != "" {
		lines := kernelTail
		if r.counts.failed > 0 && trouble(r.kernel) == "" {
			lines = healthyTail
		}
		section(w, r.target.name+": kernel", r.kernel, lines)
		fmt.Fprintf(w, "\n%s: %s\nwhole logs: %s\n", r.target.name, r.failure, r.logs)
	}
	for _, s := range r.counts.skipped {
		fmt.Fprintf(w, "%s: skipped %s\n", r.target.name, s)
	}
}

// printFailures prints what each failed test of a guest has said, and what came
// of running it again: last, as a reader of a long log begins at its end.
func printFailures(w io.Writer, r *result) {
	if r.failure != "" {
		for _, test := range slices.Sorted(maps.Keys(r.counts.told)) {
			lines := slices.DeleteFunc(slices.Clone(r.counts.told[test]), isLog)
			section(w, r.target.name+": "+test, []byte(strings.Join(lines, "\n")), failedTail)
		}
		fmt.Fprintf(w, "\n%s: FAILED: %s\n", r.target.name, r.failure)
	}
	for _, s := range r.said {
		fmt.Fprintf(w, "%s: %s\n", r.target.name, s)
	}
}

// isLog reports whether a line is one of a daemon's log, which is in the whole logs.
func isLog(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), `{"level":`) }

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
		switch {
		case r.failure != "":
			verdict = "FAILED"
		case r.said != nil:
			verdict = "ok, again"
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
