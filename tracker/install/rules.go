// Package install puts rules into the running kernel side, and knows which ones
// are there: generations follow each other without missing an event, thresholds
// change in place, and what the kernel side leaves open is decided here.
package install

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/kinds"
	"github.com/tailcam/tailcam/tracker/stats"
)

// Cgroups answers what only user space knows of cgroups. Its methods are called
// from the reading goroutine, and must not wait for long.
type Cgroups interface {
	// CgroupPath returns the cgroup v2 path of a cgroup id.
	CgroupPath(id uint64) (string, error)
	// WalkCgroups calls visit for every cgroup that exists.
	WalkCgroups(visit func(id uint64, path string)) error
	// PlaceOf returns what is known now of a cgroup, by its path.
	PlaceOf(path string) CgroupPlace
}

// CgroupPlace is what is known of a cgroup.
type CgroupPlace struct {
	rules.Place
	Pending bool // a container runtime has been asked, and has not answered yet
}

// Options are what rules need beside the kernel side.
type Options struct {
	Pairs   map[string]uint32        // numbers of declared pairs, by the names of their rules
	Labels  map[string][]kinds.Label // of theirs
	Cgroups Cgroups                  // nil: rules must not have cgroup conditions
	// Symbol names the function of the kernel at an address, "" if it has none;
	// nil: function conditions match nothing.
	Symbol       func(address uint64) string
	NoHistograms bool
	// OutlierNS and BurstNS are the rate limit: see kernel.Options.
	OutlierNS, BurstNS uint64
}

// Rules are those that run. Its methods may be called from several goroutines
// at once.
type Rules struct {
	kernel *kernel.Objects
	opts   Options

	mu        sync.Mutex // guards what follows, and the order of changes
	current   *compile.Generation
	list      []rules.Rule          // what it was made of
	replaced  []*compile.Generation // before it, newest first, for outliers still on their way
	stale     uint64                // outliers of generations before those
	ids       compile.RuleIDs
	carried   map[string]stats.RuleCounters // by name: decided here, or of an id that another rule has now
	allotment compile.Allotment             // histograms of the current rules
	held      map[string]bool               // rules that are paused by Hold

	noUserStacks bool // see ShedUserStacks

	leap      uint32 // generations to leave out: see Resume
	inherited uint32 // generations up to it are of an earlier daemon
	unread    uint64 // outliers of those
}

// New returns no rules: Swap installs some.
func New(objects *kernel.Objects, opts *Options) *Rules {
	return &Rules{kernel: objects, opts: *opts, carried: map[string]stats.RuleCounters{}}
}

// maxReplaced is how many replaced generations outliers are still understood of.
// A swap takes more than 10 ms, so an outlier would have to wait for seconds
// while thresholds are set all the time.
const maxReplaced = 256

// grace is how long a program may still be at work with what it read before a
// change. It runs with preemption off.
const grace = 10 * time.Millisecond

// Swap replaces the rules while everything runs on: no event is missed, and
// pending work is judged by the new rules. If it fails, the old rules stay.
// Counters of rules that keep their name go on.
func (r *Rules) Swap(list []rules.Rule) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.installLocked(list)
}

// SwapPairs is Swap for rules whose declared pairs have changed: their numbers, and their
// labels, as in Options.
func (r *Rules) SwapPairs(list []rules.Rule, numbers map[string]uint32, labels map[string][]kinds.Label) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.opts
	r.opts.Pairs, r.opts.Labels = numbers, labels
	if err := r.installLocked(list); err != nil {
		r.opts = before
		return err
	}
	return nil
}

