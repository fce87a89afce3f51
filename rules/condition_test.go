package rules

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestCondition(t *testing.T) {
	lock := Verdict{Rule: "wakeup", Cause: "lock", By: "mariadbd (42)", ByKind: "task", Confidence: "inferred", Share: 0.8, Delay: 20 * time.Millisecond}
	unknown := Verdict{Rule: "manual"}
	for _, c := range []struct {
		name          string
		c             *Condition
		lock, unknown bool
	}{
		{"none", nil, true, true},
		{"cause", &Condition{Cause: []string{"irq", "lock"}}, true, false},
		{"another cause", &Condition{Cause: []string{"irq"}}, false, false},
		{"not the cause", &Condition{NotCause: []string{"lock"}}, false, true},
		{"culprit", &Condition{By: []string{"mariadb*"}, ByKind: []string{"task"}}, true, false},
		{"any culprit", &Condition{By: []string{"*"}}, true, false},
		{"another culprit", &Condition{By: []string{"mariadb*"}, ByKind: []string{"device"}}, false, false},
		{"share", &Condition{MinShare: 0.8}, true, false},
		{"more share", &Condition{MinShare: 0.81}, false, false},
		{"delay", &Condition{MinDelay: 20 * time.Millisecond}, true, false},
		{"more delay", &Condition{MinDelay: 21 * time.Millisecond}, false, false},
		{"confidence", &Condition{Confidence: []string{"seen", "inferred"}}, true, false},
		{"more confidence", &Condition{Confidence: []string{"seen"}}, false, false},
		{"no guess", &Condition{NotConfidence: []string{"guess"}}, true, true},
		{"rule", &Condition{Rule: []string{"wake*", "manual"}}, true, true},
		{"not the rule", &Condition{NotRule: []string{"manual"}}, true, false},
	} {
		assert.Check(t, c.c.Matches(&lock) == c.lock, "%s: a verdict", c.name)
		assert.Check(t, c.c.Matches(&unknown) == c.unknown, "%s: no verdict", c.name)
	}
}

func TestSharedActions(t *testing.T) {
	set := func(files ...string) ([]SharedAction, map[string]Errors) {
		var list []source
		for i, f := range files {
			list = append(list, source{file: string(rune('a' + i)), data: []byte(f), machine: testMachine{}})
		}
		got, errs := readSources(list)
		return got.actions, errs
	}
	got, errs := set("actions: [{run: /bin/send, on: [trigger, snapshot], every: 1h, per: [rule, culprit], on_failure: stop, max_memory: 64MiB}]",
		"rules: [{name: a, track: block, threshold: 1ms}]\nactions:\n- run: /bin/save\n  if: {rule: 'a*'}")
	assert.Assert(t, !anyErrors(errs), "%v", errs)
	send := Action{
		Run: []string{"/bin/send"}, Timeout: 30 * time.Second, On: OnTrigger, StopOnFailure: true, ActionBounds: ActionBounds{MaxMemory: 64 << 20},
		Limit: &ActionLimit{Every: time.Hour, Burst: 1, Per: []ActionKey{PerRule, PerCulprit}},
	}
	again := send
	again.On = OnSnapshot
	save := Action{Run: []string{"/bin/save"}, Timeout: 30 * time.Second, On: OnSnapshot, If: &Condition{Rule: []string{"a*"}}}
	assert.DeepEqual(t, got, []SharedAction{
		{send, Position{"a", 1, 11}}, {again, Position{"a", 1, 11}}, {save, Position{"b", 3, 3}},
	})

	_, errs = set("actions: [{run: /bin/nothing}]", "actions: []")
	assert.Check(t, len(errs["a"]) == 1 && len(errs["b"]) == 1, "%v", errs)
}

// TestActionLimits: a rule's limits, of its own, of a trigger, and of a layer.
func TestActionLimits(t *testing.T) {
	base := source{file: "a", machine: testMachine{}, data: []byte(`rules:
- {name: a, track: block, threshold: 1ms, action_limits: {max_cpu: 30s}, actions: [{run: /bin/save, max_cpu: 30s}, {run: /bin/save}]}
- {name: b, track: trigger, on: oom, action_limits: {max_memory: 256MiB, max_output: 64KiB}, actions: [{run: /bin/save}]}
`)}
	layer := source{file: "b", machine: testMachine{}, data: []byte("rules: [{extend: a, action_limits: {max_cpu: 1m, max_output: 1KiB}}]")}
	got, errs := readSources([]source{base, layer})
	assert.Assert(t, !anyErrors(errs), "%v", errs)
	assert.DeepEqual(t, got.rules[0].ActionLimits, &ActionBounds{MaxCPU: time.Minute, MaxOutput: 1 << 10})
	assert.DeepEqual(t, got.rules[1].ActionLimits, &ActionBounds{MaxMemory: 256 << 20, MaxOutput: 64 << 10})
	assert.Check(t, len(got.rules[0].Actions) == 2 && got.rules[0].Actions[0].MaxCPU == 30*time.Second && got.rules[0].Actions[1].MaxCPU == 0)
}
