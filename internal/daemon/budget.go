package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/budget"
	"github.com/tailcam/tailcam/internal/eventcost"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// priceSample is how long programs are measured for their prices.
const priceSample = 200 * time.Millisecond

// cost is what tailcam costs and what it sheds for that. Its methods may be called
// from several goroutines at once.
type cost struct {
	mu                sync.Mutex
	controller        budget.Controller
	softirqs, locks   budget.Gate
	meter             *budget.Meter
	sample            *budget.Sample // of the last window; nil: none yet
	over              bool           // nothing is left to shed
	steps             uint64
	returns           uint64
	memory            budget.Memory
	used, maps, rings int64 // bytes; maps have the rings, too
	scaled            bool  // the meter knows the speed of this machine
	scaledAt          time.Duration
	past              []interval
	spent             map[string]*api.ProgramCost // by program; guarded by mu

	// As told to the kernel side; guarded by daemon.change.
	resting []rules.Track
	less    bool // anything is shed

	gated []string // rules that wait for the gate
}

// interval is when a part was shed, in nanoseconds of CLOCK_MONOTONIC.
type interval struct {
	part     budget.Part
	from, to uint64 // to 0: it still is
	why      string
}

const maxIntervals = 256

func (c *cost) isShed(p budget.Part) bool {
	behind := func(g *budget.Gate) bool { return g.Kind == p.Kind && g.Closed() }
	return c.controller.IsShed(p) || slices.ContainsFunc(c.gates(), behind)
}

// noteShed and noteReturn keep when a part was shed. They require c.mu.
func (c *cost) noteShed(p budget.Part, at uint64, why string) {
	c.past = append(c.past, interval{part: p, from: at, why: why})
	c.past = c.past[max(len(c.past)-maxIntervals, 0):]
}

func (c *cost) noteReturn(p budget.Part, at uint64) {
	for i := range c.past {
		if c.past[i].part == p && c.past[i].to == 0 {
			c.past[i].to = at
		}
	}
}

// spend adds a window to what the programs have cost.
func (c *cost) spend(s *budget.Sample) {
	if c.spent == nil {
		c.spent = map[string]*api.ProgramCost{}
	}
	for _, p := range c.spent {
		p.CPU = 0
	}
	for i := range s.Programs {
		p := &s.Programs[i]
		sum := c.spent[p.Name]
		if sum == nil {
			sum = &api.ProgramCost{Program: p.Name}
			c.spent[p.Name] = sum
		}
		ns := int64(p.CPU * float64(s.Length.Nanoseconds()))
		sum.CPU += p.CPU / float64(max(s.CPUs, 1)) // programs of declared pairs may share a name
		if sum.Measured = p.Measured; p.Measured {
			sum.MeasuredNS += ns
		} else {
			sum.AssumedNS += ns
		}
	}
}

// heldRules lists the rules that are shed.
func (c *cost) heldRules() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.controller.Shedding() {
		if s.Part.Kind == budget.Rule {
			names = append(names, s.Part.Name)
		}
	}
	return append(names, c.gated...)
}

// openBudget sets the heap limit and measures the first prices.
func (d *daemon) openBudget() error {
	c := &d.cost
	c.controller.CPU = d.cfg.Budget.CPU
	c.softirqs.Kind, c.softirqs.Limit = budget.SoftirqHooks, d.cfg.Budget.Softirqs
	c.locks.Kind, c.locks.Limit = budget.LockHooks, d.cfg.Budget.Locks
	c.meter = budget.NewMeter(true)
	d.limitHeap(d.cfg.Budget.Memory)
	return nil
}

// limitHeap limits memory as configured, and with it the heap of this process to what the maps leave.
func (d *daemon) limitHeap(configured int64) {
	c := &d.cost
	maps, rings := d.mapBytes(), d.ringBytes()
	memory := budget.MemoryLimit(configured, maps, rings)
	c.mu.Lock()
	same := c.maps == maps && c.rings == rings && c.memory.Limit == memory
	c.maps, c.rings, c.memory.Limit = maps, rings, memory
	c.mu.Unlock()
	if same || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := budget.HeapLimit(memory, maps, rings)
	if limit <= 0 {
		debug.SetMemoryLimit(math.MaxInt64)
		return
	}
	debug.SetMemoryLimit(limit)
	if maps+limit > memory {
		d.log.Warn("budget.memory is too small for the kernel side's maps, and the history that is read from them", zap.Int64("maps_bytes", maps),
			zap.Int64("budget_bytes", memory), zap.Int64("heap_limit_bytes", limit),
			zap.String("to_change", "lower recorder.size or capacity, or raise budget.memory"))
	}
}

