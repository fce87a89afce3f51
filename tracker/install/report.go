package install

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/histogram"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/stats"
)

// Counters reads all counters of the kernel side.
func (r *Rules) Counters() (*stats.Counters, error) {
	c, err := stats.Read(r.kernel)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Stale = r.stale
	for i, rule := range r.current.Sources {
		k, err := stats.Rule(r.kernel, r.current.Rules[i].Id)
		if err != nil {
			return nil, fmt.Errorf("read counters of rule %s: %w", rule.Name, err)
		}
		k = k.Plus(r.carried[rule.Name])
		k.Seen = c.Trackers[rule.Track].Seen
		c.Rules[rule.Name] = k
	}
	return c, nil
}

// Pairs reads the counters of every declared pair, by the name of its rule.
func (r *Rules) Pairs() (map[string]abi.PairState, error) {
	r.mu.Lock()
	numbers := r.opts.Pairs
	r.mu.Unlock()
	return stats.Pairs(r.kernel, numbers)
}

// Stuck counts, for each rule with a timeout, the pending work that the timeout has
// fired for and that still has not ended.
func (r *Rules) Stuck() (map[string]int, error) {
	ids, tracks := map[string]uint8{}, map[rules.Track]bool{}
	r.mu.Lock()
	for i, rule := range r.current.Sources {
		if hasTimeout(rule) {
			ids[rule.Name], tracks[rule.Track] = r.current.Rules[i].Id, true
		}
	}
	r.mu.Unlock()
	if len(ids) == 0 {
		return nil, nil
	}
	counts, err := r.kernel.StuckByID(tracks)
	if err != nil {
		return nil, err
	}
	stuck := make(map[string]int, len(ids))
	for name, id := range ids {
		stuck[name] = counts[id]
	}
	return stuck, nil
}

func hasTimeout(rule *rules.Rule) bool {
	return rule.Timeout > 0 || slices.ContainsFunc(rule.Overrides, func(o rules.Override) bool { return o.Timeout > 0 })
}

// Histograms are the distributions of all delays since New.
type Histograms struct {
	Trackers map[rules.Track]histogram.Histogram
	Rules    map[string]*stats.RuleHistogram // rules that ask for one
}

// Histograms reads all distributions and adds up those of the CPUs. They go on
// while they are read, so that the last few delays may be in a bucket, and not
// in the sum yet. With NoHistograms there are none.
func (r *Rules) Histograms() (*Histograms, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := &Histograms{Trackers: map[rules.Track]histogram.Histogram{}, Rules: map[string]*stats.RuleHistogram{}}
	if r.opts.NoHistograms {
		return all, nil
	}
	var err error
	if all.Trackers, err = stats.Trackers(r.kernel); err != nil {
		return nil, err
	}
	for i, rule := range r.current.Sources {
		if r.current.Histograms[i].Spec == nil {
			continue
		}
		h, err := stats.Histogram(r.kernel, &r.current.Histograms[i], r.cgroupPath)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", rule.Name, err)
		}
		all.Rules[rule.Name] = h
	}
	return all, nil
}

// Pressure is what the rate limit has done to a rule since New.
type Pressure struct {
	Limited  uint64 // outliers that it refused
	Outliers uint64 // that it let through
}

// Pressures reads that of every rule that runs, by name, without a system call:
// it may be asked for often.
func (r *Rules) Pressures() (map[string]Pressure, error) {
	const size = int(unsafe.Sizeof(abi.RuleState{}))
	const limited, outliers = int(unsafe.Offsetof(abi.RuleState{}.Limited)), int(unsafe.Offsetof(abi.RuleState{}.Outliers))
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make(map[string]Pressure, len(r.current.Sources))
	for i, rule := range r.current.Sources {
		state := int(r.current.Rules[i].Id) * size
		n, err := kernel.ReadWord(r.kernel.Memory().RuleStates, state+limited)
		m, more := kernel.ReadWord(r.kernel.Memory().RuleStates, state+outliers)
		if err = errors.Join(err, more); err != nil {
			return nil, fmt.Errorf("read the state of rule %s: %w", rule.Name, err)
		}
		list[rule.Name] = Pressure{Limited: n, Outliers: m}
	}
	return list, nil
}
