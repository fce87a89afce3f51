package detect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// probes is rules over the injector's functions and static probes: %s is its path.
func probes(t *testing.T, yaml string) *camera {
	t.Helper()
	return watch(t, pairRules(t, strings.ReplaceAll(yaml, "INJECT", inject.Build(t))), nil)
}

func (c *camera) pairs(rule string) tracker.PairCounters {
	c.t.Helper()
	all, err := c.kernel.Pairs()
	assert.NilError(c.t, err)
	return all[rule]
}

// between demands a delay from the end of one step to the begin of another.
func between(t *testing.T, o *events.Outlier, from, to inject.Event) {
	t.Helper()
	assert.Check(t, o.StartMono >= from.Start && o.StartMono <= from.End && o.EndMono >= to.Start && o.EndMono <= to.End,
		"%s: from %d to %d; want from %s (%d to %d) to %s (%d to %d)", o.Rule, o.StartMono, o.EndMono, from.Kind, from.Start, from.End, to.Kind, to.Start, to.End)
}

func TestPairInProgram(t *testing.T) {
	c := probes(t, `
rules:
  - name: function
    track: pair
    entry: uprobe:INJECT:inject_pair_sleep
    exit: uretprobe:INJECT:inject_pair_sleep
    key: tid
    threshold: 5ms
    labels: {until: arg0, ret: 'exit.ret:s32'}
    stacks: [kernel, user]
  - name: static
    track: pair
    entry: usdt:INJECT:inject:begin
    exit: {hook: usdt:INJECT:inject:end, when: arg0 == 7}
    key: [{name: number, entry: arg0, exit: arg0}, pid]
    threshold: 5ms
    labels: {what: {field: arg1, as: string}}
  - name: mixed
    track: pair
    entry: usdt:INJECT:inject:begin
    exit: uretprobe:INJECT:inject_pair_end
    key: {name: number, entry: arg0, exit: tid}
    entry_when: arg0 > 1000000000
    threshold: 5ms
`)
	e := inject.Run(t, "pair", "steps", "b7", "+20", "e7", "b8", "+8", "e8")
	list := c.settle()
	assert.Check(t, e[0].Offset != 0, "the semaphore of the static probe was not raised")
	f := only("function", list)
	assert.Assert(t, len(f) == 2, "%d outliers of the function, want 2", len(f))
	between(t, f[0], e[1], e[1])
	assert.Check(t, f[0].Labels["ret"] == int64(-3) && f[0].Labels["until"].(uint64) >= e[1].Start,
		"labels %v", f[0].Labels)
	assert.Check(t, len(f[0].Stacks.User) != 0, "no user stack")
	s := only("static", list)
	assert.Assert(t, len(s) == 1, "%d outliers of the static probes, want 1", len(s))
	between(t, s[0], e[0], e[2])
	assert.Check(t, s[0].Labels["what"] == "what it is about" && s[0].Key["number"] == 7 &&
		s[0].Key["pid"] == uint64(e[0].PID), "key %v, labels %v", s[0].Key, s[0].Labels)
	n := only("mixed", list)
	assert.Check(t, len(n) == 0, "%d outliers of a pair whose entry never holds", len(n))
}

const steps = `
  - name: NAME
    track: pair
    entry: uprobe:INJECT:inject_pair_begin
    exit: uprobe:INJECT:inject_pair_end
    cancel: uprobe:INJECT:inject_pair_cancel
    key: [pid, arg0]
    on_duplicate: NAME
    threshold: 5ms
`

func TestPairDuplicates(t *testing.T) {
	yaml := "rules:\n"
	for _, name := range []string{"restart", "keep", "count"} {
		yaml += strings.ReplaceAll(steps, "NAME", name)
	}
	c := probes(t, yaml)
	//              0     1      2     3      4     5      6     7     8      9     10
	e := inject.Run(t, "pair", "steps", "b1", "+10", "b1", "+10", "e1", "+10", "e1", "b2", "+10", "c2", "e2")
	list := c.settle()
	for _, w := range []struct {
		rule     string
		from, to int
		counters tracker.PairCounters
	}{
		{"restart", 2, 4, tracker.PairCounters{Seen: 1, Cancelled: 1, Replaced: 1}},
		{"keep", 0, 4, tracker.PairCounters{Seen: 1, Cancelled: 1, Kept: 1}},
		{"count", 0, 6, tracker.PairCounters{Seen: 1, Cancelled: 1, Nested: 1}},
	} {
		got := only(w.rule, list)
		if len(got) != 1 {
			t.Errorf("%s: %d outliers, want 1", w.rule, len(got))
			continue
		}
		between(t, got[0], e[w.from], e[w.to])
		assert.Check(t, is.Equal(c.pairs(w.rule), w.counters), "%s: counted", w.rule)
	}
	keys := c.pending(rules.Pair)
	assert.Check(t, len(keys) == 0, "pending: %x", keys)
}

