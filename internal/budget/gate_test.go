package budget

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// gated drives a gate with so many softirqs per second on each CPU, at 300 ns each.
type gated struct {
	gate Gate
	at   time.Duration
	log  []time.Duration // of changes
}

func (g *gated) run(d, step time.Duration, rates ...float64) {
	for end := g.at + d; g.at < end; {
		g.at += step
		costs := make([]float64, len(rates))
		for i, r := range rates {
			costs[i] = r * 300e-9 * step.Seconds()
		}
		if g.gate.Step(g.at, costs) {
			g.log = append(g.log, g.at)
		}
	}
}

const quarter = 250 * time.Millisecond

func TestGate(t *testing.T) {
	g := gated{gate: Gate{Limit: 0.002}}
	g.run(time.Hour, quarter, 5000, 5000) // 0.15 %
	assert.Check(t, is.Len(g.log, 0), "cheap: they stay")

	g.run(10*time.Second, quarter, 160_000, 20_000)
	assert.Check(t, is.Len(g.log, 1))
	assert.Check(t, g.gate.Closed() && g.log[0] <= time.Hour+2*quarter, "closed at %s", g.log[0])
	g.run(time.Hour, time.Second, 4000, 3000)
	assert.Check(t, g.gate.Closed(), "just below the limit: they would be dear again soon")
	g.run(calm-time.Second, time.Second, 1000, 1000)
	assert.Check(t, g.gate.Closed())
	g.run(2*time.Second, time.Second, 1000, 1000)
	assert.Check(t, !g.gate.Closed() && len(g.log) == 2, "back after a minute: %v", g.log)
}

// TestGateBurst: a burst as short as a latency does not close it, and is forgotten.
func TestGateBurst(t *testing.T) {
	g := gated{gate: Gate{Limit: 0.002}}
	for range 100 {
		g.run(quarter, quarter, 90_000, 0) // 0.1 s of a CPU that does nothing but softirqs, of 1.1 us each
		g.run(10*time.Second, quarter, 1000, 1000)
	}
	assert.Check(t, is.Len(g.log, 0))
}

// TestGateOneCPU: the CPU that serves the network card counts, and not all of them alone.
func TestGateOneCPU(t *testing.T) {
	for busy, closed := range map[float64]bool{50_000: false, 100_000: true} { // 1.5 and 3 % of that CPU
		rates := make([]float64, 256)
		rates[17] = busy
		g := gated{gate: Gate{Limit: 0.002}}
		g.run(time.Minute, quarter, rates...)
		assert.Check(t, is.Equal(closed, g.gate.Closed()), "%g softirqs/s", busy)
	}
}

// TestGateFlapping: a load made to come back whenever the hooks do has them attached for less
// and less of the time.
func TestGateFlapping(t *testing.T) {
	g := gated{gate: Gate{Limit: 0.002}}
	for g.at < 6*time.Hour {
		rate := 200_000.0
		if g.gate.Closed() {
			rate = 0
		}
		g.run(quarter, quarter, rate, rate)
	}
	assert.Check(t, len(g.log) < 40, "%d changes", len(g.log))
}

func TestGateJumps(t *testing.T) {
	g := gated{gate: Gate{Limit: 0.002}}
	g.run(time.Second, quarter, 160_000)
	assert.Assert(t, g.gate.Closed())
	g.run(30*time.Second, time.Second, 0)
	g.at += time.Hour // suspended
	g.run(calm-time.Second, time.Second, 0)
	assert.Check(t, g.gate.Closed(), "nothing is known of the time between")
	g.at -= 3 * time.Hour
	g.run(calm-time.Second, time.Second, 0)
	assert.Check(t, g.gate.Closed())
	g.run(3*time.Second, time.Second, 0)
	assert.Check(t, !g.gate.Closed())

	off := gated{}
	off.run(time.Minute, quarter, 1e6)
	assert.Check(t, is.Len(off.log, 0), "no limit")
}

// TestGateBlind: where nobody counts what hooks would cost, they are tried again, each time after a
// longer wait while it was in vain.
func TestGateBlind(t *testing.T) {
	g := gated{gate: Gate{Limit: 0.001}}
	for range 8 {
		g.run(2*time.Second, quarter, 20_000, 20_000)
		assert.Assert(t, g.gate.Closed())
		for g.gate.Closed() {
			g.run(time.Second, time.Second, 0, 0)
		}
	}
	for i, wait := 0, calm; i < 16; i, wait = i+2, min(2*wait, maxCalm) {
		took := g.log[i+1] - g.log[i]
		assert.Check(t, took >= wait && took < wait+5*time.Second, "%d: closed for %s, want %s", i, took, wait)
	}
}

// TestGatedCost: what a gate has detached costs nothing, and divides nothing.
func TestGatedCost(t *testing.T) {
	w := newWorld(t, 2, 0.01)
	w.rules = append(w.rules, RuleInfo{"softirq", "softirq", 50})
	w.load = func(time.Duration) float64 { return 1 }
	w.run(time.Minute)
	for i := range w.meter.last.Programs {
		if p := &w.meter.last.Programs[i]; p.behind() == SoftirqHooks {
			p.Tracks = []string{"softirq"}
		}
	}
	closed := func(p Part) bool { return p.Kind == SoftirqHooks }
	open, shut := w.meter.Sample(func(Part) bool { return false }), w.meter.Sample(closed)
	saved := busy[Softirqs] * 2 * w.meter.HookPrice(SoftirqHooks, w.meter.last.Programs) / 1e9
	assert.Check(t, saved > 0)
	assert.Check(t, near(open.Total-shut.Total, saved), "saved %g, want %g", open.Total-shut.Total, saved)
	for _, k := range shut.Parts {
		assert.Check(t, k.CPU >= 0 && k.CPU < 1, "%v costs %g", k.Part, k.CPU)
	}
	w.meter.last.Rules = append(w.meter.last.Rules, RuleInfo{"chain", "chain", 50})
	assert.Check(t, near(open.Total, w.meter.Sample(closed).Total), "chains keep them attached")
}

func near(a, b float64) bool { return a-b < 1e-9+b/1000 && b-a < 1e-9+b/1000 }
