package detect

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// chainRule is a rule for the tasks with these names.
func chainRule(name string, threshold time.Duration, from []rules.Origin, to []rules.End, comms ...string) rules.Rule {
	return rules.Rule{
		Name: name, Track: rules.Chain, Threshold: threshold, Stacks: allStacks[:2],
		When: rules.Match{Comm: comms, From: from, Ends: to},
	}
}

// stagesOf writes the way of a chain, and demands that it is whole: each stage
// begins where the one before it ends, and together they are the delay.
func stagesOf(t *testing.T, o *events.Outlier) string {
	t.Helper()
	assert.Assert(t, o.Chain != nil && len(o.Chain.Stages) != 0, "an outlier without a way: %+v", o)
	var names []string
	var sum int64
	for _, s := range o.Chain.Stages {
		assert.Check(t, s.AtNS == sum && s.NS >= 0, "stage %+v begins after %d ns", s, sum)
		sum += s.NS
		names = append(names, strings.TrimSpace(s.Stage+" "+s.What))
	}
	assert.Check(t, sum == o.DelayNS, "stages add up to %d ns, the delay is %d: %+v", sum, o.DelayNS, o.Chain)
	return strings.Join(names, ", ")
}

// A timer wakes a thread, and a real-time hog has its CPU: the stage in which
// the time passed is the wake-up.
func TestChainTimer(t *testing.T) {
	c := watch(t, []rules.Rule{chainRule("chain", threshold, rules.Origins, []rules.End{rules.ToRun}, "inj-wakeup")}, nil)
	injected := injected(t, "wakeup")
	l := c.balance(t, threshold, injected, c.settle(), "chain")
	// A victim that ran late wakes its hog for the next round, and that wakes the
	// victims: also one chain, but not the one that was injected.
	l.other = func(o *events.Outlier) bool { return strings.Count(stagesOf(t, o), "wakeup") > 1 }
	found := l.check(wantOver, wantUnder)
	userStack(t, found)
	for _, p := range found {
		o := p.reports[0]
		stages := stagesOf(t, o)
		last := o.Chain.Stages[len(o.Chain.Stages)-1]
		assert.Check(t, (strings.HasSuffix(stages, "timer, wakeup") || stages == "timer, raise TIMER, softirq TIMER, wakeup") &&
			o.Chain.End == "run", "way %s to %s", stages, o.Chain.End)
		assert.Check(t, last.Task != nil && last.Task.TID == p.TID && last.Task.Comm == "inj-wakeup" &&
			last.NS >= o.DelayNS-tolerance.Nanoseconds(), "of %d ns the wake-up took %+v", o.DelayNS, last)
		kernelStack(t, c, o, "nanosleep")
	}
	c.keptWaiting(t, found, byHog)
}

// A timer wakes a thread, which wakes a second one, which works for a while and
// wakes a third one: one chain.
func TestChainPipe(t *testing.T) {
	const hold, threshold = 5 * time.Millisecond, 4 * time.Millisecond
	c := watch(t, []rules.Rule{
		chainRule("run", threshold, []rules.Origin{rules.FromHRTimer}, []rules.End{rules.ToRun}, "inj-chain-2"),
		chainRule("user", threshold, rules.Origins, []rules.End{rules.ToUser}, "inj-chain-2"),
		chainRule("block", threshold, rules.Origins, []rules.End{rules.ToBlock}, "inj-chain-1"),
	}, nil)
	injected := exact(t, threshold, 40, 0, "chain", "pipe", "3", "50", micros(hold))
	reports := c.settle()
	for rule, last := range map[string]string{"run": "wakeup", "user": "run"} {
		l := c.balance(t, threshold, injected, reports, rule)
		l.slack = tolerance
		_, pardoned := c.pardons()
		for _, p := range l.check(40, 0) {
			o := p.reports[0]
			want := "timer, wakeup, run, user, wakeup, run, user, wakeup"
			if last == "run" {
				want += ", run"
			}
			if got := withoutPreemption(stagesOf(t, o)); got != want {
				// Whose first switch was hidden, and who was preempted, was never seen to return.
				assert.Check(t, !strings.HasPrefix(got, "timer") || pardoned(p.PID), "%s: way %s, want %s", rule, got, want)
				continue
			}
			assert.Check(t, o.Chain.Origin == "timer" && (!o.Chain.Cut || len(o.Chain.Stages) >= 11) &&
				o.Chain.End == rule, "%s: %+v", rule, o.Chain)
			for i, s := range o.Chain.Stages {
				assert.Check(t, i <= 0 || s.Task != nil && s.Task.PID == p.PID &&
					strings.HasPrefix(s.Task.Comm, "inj-chain-"), "%s: stage %+v", rule, s)
			}
			var worked int64 // also while it was preempted
			for _, s := range o.Chain.Stages {
				if s.Task != nil && s.Task.Comm == "inj-chain-1" && (s.Stage == "user" || s.Stage == "preempted") {
					worked += s.NS
				}
			}
			assert.Check(t, worked >= hold.Nanoseconds(),
				"%s: the second thread worked for %v, not %v: %+v", rule, time.Duration(worked), hold, o.Chain.Stages)
		}
	}
	blocked := 0
	for _, o := range reports {
		if o.Rule == "block" {
			stagesOf(t, o)
			blocked++
			assert.Check(t, o.Chain.End == "block" && o.State == "interruptible" && len(o.Raw.Kernel) != 0 && len(o.Raw.User) != 0,
				"%+v, slept %s, %d and %d frames", o.Chain, o.State, len(o.Raw.Kernel), len(o.Raw.User))
		}
	}
	sure := 0 // chains whose threads all slept before
	for i := range injected {
		if must(&injected[i], threshold) {
			sure++
		}
	}
	assert.Check(t, blocked+c.unseenOf(injected) >= sure && blocked != 0,
		"the second thread blocked %d times, want %d", blocked, sure)
	c.carriesNothing()
}