// TestPairStorm begins and ends a few keys on all CPUs at once, in functions
// and in system calls. Every begin is matched, replaced, left out, lost and
// counted, or still pending: the sum is exact.
func TestPairStorm(t *testing.T) {
	const threads, rounds = 4, 60000
	for _, storm := range []string{"storm", "calls"} {
		for _, keys := range []int{1, 3, 40} {
			t.Run(fmt.Sprintf("%s %d", storm, keys), func(t *testing.T) {
				h := hold(t, "pair", storm, fmt.Sprint(threads), fmt.Sprint(rounds), fmt.Sprint(keys))
				c := watch(t, pairRules(t, stormRules(t, storm, uint32(h.PID()))), nil)
				h.LetGo()
				h.Wait()
				c.settle()
				pending := c.pending(rules.Pair)
				sum, kept := c.pairs("restart"), c.pairs("keep")
				t.Logf("restart: %+v, keep: %+v", sum, kept)
				begins := sum.Seen + sum.Replaced + sum.Unsettled + kept.Seen + kept.Kept + kept.Unsettled + uint64(len(pending))
				assert.Check(t, begins == 2*threads*rounds,
					"%d of %d begins are accounted for; pending %x", begins, 2*threads*rounds, pending)
				slices.Sort(pending)
				assert.Check(t, len(slices.Compact(slices.Clone(pending))) == len(pending),
					"keys are pending twice: %x", pending)
			})
		}
	}
}

func stormRules(t *testing.T, storm string, pid uint32) string {
	t.Helper()
	yaml := "rules:\n"
	for _, policy := range []string{"restart", "keep"} {
		rule := `
  - name: POLICY
    track: pair
    entry: {hook: uprobe:INJECT:inject_pair_begin, when: pid == PID}
    exit: {hook: uprobe:INJECT:inject_pair_end, when: pid == PID}
    key: arg0
    on_duplicate: POLICY
    threshold: 1h
`
		if storm == "calls" {
			rule = `
  - name: POLICY
    track: pair
    entry: raw_tracepoint:sys_enter
    exit: raw_tracepoint:sys_exit
    key: '(struct pt_regs)args.regs->di'
    entry_when: [args.id == CALL, pid == PID]
    exit_when: ['(struct pt_regs)args.regs->orig_ax == CALL', pid == PID]
    on_duplicate: POLICY
    threshold: 1h
`
		}
		yaml += strings.NewReplacer("POLICY", policy, "INJECT", inject.Build(t), "PID", fmt.Sprint(pid),
			"CALL", fmt.Sprint(calls(t, "getpriority")[0])).Replace(rule)
	}
	return yaml
}

func TestPairTimeout(t *testing.T) {
	c := probes(t, `
rules:
  - name: stuck
    track: pair
    entry: uprobe:INJECT:inject_pair_begin
    exit: uprobe:INJECT:inject_pair_end
    key: [pid, arg0]
    timeout: 50ms
    labels: {what: {field: arg1, as: string}}
`)
	var e []inject.Event
	var list []*events.Outlier
	for range 5 {
		seen := len(c.settle())
		e = inject.Run(t, "pair", "steps", "b1", "+150", "e1", "b2", "+20", "e2", "b3", "+150", "c3")
		list = c.since(seen)
		if e[5].End-e[3].Start < uint64(50*time.Millisecond) {
			break // the short one was short, by the injector's own clock
		}
	}
	assert.Assert(t, len(list) == 3, "%d outliers, want 3: %+v", len(list), list)
	for i, want := range []events.Cause{events.CauseTimeout, events.CauseAfterTimeout, events.CauseTimeout} {
		o := list[i]
		assert.Check(t, o.Cause == want && o.Labels["what"] == "what it is about" && o.Task.TID == e[0].TID,
			"%s of %+v, labels %v; want %s", o.Cause, o.Task, o.Labels, want)
	}
	d := list[0].DelayNS
	assert.Check(t, d >= (50*time.Millisecond).Nanoseconds(), "timeout after %d ns", d)
	between(t, list[1], e[0], e[2])
}

