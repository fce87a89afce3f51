package detect

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// ownUID is a user id that no other run of these tests has.
func ownUID() uint32 { return 300000 + uint32(os.Getpid())%100000 }

// nap makes n sleeps of a length, shared by threads, as the own user.
func nap(t *testing.T, n int, length time.Duration, threads int) []inject.Event {
	t.Helper()
	return inject.RunWith(t, inject.As(int(ownUID())), "syscall", "sleep", strconv.Itoa(n), micros(length), "0", "1", strconv.Itoa(threads))
}

// napRule is about the naps of this run, and nothing else on the machine.
func napRule(t *testing.T, name string, threshold time.Duration) rules.Rule {
	return rules.Rule{Name: name, Track: rules.Syscall, Attach: rules.AttachAll, Threshold: threshold, When: rules.Match{
		UID: []uint32{ownUID()}, Comm: []string{"inj-syscall"}, Syscall: calls(t, "clock_nanosleep"),
	}}
}

// forgetful is a host that teaches nothing before it is asked.
type forgetful struct{ host }

func (forgetful) WalkCgroups(func(uint64, string)) error { return nil }

func delays(reports []*events.Outlier, rule string) []time.Duration {
	var list []time.Duration
	for _, o := range only(rule, reports) {
		list = append(list, time.Duration(o.DelayNS).Round(time.Millisecond))
	}
	return list
}

// A rule with a ratchet fires for records only, while rules are replaced, and
// also where the daemon must decide whether the rule wants it.
func TestRatchet(t *testing.T) {
	needRoot(t)
	const ms = time.Millisecond
	sure, asked := napRule(t, "sure", 4*ms), napRule(t, "asked", 4*ms)
	sure.Ratchet, asked.Ratchet = true, true
	// With or without an override, a rule has one ratchet.
	sure.Overrides = []rules.Override{{When: rules.Match{UID: []uint32{ownUID()}}, Threshold: 6 * ms}}
	asked.When.Cgroup = []string{"/**"}
	table := process.New(nil)
	t.Cleanup(func() { table.Close() })
	list := []rules.Rule{sure, asked}
	c := watch(t, list, &tracker.Options{Cgroups: forgetful{host{table}}})
	var naps []inject.Event
	lengths := []time.Duration{2 * ms, 5 * ms, 10 * ms, 5 * ms, 40 * ms, 20 * ms, 70 * ms, 60 * ms, 120 * ms, 3 * ms, 500 * ms}
	for i, length := range lengths {
		naps = append(naps, nap(t, 1, length, 1)...)
		if i%2 == 0 {
			list = slices.Clone(list)
			slices.Reverse(list)
			assert.NilError(t, c.kernel.Swap(list))
		}
	}
	// Read: counters of what the daemon decides say nothing of what is on its way.
	c.eventually("the last nap, which is a record for both, is read", func() error {
		n := 0
		for _, o := range c.from(0) {
			if o.EndMono > naps[len(naps)-1].Start {
				n++
			}
		}
		if n < 2 {
			return fmt.Errorf("%d read", n)
		}
		return nil
	})
	reports := c.settle()
	for name, least := range map[string]time.Duration{"sure": 6 * ms, "asked": 4 * ms} {
		fired, record := only(name, reports), time.Duration(0)
		t.Logf("rule %s fired for %v", name, delays(reports, name))
		n := len(fired)
		for i := range naps {
			e := &naps[i]
			if len(fired) == 0 || fired[0].StartMono > e.End {
				// No shorter than asked for, it had to fire if that was a record.
				assert.Check(t, lengths[i] <= max(record, least)+tolerance,
					"rule %s did not fire for %v, the record was %v", name, e.Delay(), record)
				continue
			}
			d := time.Duration(fired[0].DelayNS)
			assert.Check(t, fired[0].StartMono >= e.Start && fired[0].EndMono <= e.End && d >= least && d > record,
				"rule %s fired for %v of a nap of %v, the record was %v", name, d, e.Delay(), record)
			record, fired = d, fired[1:]
		}
		k := c.counters().Rules[name]
		assert.Check(t, len(fired) == 0 && k.RecordNS == k.WorstNS && k.Outliers == uint64(n),
			"rule %s: %+v, and %d of no nap", name, k, len(fired))
	}
	assert.Check(t, c.counters().Rules["asked"].Undecided != 0,
		"the daemon had nothing to decide: this proves nothing")

	// Anew.
	assert.NilError(t, c.kernel.ResetRatchet("sure"))
	before := len(reports)
	nap(t, 1, 10*ms, 1)
	nap(t, 1, 8*ms, 1)
	if got := only("sure", c.since(before)); len(got) == 0 || len(got) == 2 && got[1].DelayNS <= got[0].DelayNS {
		t.Errorf("after a reset it fired for %v", delays(got, "sure"))
	}
	assert.Check(t, c.kernel.ResetRatchet("nobody") != nil, "a rule that is not there has a ratchet")
}

