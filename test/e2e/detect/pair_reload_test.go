package detect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

// pairAt is a rule for the pairs of an injector with more keys.
func pairAt(t *testing.T, name, more string) string {
	t.Helper()
	return fmt.Sprintf("  - {name: %s, track: pair, entry: 'uprobe:%s:inject_pair_begin', exit: 'uprobe:%[2]s:inject_pair_end', %s}\n",
		name, inject.Build(t), more)
}

// TestPairReload changes hooks again and again while work is always pending: a rule that
// stays reports each piece of it once.
func TestPairReload(t *testing.T) {
	const rounds = 250
	steps := []string{"pair", "steps"}
	for range rounds {
		steps = append(steps, "b1", "+3", "b2", "+3", "e1", "+3", "e2") // both take 6 ms at least
	}
	h := hold(t, steps...)
	stays := pairAt(t, "stays", fmt.Sprintf("key: [pid, arg0], threshold: 5ms, entry_when: pid == %d", h.PID()))
	sets := [][]rules.Rule{}
	for _, others := range []string{
		"", pairAt(t, "other", "key: [pid, arg0], threshold: 1h"), pairAt(t, "other", "key: [arg0, pid], threshold: 1h"),
		pairAt(t, "third", "key: arg0, threshold: 1h, on_duplicate: keep") + pairAt(t, "other", "key: tid, threshold: 1h"),
		"  - {name: exec, track: pair, entry: 'raw_tracepoint:sched_process_fork', exit: 'raw_tracepoint:sched_process_exit', key: tid, threshold: 1h}\n",
	} {
		sets = append(sets, pairRules(t, "rules:\n"+others+stays), pairRules(t, "rules:\n"+stays+others))
	}
	c := watch(t, sets[0], nil)
	_, reports := c.during(h, 10*time.Millisecond, func(n int) error { return c.kernel.Swap(sets[n%len(sets)]) })
	seen := map[uint64]bool{}
	for _, o := range reports {
		assert.Check(t, o.Rule == "stays" && o.DelayNS >= 6e6, "%s reports %d ns", o.Rule, o.DelayNS)
		assert.Check(t, !seen[o.StartMono], "reported twice: %+v", o)
		seen[o.StartMono] = true
	}
	assert.Check(t, len(reports) == 2*rounds, "%d outliers of %d", len(reports), 2*rounds)
	k := c.pairs("stays")
	assert.Check(t, k.Seen == 2*rounds, "counted %+v", k)
	assert.NilError(t, c.kernel.Swap(sets[0]))
	assert.Equal(t, pairPrograms(c), 2)
}

// pairPrograms counts the attached programs of declared pairs.
func pairPrograms(c *camera) (n int) {
	for _, p := range c.kernel.Programs() {
		if strings.HasPrefix(p[0], "pair:") {
			n++
		}
	}
	return n
}

// TestFirstPair: pairs come and go where there was none at the start, and each begins
// with nothing pending.
func TestFirstPair(t *testing.T) {
	idle := rules.Rule{Name: "idle", Track: rules.OffCPU, Threshold: time.Hour}
	c := watch(t, []rules.Rule{idle}, nil)
	for round := range 3 {
		h := hold(t, "pair", "steps", "b1", "+20", "e1", "b2", "+20", "e2", "b3")
		pair := pairRules(t, "rules:\n"+pairAt(t, "pair", fmt.Sprintf("key: [pid, arg0], threshold: 5ms, entry_when: pid == %d", h.PID())))
		assert.NilError(t, c.kernel.Swap(append(slices.Clone(pair), idle)))
		assert.Equal(t, pairPrograms(c), 2)
		before := len(c.settle())
		h.LetGo()
		h.Wait()
		var reports []*events.Outlier
		c.eventually("both are reported", func() error {
			if reports = c.since(before); len(reports) != 2 {
				return fmt.Errorf("round %d: %d outliers, want 2", round, len(reports))
			}
			return nil
		})
		k := c.pairs("pair")
		assert.Check(t, k.Seen == 2, "round %d: counted %+v", round, k)
		assert.NilError(t, c.kernel.Swap([]rules.Rule{idle}))
		assert.Equal(t, pairPrograms(c), 0)
		assert.Check(t, len(c.pending(rules.Pair)) == 0, "round %d: pending after the rule has gone", round)
	}
}
