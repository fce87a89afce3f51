package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/test/support/disturbance"
	"github.com/tailcam/tailcam/test/vm/boot"
)

const (
	reboots  = 2                // for tests that failed, at most
	patience = 10 * time.Second // to wait for a calm machine before each
)

// witness says what became of the machine while guests ran.
type witness interface {
	Between(spans ...disturbance.Span) disturbance.Account
	Calm(limit time.Duration)
}

// again boots guests once more, one by one, whose tests failed while the
// machine was disturbed or the guest stood still, and runs only these tests. The rules are those of
// test/support/report.
func again(ctx context.Context, d dirs, p map[*arch]*payload, opts *options, machine witness, results []*result) {
	for _, r := range results {
		r.again(machine, results, func(tests []string, name string) *result {
			one := &result{target: r.target, logs: filepath.Join(d.logs, name)}
			one.target.share, one.target.run = nil, exactly(tests)
			some := *opts
			some.run = ""
			fmt.Printf("vm: %s: again, alone: %s\n", r.target.name, strings.Join(tests, " "))
			if err := one.prepareAndRun(ctx, d, p[r.target.arch], &some); err != nil {
				one.failure = err.Error()
			}
			return one
		})
	}
}

// again boots until every failed test passed, one failed on a calm machine, or
// it has been enough.
func (r *result) again(machine witness, all []*result, boot func(tests []string, name string) *result) {
	if r.failure == "" {
		return
	}
	last, beside := r, slices.ContainsFunc(all, r.beside)
	for i := range reboots {
		if final := last.final(); final != "" {
			r.say("not booted again: " + final)
			return
		}
		failed := last.counts.failures
		for _, test := range failed {
			account := machine.Between(last.clock.spans[test])
			why := cmp.Or(disturbance.Excuse(account, beside), last.counts.stoodStill(test))
			if why == "" {
				r.say(fmt.Sprintf("%s failed while the machine was calm (%s)", test, account))
				return
			}
			r.say(test + " failed while " + why)
		}
		machine.Calm(patience)
		last, beside = boot(failed, fmt.Sprintf("%s-again-%d", r.target.name, i+1)), false
		if last.failure == "" && sameTests(failed, last.counts.passes) {
			r.say(strings.Join(failed, ", ") + " passed alone")
			r.failure = r.refused
			r.counts.passed, r.counts.failed = r.counts.passed+r.counts.failed, 0
			r.counts.passes, r.counts.failures = slices.Concat(r.counts.passes, r.counts.failures), nil
			return
		}
		r.say(fmt.Sprintf("alone: %s; logs: %s", cmp.Or(last.failure, "other tests ran"), last.logs))
		if last.failure == "" {
			return
		}
	}
	r.say("not booted again: that is enough")
}

// stoodStill says how the guest stood still while a test ran; empty: it did not.
func (c *counts) stoodStill(test string) string {
	if how := c.still[test]; how != "" {
		return boot.StoodStill + how
	}
	return ""
}

func sameTests(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func (r *result) say(what string) {
	r.said = append(r.said, what)
}

// onlyTests matches the failure of a guest in which tests failed, and no more.
var onlyTests = regexp.MustCompile(`^\d+ tests failed$`)

// final says why a guest that failed is not booted again, whatever disturbed the machine.
func (r *result) final() string {
	what := disturbance.Never(string(r.test))
	switch {
	case !onlyTests.MatchString(r.failure):
		return r.failure
	case slices.Contains(r.target.qemu, "-icount"):
		return "its clock stands still while the host is busy"
	case what != "":
		return what
	case len(r.counts.failures) > disturbance.Candidates:
		return fmt.Sprintf("with %d failures it is not the machine", len(r.counts.failures))
	}
	return ""
}

// beside reports whether the other guest ran at the same time.
func (r *result) beside(other *result) bool { return r != other && r.span.Overlaps(other.span) }
