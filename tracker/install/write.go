package install

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// write fills the half of the tables that is not current, then makes it current.
// Floors come last, the lower of old and new in between, so that no rule
// misses an event on the way.
func (r *Rules) write(g *compile.Generation) error {
	m, half := r.kernel.Maps(), g.Number&1
	if err := errors.Join(
		put(m.Rules, half*abi.MaxRules, g.Rules),
		put(m.Overrides, half*abi.MaxOverrides, g.Overrides),
		put(m.Globs, half*abi.MaxGlobs, g.Globs),
		put(m.KeyGlobs, half*abi.MaxKeyGlobs, g.KeyGlobs),
	); err != nil {
		return err
	}
	for k := range g.Sets {
		if err := m.Sets.Put(k, uint8(1)); err != nil {
			return fmt.Errorf("pid, uid and syscall lists: %w", err)
		}
	}
	if err := r.teachAll(g); err != nil {
		return err
	}
	if !r.opts.NoHistograms {
		if err := put(m.HistogramRules, half*abi.MaxRules, g.HistogramRules); err != nil {
			return err
		}
		if err := setHalf(r.kernel.Vars.HistogramTables, half, g.HistogramTable); err != nil {
			return err
		}
	}
	if err := setHalf(r.kernel.Vars.Tables, half, g.Table); err != nil {
		return err
	}
	if err := r.writePairs(g); err != nil {
		return err
	}
	if err := r.writeShares(len(g.Rules)); err != nil {
		return err
	}
	if r.current != nil {
		both, timeouts := g.Floors.Lowest(&r.current.Floors), g.Timeouts.Lowest(&r.current.Timeouts)
		if err := errors.Join(r.writeFloors(&both), r.writeTimeouts(&timeouts)); err != nil {
			return err
		}
	}
	if err := r.kernel.Vars.Generation.Set(g.Number); err != nil {
		return err
	}
	return errors.Join(r.writeFloors(&g.Floors), r.writeTimeouts(&g.Timeouts))
}

// put writes a list into an array from an index on.
func put[T any](m *ebpf.Map, from uint32, list []T) error {
	for i := range list {
		if err := m.Put(from+uint32(i), list[i]); err != nil {
			return err
		}
	}
	return nil
}

// setHalf sets one of the two elements of a variable.
func setHalf[T any](v *ebpf.Variable, half uint32, value T) error {
	var both [2]T
	if err := v.Get(&both); err != nil {
		return err
	}
	both[half] = value
	return v.Set(both)
}

// writePairs tells the programs of declared pairs the index of their rule, and
// of its histogram, in the half of the tables that is not current.
func (r *Rules) writePairs(g *compile.Generation) error {
	var index, histograms [abi.MaxPairs]uint32
	for i := range index {
		index[i], histograms[i] = abi.NoRule, abi.NoRule
	}
	for i, rule := range g.Sources {
		n, ok := r.opts.Pairs[rule.Name]
		if !ok || rule.Track != rules.Pair {
			continue
		}
		index[n] = uint32(i)
		if h, ok := g.HistogramAt[i]; ok {
			histograms[n] = h
		}
	}
	v, half := &r.kernel.Vars, g.Number&1
	return errors.Join(setHalf(v.PairRules, half, index), setHalf(v.PairHistograms, half, histograms))
}

// writeShares divides the ring buffer: half of it belongs to all, the other
// half is divided among the rules and the messages that belong to none.
func (r *Rules) writeShares(n int) error {
	const record = uint64(unsafe.Sizeof(abi.Outlier{})) + abi.RingHeader
	half := uint64(r.kernel.Maps().Outliers.MaxEntries()) / 2
	// As many CPUs may look at what is free at once, and all find it so.
	slack := min(uint64(runtime.NumCPU())*record, half/2)
	share := half / uint64(n+abi.RingOwners-abi.MaxRules)
	v := &r.kernel.Vars
	return errors.Join(v.RingShare.Set(share), v.RingCommon.Set(half-slack))
}

func (r *Rules) writeFloors(f *compile.Floors) error {
	v := &r.kernel.Vars
	var wakers uint32
	if f.WakerStacks {
		wakers = 1
	}
	errs := []error{
		v.ChainFrom.Set(uint32(f.ChainFrom)), v.WakerStacksWanted.Set(wakers),
		v.CallsWanted.Set(kinds.CallsWanted(f.Of(kinds.Of(rules.Syscall)))),
	}
	for i := range kinds.All {
		errs = append(errs, kinds.All[i].Floor(v).Set(f.Of(&kinds.All[i])))
	}
	return errors.Join(errs...)
}

// writeTimeouts sets the floors of timeouts. The kernel side may look at them later only.
func (r *Rules) writeTimeouts(f *compile.Floors) error {
	v := &r.kernel.Vars
	errs := []error{v.TimeoutLeast.Set(f.LeastOfTables()), v.TimeoutInterrupts.Set(f.LeastOfInterrupts())}
	for i := range kinds.All {
		kind := &kinds.All[i]
		if kind.Timeout == nil {
			continue
		}
		floors := f.Of(kind)
		if kind.Fold != nil {
			floors = kind.Fold(floors)
		}
		errs = append(errs, kind.Timeout(v).Set(floors))
	}
	return errors.Join(errs...)
}

// forgetSets removes the lists of a generation that no program works with any more.
func (r *Rules) forgetSets(g *compile.Generation) {
	for k := range g.Sets {
		// The key can only be missing if it was never written; nothing is lost.
		_ = r.kernel.Maps().Sets.Delete(k)
	}
}