// keepBudget keeps the cost within the budget.
func (d *daemon) keepBudget(ctx context.Context) error {
	turn := func(do func() error) {
		if err := d.budgeter.do(func() error { return d.survive(guard.Housekeeping, do) }); err != nil && ctx.Err() == nil {
			d.log.Warn("keep the budget", zap.Error(err))
		}
	}
	turn(func() error { return d.readCost(ctx) })
	turn(func() error { return d.measurePrices(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pulse.After(budget.Window):
			turn(func() error { return d.readCost(ctx) })
		}
	}
}

// readCost ends a window: it counts, decides and carries out.
func (d *daemon) readCost(ctx context.Context) error {
	r, err := d.reading()
	if err != nil {
		return err
	}
	d.checkMemory(r.At)
	c := &d.cost
	step := func() (decision budget.Decision) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sample = c.meter.Sample(c.isShed)
		if decision = c.controller.Step(c.sample); !decision.Measure {
			c.spend(c.sample)
		}
		return decision
	}
	c.mu.Lock()
	ok := c.meter.Advance(r)
	old := c.scaled && r.At-c.scaledAt >= speedAge
	c.mu.Unlock()
	if old {
		d.scalePrices()
	}
	if !ok {
		return nil
	}
	decision := step()
	if decision.Measure {
		if err := d.measurePrices(ctx); err != nil {
			return err
		}
		decision = step()
	}
	return d.carryOut(&decision)
}

// carryOut sheds and returns parts, and logs each.
func (d *daemon) carryOut(decision *budget.Decision) error {
	c := &d.cost
	c.mu.Lock()
	share, limit := c.sample.Share(), c.controller.CPU
	was := c.over
	c.over = decision.Over
	c.steps += uint64(len(decision.Shed))
	c.returns += uint64(len(decision.Return))
	now := linux.Monotonic()
	why := fmt.Sprintf("tailcam cost %s of all CPUs, its budget is %s", percent(share), percent(limit))
	for _, k := range decision.Shed {
		c.noteShed(k.Part, now, why)
	}
	for _, k := range decision.Return {
		c.noteReturn(k.Part, now)
	}
	c.mu.Unlock()
	if decision.Over && !was {
		d.log.Warn("over budget, and nothing is left to shed",
			zap.String("cpu", percent(share)), zap.String("budget", percent(limit)),
			zap.String("to_change", "raise budget.cpu, or see \"tailcam status\" for what costs most"))
	}
	if len(decision.Shed)+len(decision.Return) == 0 {
		return nil
	}
	d.change.Lock()
	err := d.rest()
	d.change.Unlock()
	fields := func(k *budget.Cost) []zap.Field {
		return []zap.Field{
			zap.Stringer("part", k.Part), zap.String("part_cpu", percent(k.CPU/float64(c.sample.CPUs))),
			zap.String("cpu", percent(share)), zap.String("budget", percent(limit)),
		}
	}
	for i := range decision.Shed {
		d.log.Warn("shed to stay within the budget", fields(&decision.Shed[i])...)
	}
	for i := range decision.Return {
		d.log.Info("back within the budget", fields(&decision.Return[i])...)
	}
	return err
}

// rest tells the kernel side what is shed. Requires d.change.
func (d *daemon) rest() error {
	c := &d.cost
	if c.meter == nil {
		return nil // rules may be replaced before there is a budget
	}
	s := tracker.Shedding{Softirqs: c.closed(&c.softirqs), Locks: c.closed(&c.locks)}
	adaptive := false
	active, shedRules := map[rules.Track]bool{}, map[rules.Track]bool{}
	d.mu.Lock()
	c.mu.Lock()
	list := c.controller.Shedding()
	for _, shed := range list {
		switch p := shed.Part; p.Kind {
		case budget.Group:
			s.Groups = append(s.Groups, p.Name)
		case budget.Histograms:
			s.Histograms = true
		case budget.UserStacks:
			s.UserStacks = true
		case budget.Wakers:
			s.Wakers = true
		case budget.Askers:
			s.Askers = true
		}
	}
	c.gated = c.gatedRules(d.rules)
	for i := range d.rules {
		r := &d.rules[i]
		adaptive = adaptive || r.IsAdaptive()
		if c.isShed(budget.Part{Kind: budget.Rule, Name: r.Name}) {
			shedRules[r.Track] = true
		} else {
			active[r.Track] = true
		}
	}
	c.mu.Unlock()
	d.mu.Unlock()
	less := len(list) > 0 || s.Softirqs || s.Locks
	if !less && !c.less {
		return nil
	}
	c.less = less
	s.Histograms = s.Histograms && !adaptive // they follow the histograms
	for _, t := range d.kernel.Trackers() {
		if shedRules[t] && !active[t] {
			s.Tracks = append(s.Tracks, t)
		}
	}
	resting := slices.Clone(s.Tracks)
	if s.Softirqs && !slices.Contains(resting, rules.Softirq) {
		resting = append(resting, rules.Softirq)
	}
	// A tracker must be back before its rules are, and its rules must be gone before it is.
	steps := []func() error{d.hold, func() error { return d.kernel.Shed(&s) }}
	if slices.ContainsFunc(c.resting, func(t rules.Track) bool { return !slices.Contains(resting, t) }) {
		slices.Reverse(steps)
	}
	c.resting = resting
	return errors.Join(steps[0](), steps[1](), d.kernel.ShedUserStacks(s.UserStacks))
}

// mapBytes is the memory of the kernel side's maps, without the tokens and accounts of processes,
// which have limits of their own.
func (d *daemon) mapBytes() int64 {
	n := d.kernel.MapBytes()
	if d.activities != nil {
		n += d.activities.MapBytes()
	}
	return int64(n)
}

