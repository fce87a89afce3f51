package budget

import (
	"strings"
	"time"
)

// Gate decides whether hooks are attached that some services pass all the time: those of
// softirqs, of which a machine full of packets has one or two for each, and those of contended
// locks. The Controller would notice late: its windows are for what is dear by itself. It is not
// safe for concurrent use.
type Gate struct {
	// Kind is what is shed while it is closed.
	Kind Kind

	// Limit is what the hooks may cost, as a share of the time of all CPUs, and ten
	// times that as a share of one CPU; 0: they are always attached.
	Limit float64

	last   time.Duration // of the last step
	begun  bool
	spent  float64 // above the limit, in seconds; what stays below pays it back
	closed bool
	since  time.Duration // when it has closed or opened last
	fits   time.Duration // since when they would be cheap; valid with fitting
	wait   time.Duration // for which they must
	times  int
	share  float64 // of the last step

	fitting bool
}

const (
	gateBurst   = 0.004 // s: what is spent at once does no harm, say for a second of packets
	gateReturn  = 0.5   // of the limit
	gateOneCPU  = 10    // times the limit, of one CPU
	gateMaxStep = 30 * time.Second
)

// Step takes what the hooks cost since the last step, or would have if they are not
// attached, in CPU seconds for each CPU; 0 where nobody knows, so that they are tried again.
// It reports whether to attach or detach them (see Closed).
func (g *Gate) Step(at time.Duration, costs []float64) (changed bool) {
	took := at - g.last
	steady := g.begun && took > 0 && took <= gateMaxStep
	g.begun, g.last = true, at
	if g.Limit <= 0 { // it may have had one
		changed, g.closed = g.closed, false
		return changed
	}
	if !steady { // after a jump of the clock
		g.spent, g.fitting = 0, false
		return false
	}
	g.share = gateShare(costs) / took.Seconds()
	if g.closed {
		return g.open(at)
	}
	if g.spent = max(0, g.spent+(g.share-g.Limit)*took.Seconds()); g.spent <= gateBurst {
		return false
	}
	switch again := g.times > 0 && at-g.since < soonAgain; {
	case again:
		g.wait = min(2*g.wait, maxCalm)
	default:
		g.wait = calm
	}
	g.closed, g.since, g.spent, g.fitting = true, at, 0, false
	g.times++
	return true
}

// open opens the gate if they would have been cheap for long enough.
func (g *Gate) open(at time.Duration) bool {
	if g.share >= gateReturn*g.Limit {
		g.fitting = false
		return false
	}
	if !g.fitting {
		g.fits, g.fitting = at, true
	}
	if at-g.fits < g.wait {
		return false
	}
	g.closed, g.since = false, at
	return true
}

// gateShare is the share of all CPUs, or a tenth of the busiest one's.
func gateShare(costs []float64) float64 {
	var sum, most float64
	for _, c := range costs {
		sum += c
		most = max(most, c)
	}
	return max(sum/float64(max(len(costs), 1)), most/gateOneCPU)
}

// Closed reports whether the hooks are detached.
func (g *Gate) Closed() bool { return g.closed }

// Share is what the hooks cost in the last step, or would have, as Limit has it.
func (g *Gate) Share() float64 { return g.share }

// Shed is the part that is shed while the gate is closed.
func (g *Gate) Shed() Shed {
	return Shed{Part: Part{Kind: g.Kind}, Since: g.since, Wait: g.wait, Times: g.times}
}

// hooks are what the gates attach and detach, by how their programs' names begin.
var hooks = map[Kind]string{SoftirqHooks: "softirq_", LockHooks: "contention_"}

// behind is the gate that a program is behind; empty: none.
func (p *Program) behind() Kind {
	for kind, begin := range hooks {
		if strings.HasPrefix(p.Name, begin) {
			return kind
		}
	}
	return ""
}

// Needed reports whether rules need the hooks of a gate for what others do: those
// of chains, those of softirqs. To detach them would save nothing.
func Needed(gate Kind, rules []RuleInfo) bool {
	if gate != SoftirqHooks {
		return false
	}
	for i := range rules {
		if rules[i].Track == "chain" {
			return true
		}
	}
	return false
}

// HookPrice is the price of one event with the programs of a gate attached, in nanoseconds: of a
// softirq, or of a wait for a lock.
func (m *Meter) HookPrice(gate Kind, programs []Program) (ns float64) {
	for i := range programs {
		if p := &programs[i]; p.behind() == gate {
			k := m.price(p)
			if gate == SoftirqHooks {
				ns += k.total() * k.per
			} else {
				ns += k.total()
			}
		}
	}
	return ns
}
