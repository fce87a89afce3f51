package tracker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// ErrRestart tells that the new rules need hooks that are not attached.
var ErrRestart = errors.New("the new rules need another tracker or stack than the running ones: restart tailcam")

// Swap replaces the rules while everything runs on: no event is missed, and
// pending work is judged by the new rules. If it fails, the old rules stay.
// Counters of rules that keep their name go on.
func (t *Tracker) Swap(list []rules.Rule) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's BTF: %w", err)
	}
	p, served, inactive, err := newPlan(list, nil, kernel)
	if err != nil {
		return err
	}
	if !t.plan.covers(p) {
		return ErrRestart
	}
	q, absent, err := newPairs(t.pairs.unknown(served), kernel, t.opts.Programs)
	if err != nil {
		return err
	}
	if !t.pairs.covers(q) {
		return ErrRestart
	}
	maps.Copy(absent, t.pairs.failed)
	for _, r := range list {
		if err := absent[r.Name]; err != nil {
			inactive[r.Name] = err
		}
	}
	served = slices.DeleteFunc(served, func(r rules.Rule) bool { return absent[r.Name] != nil })
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.install(served); err != nil {
		return err
	}
	t.inactive = inactive
	return nil
}

// maxOld is how many replaced generations outliers are still understood of. A
// swap takes more than 10 ms, so an outlier would have to wait for seconds
// while thresholds are set all the time.
const maxOld = 256

// grace is how long a program may still be at work with what it read before a
// change. It runs with preemption off.
const grace = 10 * time.Millisecond

// install writes a new generation beside the live one and flips to it. Under t.mu.
func (t *Tracker) install(list []rules.Rule) error {
	var generation uint32 = 1
	var firstSet uint16
	if t.live != nil {
		generation = t.live.generation + 1
		firstSet = t.live.nextSet
		if firstSet > 1<<15 {
			firstSet = 0 // the sets of 30,000 lists ago are long gone
		}
	}
	list = t.carryThresholds(list)
	c, err := compile(t.withHeld(list), generation, firstSet)
	if err != nil {
		return err
	}
	histograms, err := t.allotHistograms(c)
	if err != nil {
		return err
	}
	if len(c.cgroups) > 0 && t.opts.Host == nil {
		return errors.New("rules with cgroup conditions need a host that knows cgroups")
	}
	ids, err := t.identify(c)
	if err != nil {
		return fmt.Errorf("install rules: %w", err)
	}
	if err := t.write(c); err != nil {
		t.forget(c) // its lists would be found in those of the next one
		return fmt.Errorf("install rules: %w", err)
	}
	replaced := t.live
	if replaced != nil {
		time.Sleep(grace) // programs at work when the generation flipped still read the old one
		t.old = append([]*compiled{replaced}, t.old[:min(len(t.old), maxOld-1)]...)
	}
	t.live, t.list, t.allotted, t.ids = c, list, histograms, ids
	if replaced != nil {
		t.forget(replaced)
	}
	return nil
}

// identify gives the rules their ids. Those that are given to another rule
// belong to rules that were replaced before. Under t.mu.
func (t *Tracker) identify(c *compiled) (ruleIDs, error) {
	names := make([]string, len(c.source))
	for i, r := range c.source {
		names[i] = r.Name
	}
	ids, fresh := t.ids.assign(names)
	for _, n := range fresh {
		if err := t.clearState(n); err != nil {
			return ids, err
		}
	}
	for i, name := range names {
		c.rules[i].Id = ids.of[name]
	}
	return ids, nil
}

// write fills the half of the tables that is not live, then makes it live.
// Floors come last, the lower of old and new in between, so that no rule
// misses an event on the way.
func (t *Tracker) write(c *compiled) error {
	half := c.generation & 1
	m := t.objects.Maps
	for i, r := range c.rules {
		if err := m["rules"].Put(half*maxRules+uint32(i), r); err != nil {
			return err
		}
	}
	for i, o := range c.overrides {
		if err := m["overrides"].Put(half*maxOverrides+uint32(i), o); err != nil {
			return err
		}
	}
	for i, g := range c.globs {
		if err := m["globs"].Put(half*maxGlobs+uint32(i), g); err != nil {
			return err
		}
	}
	for i, g := range c.keyGlobs {
		if err := m["key_globs"].Put(half*rules.MaxKeyGlobs+uint32(i), g); err != nil {
			return err
		}
	}
	for k := range c.sets {
		if err := m["sets"].Put(k, uint8(1)); err != nil {
			return fmt.Errorf("pid, uid and syscall lists: %w", err)
		}
	}
	if err := t.teachAll(c); err != nil {
		return err
	}
	if err := t.teachHandlers(c); err != nil {
		return err
	}
	if err := t.writeHistograms(c); err != nil {
		return err
	}
	var tables [2]bpf.TailcamRuleTable
	v := t.objects.Variables
	if err := v["tables"].Get(&tables); err != nil {
		return err
	}
	tables[half] = c.table
	if err := v["tables"].Set(tables); err != nil {
		return err
	}
	if err := t.writePlaces(c); err != nil {
		return err
	}
	if err := t.writeShares(len(c.rules)); err != nil {
		return err
	}
	if t.live != nil {
		both, timeouts := c.floors.lowest(&t.live.floors), c.timeouts.lowest(&t.live.timeouts)
		if err := errors.Join(t.writeFloors(&both), t.writeTimeouts(&timeouts)); err != nil {
			return err
		}
	}
	if err := v["generation"].Set(c.generation); err != nil {
		return err
	}
	return errors.Join(t.writeFloors(&c.floors), t.writeTimeouts(&c.timeouts))
}

func (t *Tracker) writeFloors(f *floors) error {
	v := t.objects.Variables
	return errors.Join(
		v["floor_wakeup"].Set(f.wakeup),
		v["floor_offcpu"].Set(f.offcpu),
		v["floor_syscall"].Set(f.syscall),
		v["floor_block"].Set(f.block),
		v["floor_irq"].Set(f.irq),
		v["floor_pair"].Set(t.pairs.floorsOf(f.pair)),
		v["floor_softirq"].Set(f.softirq),
		v["floor_chain"].Set(f.chain),
		v["floor_span"].Set(f.span),
		v["chain_from"].Set(uint32(f.chainFrom)),
		v["waker_stacks_wanted"].Set(uint32(flag(f.wakerStacks))),
	)
}

// writeTimeouts sets the floors of timeouts, where the kernel side has any.
func (t *Tracker) writeTimeouts(f *floors) error {
	if !t.plan.timeouts {
		return nil
	}
	v := t.objects.Variables
	return errors.Join(
		v["timeout_wakeup"].Set(slices.Min(f.wakeup[:])),
		v["timeout_offcpu"].Set(f.offcpuStates()),
		v["timeout_syscall"].Set(f.syscall),
		v["timeout_block"].Set(f.block),
		v["timeout_pair"].Set(t.pairs.floorsOf(f.pair)),
		v["timeout_least"].Set(f.least()),
		v["timeout_span"].Set(f.span),
		v["timeout_irq"].Set(f.irq),
		v["timeout_softirq"].Set(f.softirq),
		v["timeout_interrupts"].Set(f.leastInterrupt()),
	)
}

// forget removes the lists of a generation that no program works with any more.
func (t *Tracker) forget(c *compiled) {
	for k := range c.sets {
		// The key can only be missing if it was never written; nothing is lost.
		_ = t.objects.Maps["sets"].Delete(k)
	}
}

// teachAll decides the cgroup conditions for every cgroup that exists.
// Devices are decided when they are first seen.
func (t *Tracker) teachAll(c *compiled) error {
	if len(c.cgroups) == 0 {
		return nil
	}
	var failed error
	err := t.opts.Host.WalkCgroups(func(id uint64, path string) {
		if e := t.teach(c, verdictCgroup, id, verdict(c.cgroups, rules.CgroupMatch, path)); e != nil && failed == nil {
			failed = e
		}
	})
	return errors.Join(err, failed)
}

// Kinds of verdicts (bpf/abi/abi.h).
const (
	verdictCgroup  = 0
	verdictDevice  = 1
	verdictHandler = 2
)

func (t *Tracker) teach(c *compiled, kind uint32, id, bits uint64) error {
	key := bpf.TailcamVerdictKey{Id: id, Kind: kind, Generation: c.generation}
	if err := t.objects.Maps["verdicts"].Update(key, bits, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("teach verdict: %w", err)
	}
	return nil
}

// lowest is the smaller floor of both in every class.
func (f *floors) lowest(g *floors) floors {
	out := *f
	low := func(to, from []uint64) {
		for i := range to {
			to[i] = min(to[i], from[i])
		}
	}
	low(out.wakeup[:], g.wakeup[:])
	for i := range out.offcpu {
		low(out.offcpu[i][:], g.offcpu[i][:])
	}
	low(out.syscall[:], g.syscall[:])
	low(out.block[:], g.block[:])
	low(out.irq[:], g.irq[:])
	for i := range out.softirq {
		low(out.softirq[i][:], g.softirq[i][:])
	}
	low(out.chain[:], g.chain[:])
	out.span = min(out.span, g.span)
	out.chainFrom |= g.chainFrom
	out.wakerStacks = out.wakerStacks || g.wakerStacks
	out.pair = maps.Clone(f.pair)
	for name := range g.pair {
		out.pair[name] = min(out.pairOf(name), g.pairOf(name))
	}
	return out
}