// ringBytes is what of the maps are the recorder's rings.
func (d *daemon) ringBytes() int64 {
	if d.recorder == nil {
		return 0
	}
	return int64(d.recorder.Size()) * int64(ebpf.MustPossibleCPU())
}

// checkMemory limits memory anew, as tables grow, and drops caches if too much is in use.
func (d *daemon) checkMemory(at time.Duration) {
	c := &d.cost
	d.limitHeap(d.now.Load().Budget.Memory)
	used := privateMemory(os.Getpid())
	for _, pid := range d.symbols.Stats().PIDs {
		used += privateMemory(pid)
	}
	if out := d.outbox.Load(); out != nil {
		used += privateMemory(out.Status().PID)
	}
	c.mu.Lock()
	used += c.maps
	c.used = used
	limit, drop := c.memory.Limit, c.memory.Step(at, used)
	c.mu.Unlock()
	if !drop {
		return
	}
	d.log.Warn("over budget.memory: dropping caches", zap.Int64("bytes", used), zap.Int64("budget_bytes", limit))
	d.symbols.DropCaches()
	debug.FreeOSMemory()
}

// measurePrices has the kernel measure the programs, unless it does not let us.
func (d *daemon) measurePrices(ctx context.Context) error {
	c := &d.cost
	programs := d.programUses()
	before, _, err := readEvents()
	if err != nil {
		return err
	}
	stats, took, err := d.kernel.MeasureRuns(ctx, priceSample)
	if err != nil {
		c.mu.Lock()
		known := !c.meter.CanMeasure
		c.meter.CanMeasure = false
		c.mu.Unlock()
		if errors.Is(err, os.ErrPermission) {
			if !known {
				d.log.Info("the cost of events is assumed for a machine of this speed, not measured: that needs CAP_SYS_ADMIN")
			}
			d.scalePrices()
			return nil
		}
		return err
	}
	after, _, err := readEvents()
	if err != nil {
		return err
	}
	for i := range after {
		after[i] -= min(before[i], after[i])
	}
	var runs []budget.Run
	for _, s := range stats {
		runs = append(runs, budget.Run{Name: s.Name, Runs: s.Runs, Time: s.RunTime})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meter.Learn(time.Since(d.start), took, runs, after, programs, c.isShed)
	return nil
}

// speedAge is how long a measured speed is good for: clocks of CPUs change, and virtual
// machines move.
const speedAge = 5 * time.Minute

// scalePrices makes the assumed prices fit this machine. If it cannot, they stay.
func (d *daemon) scalePrices() {
	speed, err := eventcost.Speed()
	c := &d.cost
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scaledAt = time.Since(d.start)
	if err != nil {
		d.log.Warn("measure the speed of BPF programs, to scale the assumed cost of events", zap.Error(err))
		return
	}
	c.meter.Scale(speed)
	c.scaled = true
	d.log.Debug("speed of BPF programs", zap.Float64("clock_ns", speed.ClockNS), zap.Float64("work_ns", speed.WorkNS),
		zap.Float64("price_scale", c.meter.Scaled()))
}

// programUses lists the kernel side's programs.
func (d *daemon) programUses() (list []budget.Program) {
	for _, s := range d.kernel.Serves() {
		p := budget.Program{Name: s.Program, Groups: s.Groups, Stacks: s.Stacks, Always: s.Always}
		switch {
		case s.Wakers:
			p.Less = budget.Wakers
		case s.Askers:
			p.Less = budget.Askers
		}
		for _, t := range s.Tracks {
			p.Tracks = append(p.Tracks, string(t))
		}
		list = append(list, p)
	}
	return list
}

// reading counts at the end of a window.
func (d *daemon) reading() (*budget.Reading, error) {
	r := &budget.Reading{At: time.Since(d.start), Helpers: d.symbols.Stats().CPU, Programs: d.programUses()}
	if out := d.outbox.Load(); out != nil {
		r.Helpers += out.CPU()
	}
	var err error
	if r.Events, r.CPUs, err = readEvents(); err != nil {
		return nil, err
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return nil, err
	}
	r.Own = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	counters, err := d.kernel.Counters()
	if err != nil {
		return nil, err
	}
	inactive := d.kernel.Inactive()
	d.mu.Lock()
	defer d.mu.Unlock()
	r.Rules = d.pricedRules(inactive)
	histograms := d.cfg.Histograms.Enabled
	for i := range d.rules {
		histograms = histograms && !d.rules[i].IsAdaptive() // those cannot do without
	}
	if histograms {
		for _, t := range counters.Trackers {
			r.Delays += t.Seen
		}
	}
	return r, nil
}

// pricedRules lists the rules that work here. Requires d.mu.
func (d *daemon) pricedRules(inactive map[string]error) (list []budget.RuleInfo) {
	for i := range d.rules {
		if k := &d.rules[i]; inactive[k.Name] == nil && k.Tracked() {
			list = append(list, budget.RuleInfo{Name: k.Name, Track: string(k.Track), Priority: k.Priority})
		}
	}
	return list
}

func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }
