package rules

import (
	"errors"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// FuzzLoad: whatever a file holds, it gives either rules within the limits or
// errors that each have a place.
func FuzzLoad(f *testing.F) {
	for _, tt := range badInput {
		f.Add([]byte(tt.yaml))
	}
	f.Add([]byte(rule("wakeup", "when: {comm: ['a*', b?], uid: root, cgroup: /a/**, preempted: true}, stacks: [kernel, user, waker]")))
	f.Add([]byte(rule("offcpu", "when: {state: uninterruptible, not_syscall: [vfork, 'clone*']}, snapshot: {after: 0, burst: 2}")))
	f.Add([]byte(rule("block", "when: {device: vda, op: [read]}, overrides: [{when: {op: flush}, threshold: 1s}], snapshot: false")))
	f.Add([]byte(rule("irq", "when: {irq: [4, 5], name: 'nvme*', not_cpu: 1}, overrides: [{when: {irq: 5}, threshold: 2ms}]")))
	f.Add([]byte(rule("softirq", "when: {vector: [net_rx, timer], phase: raise, cpu: [0, 1]}, stacks: [kernel, user]")))
	for _, tt := range badAdaptive {
		f.Add([]byte(tt.yaml))
	}
	f.Add([]byte(adaptive("quantile: 0.99, times: 1.5, floor: 1ms, ceiling: 1s, window: 1h, min_samples: 1e3", ", histogram: {by: override}")))
	f.Add([]byte(`rules: [{name: a, track: trigger, on: {psi: {cgroup: /a, cpu: ["some 150000 1000000", "full 1ms 2s"]}}, target: {unit: "a.*", last: 1s}}]`))
	f.Add([]byte(`rules: [{name: a, track: trigger, on: {probe: {http: "http://a:1/b", every: 1s}}, threshold: 1ms, timeout: 1s, target: {pid: 4}}]`))
	f.Add([]byte(`rules: [{name: a, track: trigger, on: {kmsg: [hung_task, rcu_stall]}}, {name: b, track: trigger, on: {probe: {tcp: "a:1"}}}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := Parse("f", data, testMachine{})
		if err == nil {
			checkRules(t, rules)
			return
		}
		var all Errors
		assert.Assert(t, errors.As(err, &all) && len(all) != 0 && len(all) <= maxErrors+1,
			"not a good list of errors: %v", err)
		assert.Check(t, rules == nil, "rules beside errors")
		for _, e := range all {
			whole := e.Msg == "file is too large"
			assert.Check(t, e.Pos.File == "f" && e.Msg != "" && (whole || e.Pos.Line >= 1 && e.Pos.Column >= 1),
				"no place or no text: %+v", e)
		}
	})
}

// checkLimits: there is one, and all are within bounds.
func checkLimits(t *testing.T, l Limits, a *Adaptive) {
	t.Helper()
	within := func(d, least, most time.Duration) bool { return d == 0 || d >= least && d <= most }
	assert.Check(t, within(l.Threshold, minDuration, maxDuration) && within(l.Timeout, minTimeout, maxTimeout),
		"bad limits %+v", l)
	if a == nil {
		assert.Check(t, l.Threshold != 0 || l.Timeout != 0, "no limit at all")
		return
	}
	if l.Threshold != 0 || a.Quantile <= minQuantile || a.Quantile >= maxQuantile || a.Times < 1 || a.Times > maxTimes || a.Floor < minDuration ||
		a.Ceiling < a.Floor || a.Ceiling > maxDuration || a.Window < minWindow || a.Window > maxWindow || a.MinSamples < 2 {
		t.Errorf("bad adaptive threshold %+v beside %v", a, l.Threshold)
	}
}

// checkRules verifies what the kernel side relies on.
func checkRules(t *testing.T, rules []Rule) {
	t.Helper()
	assert.Assert(t, len(rules) != 0 && len(rules) <= MaxRules, "%d rules", len(rules))
	facts := Facts{Comm: "postgres", Place: Place{Cgroup: "/a/b"}, Device: "vda", Op: Read, State: OtherState}
	overrides, globs := 0, 0
	check := func(m *Match) {
		m.Matches(&facts)
		globs += len(m.Comm) + len(m.NotComm)
		for _, g := range append(m.Comm, m.NotComm...) {
			assert.Check(t, g != "" && len(g) <= maxCommLen, "comm glob %q", g)
		}
	}
	for i := range rules {
		r := &rules[i]
		if r.Track == Trigger {
			checkTrigger(t, r)
			continue
		}
		checkLimits(t, Limits{r.Threshold, r.Timeout}, r.Adaptive)
		assert.Check(t, r.Name != "" && r.Track != "" && (!r.IsAdaptive() || r.Histogram != nil), "bad rule %+v", r)
		h := r.Histogram
		assert.Check(t, h == nil || h.Classes >= 0 && h.Classes <= maxClasses, "bad histogram %+v", h)
		assert.Check(t, r.Snapshot.Burst >= 1 && r.Snapshot.Every >= minDuration, "bad limit %+v", r.Snapshot)
		check(&r.When)
		overrides += len(r.Overrides)
		for j := range r.Overrides {
			checkLimits(t, Limits{r.Overrides[j].Threshold, r.Overrides[j].Timeout}, r.Overrides[j].Adaptive)
			check(&r.Overrides[j].When)
		}
	}
	assert.Check(t, overrides <= MaxOverrides && globs <= MaxCommGlobs,
		"%d overrides, %d comm globs", overrides, globs)
}

// checkTrigger: there is one source, and what the kernel is told is within its bounds.
func checkTrigger(t *testing.T, r *Rule) {
	t.Helper()
	s := r.Trigger
	assert.Assert(t, s != nil && r.Name != "" && r.Snapshot.Burst >= 1 && r.Snapshot.Every >= minDuration, "bad rule %+v", r)
	set := 0
	for _, is := range []bool{s.PSI != nil, len(s.Kmsg) > 0, s.Probe != nil} {
		if is {
			set++
		}
	}
	assert.Check(t, set == 1 && s.Source() != "", "%d sources: %+v", set, s)
	if s.PSI != nil {
		assert.Check(t, len(s.PSI.Triggers) > 0 && len(s.PSI.Triggers) <= maxPSITriggers, "%+v", s.PSI)
		for _, p := range s.PSI.Triggers {
			assert.Check(t, p.Stall > 0 && p.Stall <= p.Window && p.Window >= minPSIWindow && p.Window <= maxPSIWindow, "%+v", p)
		}
	}
	if p := s.Probe; p != nil {
		assert.Check(t, (p.HTTP == "") != (p.TCP == "") && p.Every >= minEvery && p.Timeout > 0 && p.Timeout <= maxCheck, "%+v", p)
	}
}