// TestPairReclaim leaves work behind: of threads that are gone, and of keys that never end.
func TestPairReclaim(t *testing.T) {
	c := probes(t, `
rules:
  - name: thread
    track: pair
    entry: uprobe:INJECT:inject_pair_begin
    exit: uprobe:INJECT:inject_pair_end
    key: [tid, arg0]
    threshold: 100ms
  - name: old
    track: pair
    entry: uprobe:INJECT:inject_pair_begin
    exit: uprobe:INJECT:inject_pair_end
    key: [pid, arg0]
    threshold: 100ms
    forget_after: 1s
`)
	inject.Run(t, "pair", "steps", "b1", "b2", "b3", "e2")
	n, err := c.kernel.Reclaim()
	assert.Check(t, err == nil && n == 2, "reclaimed %d, %v; want the 2 of the thread", n, err)
	c.eventually("old work is forgotten", func() error {
		if _, err := c.kernel.Reclaim(); err != nil {
			return err
		}
		if keys := c.pending(rules.Pair); len(keys) > 0 {
			return fmt.Errorf("pending: %x", keys)
		}
		return nil
	})
	for _, rule := range []string{"thread", "old"} {
		k := c.pairs(rule)
		assert.Check(t, k.Forgotten == 2 && k.Seen == 1, "%s: counted %+v", rule, k)
	}
}

// TestPairSwap replaces rules while work is pending: limits and conditions go on
// at once, other hooks are attached, a rule that is gone reports nothing.
func TestPairSwap(t *testing.T) {
	const rule = `
  - name: NAME
    track: pair
    entry: uprobe:INJECT:inject_pair_begin
    exit: uprobe:INJECT:inject_pair_end
    key: [pid, KEY]
    threshold: LIMIT
`
	list := func(pairs ...string) string {
		return strings.NewReplacer(append([]string{"INJECT", inject.Build(t)}, pairs...)...).Replace("rules:" + rule)
	}
	two := list("NAME", "other", "KEY", "arg0", "LIMIT", "1h") + strings.TrimPrefix(list("NAME", "swapped", "KEY", "arg0", "LIMIT", "1h"), "rules:")
	c := watch(t, pairRules(t, two), nil)
	h := hold(t, "pair", "steps", "b1", "+1000", "e1", "b2", "+100", "e2")
	swap := func(yaml string, want error) {
		t.Helper()
		err := c.kernel.Swap(pairRules(t, yaml))
		assert.Check(t, is.ErrorIs(err, want), "swap: %v, want %v", err, want)
	}
	swap(list("NAME", "swapped", "KEY", "tid", "LIMIT", "10ms"), nil)
	swap(list("NAME", "swapped", "KEY", "arg0", "LIMIT", "1h"), nil)
	h.LetGo()
	c.eventually("work is pending", func() error {
		if len(c.pending(rules.Pair)) == 0 {
			return errors.New("nothing is")
		}
		return nil
	})
	swap(list("NAME", "swapped", "KEY", "arg0", "LIMIT", "10ms"), nil)
	e := h.Wait()
	got := c.settle()
	assert.Assert(t, len(got) == 2 && got[0].Rule == "swapped" && got[1].Rule == "swapped",
		"%d outliers, want 2: %+v", len(got), got)
	between(t, got[0], e[0], e[2])
	between(t, got[1], e[3], e[5])
}

// TestPairHistogram counts the delays of two pairs at the same hooks apart from each other.
func TestPairHistogram(t *testing.T) {
	c := probes(t, `
rules:
  - name: all
    track: pair
    entry: uprobe:INJECT:inject_pair_begin
    exit: uprobe:INJECT:inject_pair_end
    key: [pid, arg0]
    threshold: 1h
    histogram: true
  - name: some
    track: pair
    entry: {hook: uprobe:INJECT:inject_pair_begin, when: arg0 > 2}
    exit: uprobe:INJECT:inject_pair_end
    key: [pid, arg0]
    threshold: 1h
    histogram: {by: cgroup}
  - name: follows
    track: pair
    entry: uprobe:INJECT:inject_pair_begin
    exit: uprobe:INJECT:inject_pair_end
    key: [pid, arg0]
    threshold: {quantile: 0.99, times: 2, floor: 1ms, min_samples: 1000}
    when: {comm: inj-pair}
`)
	inject.Run(t, "pair", "steps", "b1", "+10", "e1", "b2", "e2", "b3", "+20", "e3", "b4", "e4", "b5", "e5")
	all, err := c.kernel.Histograms()
	assert.NilError(t, err)
	for rule, want := range map[string]uint64{"all": 5, "some": 3, "follows": 5} {
		h := all.Rules[rule]
		if h == nil {
			t.Errorf("%s has no histogram", rule)
			continue
		}
		sum := h.All()
		got := sum.Count
		assert.Check(t, got == want, "%s: %d delays counted, want %d", rule, got, want)
	}
}
