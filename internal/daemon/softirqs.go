package daemon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/budget"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/rules"
)

// Softirqs are counted so often, less often while they have no hooks, and never for
// more than a thousandth of one CPU.
const (
	softirqInterval = 250 * time.Millisecond
	softirqIdle     = pulse.Calm
	softirqShare    = 1000
)

// watchSoftirqs attaches the hooks of softirqs while these are few enough to be cheap.
func (d *daemon) watchSoftirqs(ctx context.Context) error {
	c := &d.cost
	if !d.kernel.SamplesSoftirqs() {
		d.log.Info("the hooks of softirqs stay attached: this kernel tells of softirqs in no other way")
		return nil
	}
	var last []uint64
	for wait := time.Millisecond; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-pulse.After(wait):
		}
		start := time.Now()
		if c.gateIdle() {
			wait, last = softirqIdle, nil
			continue
		}
		err := d.survive(guard.Housekeeping, func() error {
			now, err := readSoftirqs()
			if err == nil && len(now) == len(last) {
				err = d.stepGate(now, last)
			}
			last = now
			return err
		})
		if err != nil && ctx.Err() == nil {
			d.log.Warn("watch softirqs", zap.Error(err))
		}
		wait = softirqInterval
		if c.gateClosed() {
			wait = softirqIdle
		}
		if due := softirqShare * time.Since(start); due > wait {
			step := softirqInterval
			if due > time.Second {
				step = time.Second
			}
			wait = (due + step - 1).Truncate(step) // when others look as well
		}
	}
}

func (c *cost) gateClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gate.Closed()
}

// gateIdle reports whether there is no limit, and nothing to undo.
func (c *cost) gateIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gate.Limit <= 0 && !c.gate.Closed()
}

// stepGate opens or closes the gate of softirqs, given how many there have been, by CPU.
func (d *daemon) stepGate(now, last []uint64) error {
	c := &d.cost
	programs, inactive := d.programUses(), d.kernel.Inactive()
	d.mu.Lock()
	needed := budget.Needed(d.pricedRules(inactive))
	d.mu.Unlock()
	c.mu.Lock()
	price := c.meter.SoftirqPrice(programs) / 1e9
	if needed {
		price = 0 // to detach them would save nothing
	}
	var costs []float64
	for i := range now {
		if now[i] > 0 { // others may come, but have not
			costs = append(costs, float64(now[i]-min(last[i], now[i]))*price)
		}
	}
	changed := c.gate.Step(time.Since(d.start), costs)
	closed, share := c.gate.Closed(), c.gate.Share()
	part, at := c.gate.Shed().Part, linux.Monotonic()
	if changed && closed {
		why := fmt.Sprintf("the hooks of softirqs cost %s of all CPUs or ten times that of one, budget.softirqs is %s",
			percent(share), percent(c.gate.Limit))
		c.noteShed(part, at, why)
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
	fields := []zap.Field{zap.String("cpu", percent(share)), zap.String("limit", percent(d.now.Load().Budget.Softirqs))}
	if closed {
		d.log.Info("too many softirqs for hooks: from here on they are sampled", fields...)
	} else {
		d.log.Info("few softirqs: their hooks are attached again", fields...)
	}
	return err
}

// gatedRules lists the rules that cannot fire without the hooks of softirqs. Requires c.mu.
func (c *cost) gatedRules(list []rules.Rule) (names []string) {
	if !c.gate.Closed() {
		return nil
	}
	for i := range list {
		if list[i].Track == rules.Softirq {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// readSoftirqs counts the softirqs of each CPU.
func readSoftirqs() ([]uint64, error) {
	text, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		return nil, err
	}
	return parseSoftirqs(text), nil
}

func parseSoftirqs(text []byte) (counts []uint64) {
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) < 2 || !bytes.HasSuffix(f[0], []byte(":")) {
			continue // names of the CPUs
		}
		for i, field := range f[1:] {
			if i == len(counts) {
				counts = append(counts, 0)
			}
			n, _ := strconv.ParseUint(string(field), 10, 64)
			counts[i] += n
		}
	}
	return counts
}
