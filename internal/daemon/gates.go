package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/budget"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/pulse"
)

// What gates watch is counted so often, less often while they are closed, and never for
// more than a thousandth of one CPU.
const (
	gateInterval = 250 * time.Millisecond
	gateIdle     = pulse.Calm
	gateShare    = 1000
)

// gated is what a gate watches.
type gated struct {
	gate      *budget.Gate
	hooks     string                   // that it attaches
	key       string                   // of its limit
	count     func() ([]uint64, error) // what passes the hooks, by CPU
	many, few string                   // for the log
}

// watchGate attaches hooks while what passes them is rare enough for them to be cheap.
func (d *daemon) watchGate(ctx context.Context, g *gated) {
	c := &d.cost
	var last []uint64
	for wait := time.Millisecond; ; {
		select {
		case <-ctx.Done():
			return
		case <-pulse.After(wait):
		}
		start := time.Now()
		if c.idle(g.gate) {
			wait, last = gateIdle, nil
			continue
		}
		err := d.survive(guard.Housekeeping, func() error {
			now, err := g.count()
			if err == nil && len(now) == len(last) {
				err = d.stepGate(g, now, last)
			}
			last = now
			return err
		})
		if err != nil && ctx.Err() == nil {
			d.log.Warn("watch "+g.hooks, zap.Error(err))
		}
		wait = gateInterval
		if c.closed(g.gate) {
			wait = gateIdle
		}
		if due := gateShare * time.Since(start); due > wait {
			step := gateInterval
			if due > time.Second {
				step = time.Second
			}
			wait = (due + step - 1).Truncate(step) // when others look as well
		}
	}
}

// gates are all of them. Requires c.mu to look at them.
func (c *cost) gates() []*budget.Gate { return []*budget.Gate{&c.softirqs, &c.locks} }

// shedding lists what is shed, and then what gates have detached. Requires c.mu.
func (c *cost) shedding() []budget.Shed {
	list := c.controller.Shedding()
	for _, g := range c.gates() {
		if g.Closed() {
			list = append(list, g.Shed())
		}
	}
	return list
}

func (c *cost) closed(g *budget.Gate) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return g.Closed()
}

// idle reports whether a gate has no limit, and nothing to undo.
func (c *cost) idle(g *budget.Gate) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return g.Limit <= 0 && !g.Closed()
}

// hookPrice is what detaching the hooks of a gate saves for each that passes them, in seconds.
func (d *daemon) hookPrice(gate budget.Kind) float64 {
	programs, inactive := d.programUses(), d.kernel.Inactive()
	d.mu.Lock()
	needed := budget.Needed(gate, d.pricedRules(inactive))
	d.mu.Unlock()
	if needed {
		return 0
	}
	d.cost.mu.Lock()
	defer d.cost.mu.Unlock()
	return d.cost.meter.HookPrice(gate, programs) / 1e9
}

// stepGate opens or closes a gate, given how much has passed its hooks, by CPU.
func (d *daemon) stepGate(g *gated, now, last []uint64) error {
	c := &d.cost
	price := 0.0
	if !slices.Equal(now, last) { // else it is not asked for
		price = d.hookPrice(g.gate.Kind)
	}
	var costs []float64
	for i := range now {
		if now[i] > 0 { // others may come, but have not
			costs = append(costs, float64(now[i]-min(last[i], now[i]))*price)
		}
	}
	c.mu.Lock()
	changed := g.gate.Step(time.Since(d.start), costs)
	closed, share, limit := g.gate.Closed(), g.gate.Share(), g.gate.Limit
	part, at := g.gate.Shed().Part, linux.Monotonic()
	if changed && closed {
		c.noteShed(part, at, fmt.Sprintf("%s cost %s of all CPUs or ten times that of one, %s is %s", g.hooks, percent(share), g.key, percent(limit)))
		c.steps++
	} else if changed {
		c.noteReturn(part, at)
		c.returns++
	}
	c.mu.Unlock()
	if !changed {
		return nil
	}
	d.change.Lock()
	err := d.rest()
	d.change.Unlock()
	fields := []zap.Field{zap.String("cpu", percent(share)), zap.String("limit", percent(limit))}
	if closed {
		d.log.Info(g.many, fields...)
	} else {
		d.log.Info(g.few, fields...)
	}
	return err
}
