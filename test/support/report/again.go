package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/test/support/disturbance"
)

// patience is how long a test waits for a calm machine before it runs again.
const patience = 10 * time.Second

// witness says what became of the machine while tests ran.
type witness interface {
	Between(spans ...disturbance.Span) disturbance.Account
	Calm(limit time.Duration)
	Unseen() disturbance.Switches
}

// again runs tests alone that failed while the machine was disturbed, and
// reports whether every failure of the run is excused by that.
func (r *runner) again(s *summary) (excused bool) {
	if len(s.failures) == 0 {
		return false
	}
	excused = s.excusable()
	for _, at := range s.failures {
		verdict, passed := "", false
		switch final := s.final(at); {
		case final != "":
			verdict = "not run again: " + final
		case len(s.failures) > disturbance.Candidates:
			verdict = fmt.Sprintf("not run again: with %d failures it is not the machine", len(s.failures))
		default:
			verdict, passed = r.judge(s, at)
		}
		excused = excused && passed
		s.verdicts = append(s.verdicts, fmt.Sprintf("%s %s: %s", at.pkg, at.name, verdict))
	}
	return excused
}

// judge decides on one test that failed, and runs it again if that may help.
func (r *runner) judge(s *summary, at test) (verdict string, passed bool) {
	account := r.witness.Between(s.times.spans(at)...)
	why := disturbance.Excuse(account, s.times.beside(at, r.command.onePackage()))
	only := r.only(s, at)
	said := "failed while " + cmp.Or(why, "the machine was calm ("+account.String()+")")
	if len(only) > disturbance.Candidates {
		return fmt.Sprintf("%s; not run again: with %d failures it is not the machine", said, len(only)), false
	}
	if why == "" {
		return r.steady(s, at, said, only)
	}
	for range disturbance.Reruns {
		r.witness.Calm(patience)
		one, passed, err := r.alone(s, at, said, only)
		if one == nil {
			return said + "; not run again: interrupted", false
		}
		if passed || len(only) > 0 {
			s.replace(at, one, len(only) > 0)
		}
		if passed {
			return said + "; passed alone", true
		}
		if len(only) > 0 {
			only = r.only(one, at)
		}
		account = r.witness.Between(one.times.spans(at)...)
		final := one.final(at)
		switch {
		case err != nil:
			return fmt.Sprintf("%s; not run again: %v", said, err), false
		case len(one.failures) != 1 || !one.excusable() || final != "":
			return fmt.Sprintf("%s; alone it ended otherwise: %s", said, cmp.Or(final, "see its output")), false
		case !account.Disturbed:
			return r.steady(s, at, said+"; failed alone on a calm machine as well ("+account.String()+")", only)
		}
		said += "; failed alone while the machine was disturbed (" + account.String() + ")"
	}
	return said + "; not run again: that is enough", false
}

// alone runs a test alone, or some of its subtests; one is nil if the run is interrupted.
func (r *runner) alone(s *summary, at test, said string, only []string) (one *summary, passed bool, err error) {
	if len(r.interrupted) > 0 {
		return nil, false, nil
	}
	fmt.Fprintf(s.w, "\nAgain, alone: %s %s, which %s\n", at.pkg, strings.Join(append([]string{at.name}, only...), " "), said)
	one = r.newSummary(s.w)
	status, err := r.test(r.command.alone(at, only...), one)
	return one, err == nil && status == 0 && one.passedAlone(at), err
}

// A test that failed on a calm machine whose kernel keeps switches from tracers must pass this
// often, and may fail once more meanwhile.
const steadyPasses = 4

// steady runs a test again that failed on a calm machine, or those of its subtests that did, and
// reports whether each is right as a rule. Where the kernel tells tracers all there is no rule:
// what failed has failed. How often each passed is part of the verdict.
func (r *runner) steady(s *summary, at test, said string, only []string) (verdict string, passed bool) {
	switches := r.witness.Unseen()
	if !switches.Kept() {
		return said + "; not run again", false
	}
	said += "; " + switches.String()
	whole := len(only) == 0
	if whole {
		only = []string{at.name}
	}
	passes, fails := map[string]int{}, map[string]int{}
	for left := only; len(left) > 0; {
		part := left
		if whole {
			part = nil
		}
		one, passed, err := r.alone(s, at, said, part)
		switch {
		case one == nil:
			return said + "; not run again: interrupted", false
		case err != nil:
			return fmt.Sprintf("%s; not run again: %v", said, err), false
		}
		failed := r.only(one, at)
		if whole && !passed {
			failed = only
		}
		if !one.excusable() || one.final(at) != "" || len(failed) == 0 && !passed {
			return fmt.Sprintf("%s; alone it ended otherwise: %s", said, cmp.Or(one.final(at), "see its output")), false
		}
		s.replace(at, one, !whole)
		for _, name := range left {
			if slices.Contains(failed, name) {
				fails[name]++
			} else {
				passes[name]++
			}
			if fails[name] > 1 {
				return fmt.Sprintf("%s; %s failed in %d of %d runs alone as well", said, name, fails[name], fails[name]+passes[name]), false
			}
		}
		left = slices.DeleteFunc(slices.Clone(left), func(name string) bool { return passes[name] >= steadyPasses })
	}
	for _, name := range slices.Sorted(slices.Values(only)) {
		said += fmt.Sprintf("; alone %s passed in %d of %d runs", name, passes[name], passes[name]+fails[name])
	}
	return said, true
}

// only are the subtests of a test that failed, if each of them is a test of its own; nil: all of it
// is to run again.
func (r *runner) only(s *summary, at test) (names []string) {
	if r.each == nil || !r.each.MatchString(at.name) {
		return nil
	}
	for _, o := range s.ended {
		name, below := strings.CutPrefix(o.name, at.name+"/")
		if name = topLevel(name); below && o.pkg == at.pkg && o.action == "fail" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// excusable reports whether failed tests are all that is wrong with the run.
func (s *summary) excusable() bool {
	if s.broken {
		return false
	}
	for _, pkg := range s.failed {
		has := func(at test) bool { return at.pkg == pkg }
		if s.endedEarly(pkg) != "" || !slices.ContainsFunc(s.failures, has) {
			return false
		}
	}
	return true
}

// final names what no disturbance excuses in a test that failed, or its package.
func (s *summary) final(at test) string {
	return cmp.Or(s.never[at], s.endedEarly(at.pkg))
}

// endedEarly says why more than tests failed in a package; empty if only they did.
func (s *summary) endedEarly(pkg string) string {
	if what := cmp.Or(s.never[test{pkg: pkg}], s.early[pkg]); what != "" {
		return what
	}
	for _, at := range s.failures {
		if what := s.never[at]; what != "" && at.pkg == pkg {
			return what + " in " + at.name
		}
	}
	return ""
}

// passedAlone reports whether the test ran to its end and passed.
func (s *summary) passedAlone(at test) bool {
	return slices.ContainsFunc(s.ended, func(o outcome) bool { return o.test == at && o.action == "pass" })
}

// replace puts the outcome of the test that ran again in the place of the first one; partly: only
// those of its subtests that ran again.
func (s *summary) replace(at test, again *summary, partly bool) {
	within := func(o outcome) bool {
		if partly {
			return slices.ContainsFunc(again.ended, func(a outcome) bool { return a.test == o.test })
		}
		return o.pkg == at.pkg && (o.name == at.name || strings.HasPrefix(o.name, at.name+"/"))
	}
	s.ended = append(slices.DeleteFunc(s.ended, within), again.ended...)
	if !slices.Contains(s.packages, at.pkg) {
		s.packages = append(s.packages, at.pkg)
	}
}
