package daemon

import (
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
)

// heapLimit is Go's, of this process, in bytes; 0: none.
func heapLimit() uint64 {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return uint64(limit)
	}
	return 0
}

// costStatus is what tailcam cost in the last window; nil: none is over.
func (d *daemon) costStatus() *api.CostStatus {
	c := &d.cost
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sample == nil {
		return nil
	}
	now := time.Since(d.start)
	all := float64(max(c.sample.CPUs, 1))
	s := &api.CostStatus{
		CPU: c.sample.Share(), BudgetCPU: c.controller.CPU, CPUs: c.sample.CPUs,
		Daemon: c.sample.Own / all, Helpers: c.sample.Help / all,
		MemoryBytes: uint64(c.used), MapBytes: uint64(c.maps), BudgetMemory: uint64(c.memory.Limit),
		HeapLimit: heapLimit(), CacheDrops: c.memory.Drops,
		Programs: []api.ProgramCost{}, Parts: []api.CostPart{}, Shed: []api.ShedInfo{}, Steps: c.steps, Returns: c.returns, Exceeded: c.over,
	}
	if at, ok := c.meter.Measured(); ok {
		s.Measured, s.PriceNS = true, (now - at).Nanoseconds()
	} else if c.scaled {
		s.PriceScale = c.meter.Scaled()
	}
	for _, name := range slices.Sorted(maps.Keys(c.spent)) {
		s.Programs = append(s.Programs, *c.spent[name])
	}
	for _, k := range c.sample.Parts {
		s.Parts = append(s.Parts, api.CostPart{Part: k.Part.String(), CPU: k.CPU / all, Shed: c.isShed(k.Part)})
	}
	for _, shed := range c.shedding() {
		info := api.ShedInfo{
			Part: shed.Part.String(), Since: d.start.Add(shed.Since).UTC(), WaitNS: shed.Wait.Nanoseconds(), Times: shed.Times,
		}
		for i := range c.past {
			if c.past[i].part == shed.Part && c.past[i].to == 0 {
				info.Why = c.past[i].why
			}
		}
		s.Shed = append(s.Shed, info)
	}
	return s
}

// shedBetween is snapshot.Options.Shed.
func (d *daemon) shedBetween(from, to uint64) (parts []snapshot.ShedPart, note string) {
	c := &d.cost
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	when, why := "", ""
	for i := range c.past {
		p := &c.past[i]
		if p.from > to || p.to != 0 && p.to < from {
			continue
		}
		part := snapshot.ShedPart{Part: p.part.String(), FromMonoNS: max(p.from, from), ToMonoNS: to}
		if p.to != 0 {
			part.ToMonoNS = min(p.to, to)
		}
		parts = append(parts, part)
		if !slices.Contains(names, part.Part) {
			names = append(names, part.Part)
		}
		if part.FromMonoNS > from || part.ToMonoNS < to {
			when = " for a part of this history"
		}
		why = p.why
	}
	if len(parts) == 0 {
		return nil, ""
	}
	return parts, fmt.Sprintf("tailcam did without %s%s, so what they would have shown is missing: %s",
		strings.Join(names, ", "), when, why)
}

// shedParts names what is shed.
func (c *cost) shedParts() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, shed := range c.shedding() {
		names = append(names, shed.Part.String())
	}
	return names
}