// installLocked writes a new generation beside the current one and flips to it.
func (r *Rules) installLocked(list []rules.Rule) error {
	var number uint32 = 1
	var firstSet uint16
	if r.current != nil {
		number = r.current.Number + 1 + r.leap
		firstSet = r.current.NextSet
		if firstSet > 1<<15 {
			firstSet = 0 // the sets of 30,000 lists ago are long gone
		}
	}
	list = r.carryThresholds(list)
	g, err := compile.New(r.withHeld(list), number, firstSet, r.opts.Pairs)
	if err != nil {
		return err
	}
	allotment, err := r.allotHistograms(g)
	if err != nil {
		return err
	}
	if len(g.Cgroups) > 0 && r.opts.Cgroups == nil {
		return errors.New("rules with cgroup conditions need a host that knows cgroups")
	}
	ids, err := r.identify(g)
	if err != nil {
		return fmt.Errorf("install rules: %w", err)
	}
	if err := errors.Join(r.keep(g, firstSet, ids, allotment), r.write(g)); err != nil {
		r.forgetSets(g) // its lists would be found in those of the next one
		return fmt.Errorf("install rules: %w", err)
	}
	before := r.current
	if before != nil {
		time.Sleep(grace) // programs at work when the generation flipped still read the old one
		r.replaced = append([]*compile.Generation{before}, r.replaced[:min(len(r.replaced), maxReplaced-1)]...)
	}
	r.current, r.list, r.allotment, r.ids, r.leap = g, list, allotment, ids, 0
	if before != nil {
		r.forgetSets(before)
	}
	return nil
}

// identify gives the rules their ids. Those that are given to another rule
// belong to rules that were replaced before.
func (r *Rules) identify(g *compile.Generation) (compile.RuleIDs, error) {
	names := make([]string, len(g.Sources))
	for i, rule := range g.Sources {
		names[i] = rule.Name
	}
	ids, fresh := r.ids.Assign(names)
	for _, n := range fresh {
		if err := r.clearState(n); err != nil {
			return ids, err
		}
	}
	for i, name := range names {
		g.Rules[i].Id = ids.Of[name]
	}
	return ids, nil
}

// clearState gives an id to another rule: what the former one has counted is
// kept, and the new one begins with nothing.
func (r *Rules) clearState(n compile.NewID) error {
	if n.Former != "" {
		k, err := stats.Rule(r.kernel, n.ID)
		if err != nil {
			return fmt.Errorf("read counters of rule %s: %w", n.Former, err)
		}
		r.carried[n.Former] = r.carried[n.Former].Plus(k)
	}
	return r.kernel.Maps().RuleStates.Put(uint32(n.ID), abi.RuleState{})
}

// allotHistograms gives the rules of g their histograms.
func (r *Rules) allotHistograms(g *compile.Generation) (compile.Allotment, error) {
	if r.opts.NoHistograms {
		for _, rule := range g.Sources {
			if rule.Histogram != nil {
				return nil, fmt.Errorf("rule %s needs a histogram: set histograms.enabled, or remove its histogram and its threshold's quantile", rule.Name)
			}
		}
		g.Histograms = make([]compile.HistogramSlots, len(g.Rules))
		return nil, nil
	}
	after, fresh, err := g.Allot(r.allotment, r.kernel.HistogramStride())
	if err != nil {
		return nil, err
	}
	for _, n := range fresh {
		if err := stats.Clear(r.kernel, n); err != nil {
			return nil, err
		}
	}
	return after, nil
}

// generation finds the rules of a generation; nil: it is too old.
func (r *Rules) generation(number uint32) *compile.Generation {
	if r.current != nil && r.current.Number == number {
		return r.current
	}
	i := slices.IndexFunc(r.replaced, func(g *compile.Generation) bool { return g.Number == number })
	if i < 0 {
		return nil
	}
	return r.replaced[i]
}

// SetRate changes the rate limit as the kernel side has it now: see kernel.Options.
func (r *Rules) SetRate(each, burst uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opts.OutlierNS, r.opts.BurstNS = each, burst
}

// Current calls visit for every rule that runs.
func (r *Rules) Current(visit func(rule *rules.Rule)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rule := range r.current.Sources {
		visit(rule)
	}
}
