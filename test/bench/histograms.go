package main

import (
	"context"
	"slices"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// Setups of the cost of histograms: the same trackers and rules each time.
const (
	sHistOff      = "no histograms"
	sHistTracker  = "histograms, per tracker"
	sHistRule     = "histograms, per rule"
	sHistMatch    = "histograms, per rule with comm and uid"
	sHistCall     = "histograms, per system call"
	sHistCgroup   = "histograms, per cgroup"
	sHistOverride = "histograms, per override"

	secHistograms = "Cost of histograms, nanoseconds an event; net: more than without"
)

func histogramSetups() []setup {
	tracks := []rules.Track{rules.Wakeup, rules.OffCPU, rules.Syscall}
	with := func(change func(*rules.Rule)) func(context.Context) (running, error) {
		list := oneRule(tracks...)
		for i := range list {
			change(&list[i])
		}
		return tailcamWith(list)
	}
	userThreads := rules.Match{Thread: []rules.Thread{rules.UserThread}} // decided without match()
	named := rules.Match{Comm: []string{"hackbench", "sender*"}, NotUID: []uint32{65534}}
	by := func(when rules.Match, by rules.Class, overrides ...rules.Override) func(r *rules.Rule) {
		return func(r *rules.Rule) {
			r.When, r.Overrides, r.Histogram = when, overrides, &rules.Histogram{By: by, Classes: 16}
			if by == rules.BySyscall && r.Track == rules.Wakeup {
				r.Histogram = nil // a wake-up is in no call
			}
		}
	}
	return []setup{
		{name: sHistOff, start: func(context.Context) (running, error) {
			return startOptions(oneRule(tracks...), &tracker.Options{NoHistograms: true})
		}},
		{name: sHistTracker, start: with(func(*rules.Rule) {})},
		{name: sHistRule, start: with(by(userThreads, rules.NoClass))},
		{name: sHistMatch, start: with(by(named, rules.NoClass))},
		{name: sHistCall, start: with(by(userThreads, rules.BySyscall))},
		{name: sHistCgroup, start: with(by(userThreads, rules.ByCgroup))},
		{name: sHistOverride, start: with(by(userThreads, rules.ByOverride,
			rules.Override{When: rules.Match{Comm: []string{"postgres"}}, Threshold: 2 * threshold}))},
	}
}

func histogramSetup(name string) bool {
	return slices.ContainsFunc(histogramSetups(), func(s setup) bool { return s.name == name })
}

// histogramRows compares each way to have histograms with having none, within the rounds.
func (b *bench) histogramRows() []row {
	var rows []row
	for _, s := range histogramSetups() {
		for _, hook := range []string{"sched_switch", "sys_exit"} {
			gross := b.gross(s.name, hook)
			without := b.gross(sHistOff, hook)
			if len(gross) == 0 || len(without) == 0 {
				continue
			}
			r := row{section: secHistograms, Name: hook + " " + s.name, Events: b.events(s.name, hook), NsGross: median(gross.values())}
			if s.name != sHistOff {
				more := series{}
				for i, x := range gross {
					more[i] = x - without[i]
				}
				r.NsNet = median(more.values())
				r.compare(b.net(s.name, hook).over(b.net(sHistOff, hook)), hook+" "+sHistOff)
			}
			rows = append(rows, r)
		}
	}
	return rows
}