// Many threads at once: no record is claimed twice, none is lost.
func TestRatchetRace(t *testing.T) {
	needRoot(t)
	rule := napRule(t, "records", time.Millisecond)
	rule.Ratchet = true
	c := watch(t, []rules.Rule{rule}, nil)
	all := append(nap(t, 64, 20*time.Millisecond, 16), nap(t, 64, 50*time.Millisecond, 16)...)
	reports := c.settle()
	var most time.Duration
	for _, e := range all {
		most = max(most, e.Delay())
	}
	seen := map[int64]bool{}
	var worst int64
	for _, o := range reports {
		assert.Check(t, !seen[o.DelayNS], "%d ns is a record twice", o.DelayNS)
		seen[o.DelayNS] = true
		worst = max(worst, o.DelayNS)
		// Whatever ended before, and was reported, is less.
		for _, p := range reports {
			assert.Check(t, p == o || p.EndMono >= o.StartMono || p.DelayNS < o.DelayNS,
				"%d ns is a record after %d ns", o.DelayNS, p.DelayNS)
		}
	}
	if k := c.counters().Rules["records"]; time.Duration(worst) > most || k.WorstNS != k.RecordNS || k.WorstNS != worst || worst < (49*time.Millisecond).Nanoseconds() {
		t.Errorf("the last record is %v, the longest was %v: %+v", time.Duration(worst), most, k)
	}
	assert.Check(t, len(reports) != 0 && len(reports) <= len(all)/2, "%d records of %d", len(reports), len(all))
	t.Logf("%d records of %d", len(reports), len(all))
}

// A paused rule fires nothing, and its neighbours go on.
func TestPaused(t *testing.T) {
	needRoot(t)
	const length, at = 10 * time.Millisecond, 5 * time.Millisecond
	list := []rules.Rule{napRule(t, "stays", at), napRule(t, "paused", at)}
	c := watch(t, list, nil)
	nap(t, 20, length, 4)
	list = slices.Clone(list)
	list[1].Paused = true
	assert.NilError(t, c.kernel.Swap(list))
	nap(t, 20, length, 4)
	list = slices.Clone(list)
	list[1].Paused = false
	assert.NilError(t, c.kernel.Swap(list))
	nap(t, 20, length, 4)
	c.settle()
	k := c.counters()
	if a, b := k.Rules["stays"].Outliers, k.Rules["paused"].Outliers; a != 60 || b != 40 {
		t.Errorf("60 naps, 20 of them in the pause: the rule that stays fired %d times, the paused one %d", a, b)
	}
}

// Thresholds by thread and by CPU.
func TestThreadAndCPU(t *testing.T) {
	needRoot(t)
	h := hold(t, "syscall", "sleep", "8", "20000", "0", "1", "1")
	var cpus []uint32
	for cpu := range uint32(512) {
		cpus = append(cpus, cpu)
	}
	by := func(name string, m rules.Match) rules.Rule {
		r := rules.Rule{Name: name, Track: rules.Syscall, Attach: rules.AttachAll, Threshold: time.Hour, When: rules.Match{PID: pidOf(h), Syscall: calls(t, "clock_nanosleep")}}
		r.Overrides = []rules.Override{{When: m, Threshold: 5 * time.Millisecond}}
		return r
	}
	pid := uint32(h.PID())
	tid := rules.Match{TID: []uint32{pid + 1, pid + 2, pid + 3}}
	first := rules.Match{TID: pidOf(h)}
	c := watch(t, []rules.Rule{
		by("thread", tid), by("not-thread", rules.Match{NotTID: tid.TID}), by("main", first), by("not-main", rules.Match{NotTID: first.TID}),
		by("cpu", rules.Match{CPU: cpus}), by("not-cpu", rules.Match{NotCPU: cpus}),
	}, nil)
	h.LetGo()
	injected := h.Wait()
	c.settle()
	k := c.counters().Rules
	all, mine := uint64(0), uint64(0)
	for _, e := range injected {
		all++
		if slices.Contains(tid.TID, uint32(e.TID)) {
			mine++
		}
	}
	assert.Assert(t, all != 0, "nothing injected")
	for name, want := range map[string]uint64{
		"thread": mine, "not-thread": all - mine, "main": 0, "not-main": all, "cpu": all, "not-cpu": 0,
	} {
		got := k[name].Outliers
		assert.Check(t, got == want, "%s: %d of %d", name, got, want)
	}
}