// withoutPreemption leaves out what a busy machine adds.
func withoutPreemption(stages string) string {
	list := slices.DeleteFunc(strings.Split(stages, ", "), func(s string) bool { return s == "preempted" })
	return strings.Join(slices.Compact(list), ", ")
}

// carriesNothing demands that no chain stays with a task that is gone or asleep.
func (c *camera) carriesNothing() {
	c.t.Helper()
	c.leavesNothing(rules.Chain, nil)
}

// More stages than a chain can hold, and more tasks than may carry one origin:
// both are cut and counted.
func TestChainCut(t *testing.T) {
	t.Run("stages", func(t *testing.T) {
		c := watch(t, []rules.Rule{
			chainRule("chain", time.Microsecond, rules.Origins, []rules.End{rules.ToRun}, "inj-chain-*"),
		}, nil)
		injected := inject.Run(t, "chain", "pipe", "9", "20", "0")
		deepest := 0
		for _, o := range c.settle() {
			stagesOf(t, o)
			deepest = max(deepest, len(o.Chain.Stages))
			if o.Task.Comm == "inj-chain-8" && o.Chain.Origin == "timer" && len(o.Chain.Stages) > 8 {
				t.Errorf("the ninth thread by way of %s", stagesOf(t, o))
			}
		}
		k := c.counters().Lost
		assert.Check(t, deepest >= 8 && k["chain_cut"] >= uint64(len(injected))/2,
			"at most %d stages, %d cut", deepest, k["chain_cut"])
		c.carriesNothing()
	})
	t.Run("age", func(t *testing.T) {
		const hold, rounds = 250 * time.Millisecond, 4
		c := watch(t, []rules.Rule{
			chainRule("chain", time.Microsecond, []rules.Origin{rules.FromHRTimer}, []rules.End{rules.ToRun}, "inj-chain-2"),
			chainRule("block", hold, []rules.Origin{rules.FromHRTimer}, []rules.End{rules.ToBlock}, "inj-chain-1"),
		}, &tracker.Options{ChainAge: hold / 5})
		inject.Run(t, "chain", "pipe", "3", strconv.Itoa(rounds), micros(hold))
		late, slept := 0, 0
		for _, o := range c.settle() {
			stagesOf(t, o)
			if o.Rule == "block" {
				slept++ // the end of what is too old is still told, if its task was not preempted before
			} else if o.DelayNS > hold.Nanoseconds() {
				late++
			}
		}
		k := c.counters().Lost
		t.Logf("%d ended asleep, counters %+v", slept, k)
		assert.Check(t, late <= 0 && k["chain_cut"]+k["chain_ended"] >= rounds,
			"%d of %d old chains were followed, counters %+v", late, rounds, k)
		c.carriesNothing()
	})
	t.Run("tasks", func(t *testing.T) {
		const herd, most, rounds = 200, 64, 5
		c := watch(t, []rules.Rule{
			chainRule("chain", time.Microsecond, []rules.Origin{rules.FromHRTimer}, []rules.End{rules.ToRun}, "inj-herd"),
		}, nil)
		injected := inject.Run(t, "chain", "herd", "200", "5", "0")
		byOrigin := map[uint64]int{}
		for _, o := range c.settle() {
			stagesOf(t, o)
			if o.Chain.Stages[1].Task != nil && o.Chain.Stages[1].Task.Comm == "inj-herder" {
				byOrigin[o.StartMono]++
			}
		}
		var woken uint64
		for _, e := range injected {
			woken += e.End - e.Start
		}
		k := c.counters().Lost
		t.Logf("%d woken in %d rounds, carried by origin: %v, counters %+v", woken, len(injected), byOrigin, k)
		for origin, n := range byOrigin {
			assert.Check(t, n <= most, "%d tasks carry the origin %d", n, origin)
		}
		assert.Check(t, len(byOrigin) >= rounds && k["chain_cut"] != 0,
			"%d origins in %d rounds, %d cut", len(byOrigin), rounds, k["chain_cut"])
		c.carriesNothing()
	})
}

// A datagram over loopback begins in the softirq that the sender raises.
func TestChainUDP(t *testing.T) {
	c := watch(t, []rules.Rule{
		chainRule("user", time.Microsecond, []rules.Origin{rules.FromSoftirq}, []rules.End{rules.ToUser}, "inj-chain-udp"),
	}, nil)
	injected := inject.Run(t, "chain", "udp", "2", "100", "0")
	l := c.balance(t, time.Microsecond, injected, c.settle(), "user")
	right, sure := 0, 0
	for _, p := range l.pairs {
		if p.Kind == inject.Over { // the receiver had gone to sleep
			sure++
		}
		for _, o := range p.reports {
			if got := withoutPreemption(stagesOf(t, o)); got != "raise NET_RX, softirq NET_RX, wakeup, run" {
				t.Logf("way %s", got)
				continue
			}
			if o.Chain.Origin == "softirq NET_RX" && o.Chain.End == "user" {
				right++
			}
		}
	}
	assert.Check(t, right+c.unseenOf(injected) >= sure*8/10 && right != 0,
		"%d of %d datagrams are chains from the softirq to user space; strays %d", right, sure, len(l.strays))
	c.carriesNothing()
}
