package daemon

import (
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestChain: the stages of a chain come out of the command line and into the
// snapshot, and add up to the delay; what was not followed is among the losses.
func TestChain(t *testing.T) {
	needRoot(t)
	const uid = 64321
	h := newHome(t, rulesFile(entry("handed-on", "chain", "10ms",
		"{uid: "+strconv.Itoa(uid)+", comm: inj-chain-2}", "from: [hrtimer]", "to: [run, user]", "snapshot: {every: 1us, burst: 100}")))
	d := h.start(t)
	const rounds = 5 // two outliers each, but for those that another's wake-up cuts
	n := 0
	for try := 0; n < rounds*8/5; try++ {
		assert.Assert(t, try != 3, "%d outliers in %d rounds", n, try*rounds)
		provoke(t, uid, "chain", "pipe", "3", strconv.Itoa(rounds), "15000")
		n = int(d.status().rule("handed-on").Outliers)
	}
	outliers := settled(t, d, "handed-on", n)
	eventually(t, "a snapshot", func() bool { return len(d.list()) > 0 })
	for i := range outliers {
		o := &outliers[i]
		assert.Assert(t, o.Chain != nil && len(o.Chain.Stages) != 0 && o.Chain.Origin != "", "no chain in %+v", o)
		var sum int64
		for _, s := range o.Chain.Stages {
			sum += s.NS
		}
		assert.Check(t, sum == o.DelayNS, "stages of %d ns, delay %d", sum, o.DelayNS)
	}
	out := d.ok("events", "--rule", "handed-on")
	assert.Check(t, strings.Contains(out, "is woken and waits for a CPU") && strings.Contains(out, "µs  total"),
		"no stages in\n%s", out)
	causes := map[string]bool{}
	for _, l := range d.status().Losses {
		causes[l.Cause] = true
	}
	for _, want := range []string{"chain_cut", "chain_met", "chain_ended", "chain_unseen"} {
		assert.Check(t, causes[want], "no %s among the losses", want)
	}
	list := d.list()
	assert.Assert(t, len(list) != 0, "no snapshot")
	text := readText(t, list[0].Dir, "explain.txt")
	assert.Check(t, strings.Contains(text, "    stages ") && strings.Contains(text, "inj-chain-2["),
		"no stages in\n%s", text)
}
