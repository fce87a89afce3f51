package action

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
)

// ofRule makes actions of one rule with limits.
func ofRule(limits *rules.ActionBounds, scripts ...string) (items []Item) {
	for _, s := range scripts {
		it := item(long, sh(s)...)
		it.Owner, it.Limits = it.Outlier.Rule, limits
		items = append(items, it)
	}
	return items
}

const (
	burnForever = "while :; do :; done"
	burnSome    = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
)

// TestRuleLimitsCPU: the second action has what the first one has left, the third nothing.
func TestRuleLimitsCPU(t *testing.T) {
	items := ofRule(&rules.ActionBounds{MaxCPU: time.Second}, burnSome, burnForever, "echo ran")
	of := items[2]
	of.Owner, of.Limits = "", nil // of no rule
	got := runJob(t, Options{MaxCPU: time.Hour}, Job{Dir: t.TempDir(), Items: append(items, of)})
	assert.Check(t, got[0].OK() && got[0].CPU > 0, "%s", got[0].String())
	assert.Check(t, got[1].Short().Result == "over_limit" && strings.Contains(got[1].String(), "over its limit of CPU time of its rule's actions"), "%s", got[1].String())
	assert.Check(t, got[0].CPU+got[1].CPU >= time.Second, "%s and %s", got[0].CPU, got[1].CPU)
	assert.Check(t, got[2].Short().Result == "not_run" && strings.Contains(got[2].String(), "used up their CPU time of 1s"), "%s", got[2].String())
	assert.Check(t, got[3].OK(), "an action of no rule: %s", got[3].String())
}

// TestRuleLimitsMemory: each action may have all of it, in all of its processes, and no more.
func TestRuleLimitsMemory(t *testing.T) {
	hoard := "for i in 1 2 3; do (head -c 30000000 /dev/zero; sleep 1000) | tail -n 1 & done; wait"
	got := runJob(t, Options{MaxMemory: 1 << 40}, Job{Dir: t.TempDir(), Items: ofRule(&rules.ActionBounds{MaxMemory: 64 << 20}, hoard, "true")})
	assert.Check(t, got[0].Short().Result == "over_limit" && strings.Contains(got[0].String(), "over its limit of memory of its rule's actions"), "%s", got[0].String())
	assert.Check(t, got[1].OK(), "%s", got[1].String())
	// An action's own limit, if that is less.
	items := ofRule(&rules.ActionBounds{MaxMemory: 1 << 30}, hoard)
	items[0].Action.MaxMemory = 64 << 20
	own := runJob(t, Options{}, Job{Dir: t.TempDir(), Items: items})[0]
	assert.Check(t, strings.HasSuffix(own.String(), "over its limit of memory"), "%s", own.String())
}

// TestRuleLimitsOutput: what actions print adds up, with a snapshot and without.
func TestRuleLimitsOutput(t *testing.T) {
	print60 := "head -c 60 /dev/zero"
	for _, dir := range []string{t.TempDir(), ""} {
		got := runJob(t, Options{}, Job{Dir: dir, Items: ofRule(&rules.ActionBounds{MaxOutput: 100}, print60, print60, print60)})
		var dropped []int64
		for i := range got {
			assert.Check(t, got[i].OK(), "%s", got[i].String())
			dropped = append(dropped, got[i].Dropped)
		}
		assert.Check(t, is.DeepEqual(dropped, []int64{0, 20, 60}))
	}
}
