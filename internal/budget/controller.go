package budget

import (
	"slices"
	"time"
)

const (
	aim         = 0.9  // of the budget: what is shed brings the cost below it
	returnBelow = 0.7  // of the budget: the cost with a part that comes back
	negligible  = 0.02 // of the budget: a part that costs less is not shed for it, unless it is a rule
	calm        = time.Minute
	maxCalm     = 32 * time.Minute
	sustained   = 2                // windows above the budget before anything is shed
	soonAgain   = 10 * time.Minute // shed again so soon after its return, a part waits twice as long

	// Prices are measured again when they are older than this: always, when they
	// decide soon, and before something is shed.
	oldPrices, agingPrices = 5 * time.Minute, time.Minute
)

// Controller keeps the cost within a budget. It is not safe for concurrent use.
type Controller struct {
	// CPU is the budget as a share of the time of all CPUs; 0: none.
	CPU float64

	parts map[Part]*state
	last  time.Duration // of the last sample
	begun bool
	above int // windows in a row above the budget
}

type state struct {
	shed     bool
	since    time.Duration // when it was shed last, or came back
	wait     time.Duration // for which it must have fitted before it comes back
	fits     time.Duration // since when it fits; valid with fitting
	fitting  bool
	returned bool // it was shed before
	times    int
}

// Decision is what to do after a sample, in this order.
type Decision struct {
	// Measure the prices and call Step again with the same window's counters: they
	// are too old to act on. Nothing else is set then.
	Measure bool
	Shed    []Cost // in the order of shedding
	Return  []Cost
	// Over: the cost stays above the budget, and nothing that could be shed is left.
	Over bool
}

// Step decides after a window. It notes its decision as carried out.
func (c *Controller) Step(s *Sample) Decision {
	if c.CPU <= 0 {
		return Decision{}
	}
	c.forget(s.Parts)
	if !c.steady(s.At) {
		return Decision{}
	}
	limit := c.CPU * float64(max(s.CPUs, 1))
	over := s.Total > limit
	fits := c.fitting(s, limit)
	if s.CanMeasure && (s.PriceAge >= oldPrices || s.PriceAge >= agingPrices && s.Total > limit/2 ||
		s.PriceAge >= Window/2 && (over && c.above+1 >= sustained || fits != nil)) {
		return Decision{Measure: true}
	}
	c.last = s.At
	if !over {
		c.above = 0
	} else if c.above++; c.above >= sustained {
		c.above = 0
		return c.shed(s, limit)
	}
	if fits == nil {
		return Decision{}
	}
	p := c.parts[fits.Part]
	p.shed, p.since, p.returned, p.fitting = false, s.At, true, false
	return Decision{Return: []Cost{*fits}}
}

// steady reports whether the sample follows the last one. After a jump of the
// clock, what fitted before is not known to have fitted meanwhile.
func (c *Controller) steady(at time.Duration) bool {
	gap := at - c.last
	if c.begun && gap >= 0 && gap <= 3*Window {
		return true
	}
	first := !c.begun
	c.begun, c.last, c.above = true, at, 0
	for _, p := range c.parts {
		p.fitting, p.since = false, at
	}
	return first
}

// forget drops parts that are gone, such as rules after a reload.
func (c *Controller) forget(parts []Cost) {
	if c.parts == nil {
		c.parts = map[Part]*state{}
	}
	for p := range c.parts {
		if !slices.ContainsFunc(parts, func(k Cost) bool { return k.Part == p }) {
			delete(c.parts, p)
		}
	}
}

// fitting finds the part that comes back now: of those that would have fitted for
// long enough, the one that is worth most. Nil: none.
func (c *Controller) fitting(s *Sample, limit float64) (best *Cost) {
	for _, k := range order(s.Parts) {
		p := c.parts[k.Part]
		if p == nil || !p.shed {
			continue
		}
		if s.Total+k.CPU >= returnBelow*limit {
			p.fitting = false
			continue
		}
		if !p.fitting {
			p.fits, p.fitting = s.At, true
		}
		if s.At-p.fits >= p.wait && s.At-p.since >= p.wait {
			best = &k
		}
	}
	return best
}

// shed takes parts in their order until the cost is below the budget. Rules come
// in a step of their own, when it is known what the others have saved. They go
// even if they cost nothing by themselves: a tracker costs until the last of its
// rules is gone.
func (c *Controller) shed(s *Sample, limit float64) (d Decision) {
	excess := s.Total - aim*limit
	for _, k := range order(s.Parts) {
		p := c.parts[k.Part]
		if p != nil && p.shed || k.Part.Kind != Rule && k.CPU < negligible*limit {
			continue
		}
		if excess <= 0 || k.Part.Kind == Rule && len(d.Shed) > 0 && d.Shed[0].Part.Kind != Rule {
			break
		}
		if p == nil {
			p = &state{}
			c.parts[k.Part] = p
		}
		again := p.returned && s.At-p.since < soonAgain
		p.wait = max(calm, p.wait)
		if again {
			p.wait = min(2*p.wait, maxCalm)
		} else if p.returned {
			p.wait = calm
		}
		p.shed, p.since, p.fitting = true, s.At, false
		p.times++
		excess -= k.CPU
		d.Shed = append(d.Shed, k)
	}
	d.Over = len(d.Shed) == 0
	return d
}

// Shed is a part that is shed now.
type Shed struct {
	Part  Part
	Since time.Duration // on the clock of the samples
	Wait  time.Duration // for which it must fit before it comes back
	Times int           // that it was shed
}

// IsShed reports whether a part is shed now.
func (c *Controller) IsShed(p Part) bool { return c.parts[p] != nil && c.parts[p].shed }

// Shedding lists what is shed now, in the order of shedding.
func (c *Controller) Shedding() []Shed {
	var costs []Cost
	for p, s := range c.parts {
		if s.shed {
			costs = append(costs, Cost{Part: p})
		}
	}
	var list []Shed
	for _, k := range order(costs) {
		s := c.parts[k.Part]
		list = append(list, Shed{k.Part, s.since, s.wait, s.times})
	}
	return list
}
