package install

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
	"github.com/tailcam/tailcam/tracker/histogram"
	"github.com/tailcam/tailcam/tracker/kernel"
	"github.com/tailcam/tailcam/tracker/stats"
)

// ErrStale tells that the rules were replaced in between.
var ErrStale = errors.New("the rules were replaced meanwhile")

// OwnThreshold is, in place of an override's number, the rule's own threshold.
const OwnThreshold = -1

// Adaptive is one threshold that follows the load, with what it follows.
type Adaptive struct {
	Rule      string
	Override  int    // its place in the rule; OwnThreshold: the rule's own
	Class     string // OverrideClass; "": the rule's own
	Spec      rules.Adaptive
	Threshold time.Duration // now; 0: none
	Seen      histogram.Histogram
}

// Adaptives reads every adaptive threshold and its histogram. generation is
// for Retune.
func (r *Rules) Adaptives() (generation uint32, list []Adaptive, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, rule := range r.current.Sources {
		h := &r.current.Histograms[i]
		add := func(override, number int, spec *rules.Adaptive, now time.Duration, class string) {
			if spec == nil || err != nil {
				return
			}
			a := Adaptive{Rule: rule.Name, Override: override, Class: class, Spec: *spec, Threshold: now}
			a.Seen, _, err = stats.Distribution(r.kernel, number)
			list = append(list, a)
		}
		add(OwnThreshold, h.Own, rule.Adaptive, rule.Threshold, "")
		for j := range rule.Overrides {
			o := &rule.Overrides[j]
			if o.Adaptive != nil {
				add(j, h.Overrides[j], o.Adaptive, o.Threshold, compile.OverrideClass(&o.When))
			}
		}
	}
	return r.current.Number, list, err
}

// Tuning is a new threshold of a running rule.
type Tuning struct {
	Rule      string
	Override  int           // its place in the rule; OwnThreshold: the rule's own
	Threshold time.Duration // 0: none, nothing fires for it
}

// Retune changes thresholds in place, without replacing the rules and without
// missing an event: the floors are lowered first, and raised last. generation
// is that of the rules which the tunings are about, from Adaptives; if they
// do not run any more, it returns ErrStale and changes nothing.
func (r *Rules) Retune(generation uint32, list []Tuning) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.current
	if g.Number != generation {
		return ErrStale
	}
	sources := slices.Clone(g.Sources)
	var changed []int
	for _, n := range list {
		i := indexOf(sources, n.Rule)
		if i < 0 || n.Override >= len(sources[i].Overrides) {
			return fmt.Errorf("change the threshold of rule %s: there is no such rule or override", n.Rule)
		}
		rule := *sources[i]
		if n.Override == OwnThreshold {
			rule.Threshold = n.Threshold
		} else {
			rule.Overrides = slices.Clone(rule.Overrides)
			rule.Overrides[n.Override].Threshold = n.Threshold
		}
		sources[i] = &rule
		changed = append(changed, i)
	}
	floors := compile.NewFloors(sources, r.opts.Pairs)
	both := floors.Lowest(&g.Floors)
	if err := r.writeFloors(&both); err != nil {
		return fmt.Errorf("change thresholds: %w", err)
	}
	g.Sources, g.Floors = sources, both // the reader judges by them from now on
	for _, i := range changed {
		if err := r.writeThresholds(g, i); err != nil {
			return fmt.Errorf("change thresholds: %w", err)
		}
	}
	if err := r.writeFloors(&floors); err != nil {
		return fmt.Errorf("change thresholds: %w", err)
	}
	g.Floors = floors
	return nil
}

// writeThresholds writes those of rule i, each as one word: programs may be reading it.
func (r *Rules) writeThresholds(g *compile.Generation, i int) error {
	half, rule := int(g.Number&1), g.Sources[i]
	const size, inRule = int(unsafe.Sizeof(abi.Rule{})), int(unsafe.Offsetof(abi.Rule{}.ThresholdNs))
	const overrideSize, inOverride = int(unsafe.Sizeof(abi.Override{})), int(unsafe.Offsetof(abi.Override{}.ThresholdNs))
	g.Rules[i].ThresholdNs = compile.LimitNS(rule.Threshold)
	err := kernel.WriteWord(r.kernel.Memory().Rules, (half*abi.MaxRules+i)*size+inRule, g.Rules[i].ThresholdNs)
	for j := range rule.Overrides {
		n := int(g.Rules[i].FirstOverride) + j
		g.Overrides[n].ThresholdNs = compile.LimitNS(rule.LimitsOf(j).Threshold)
		err = errors.Join(err, kernel.WriteWord(r.kernel.Memory().Overrides, (half*abi.MaxOverrides+n)*overrideSize+inOverride, g.Overrides[n].ThresholdNs))
	}
	return err
}

// carryThresholds gives adaptive rules that stay, by their name, the threshold
// that they have now, so that a reload does not make them quiet.
func (r *Rules) carryThresholds(list []rules.Rule) []rules.Rule {
	if r.current == nil {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		rule := &list[i]
		before := indexOf(r.current.Sources, rule.Name)
		if before < 0 || r.current.Sources[before].Track != rule.Track || !rule.IsAdaptive() {
			continue
		}
		was := r.current.Sources[before]
		if rule.Adaptive != nil && was.Adaptive != nil {
			rule.Threshold = rule.Adaptive.Clamp(was.Threshold)
		}
		rule.Overrides = slices.Clone(rule.Overrides)
		for j := range rule.Overrides {
			o := &rule.Overrides[j]
			if o.Adaptive == nil {
				continue
			}
			key := compile.OverrideClass(&o.When)
			for k := range was.Overrides {
				w := &was.Overrides[k]
				if w.Adaptive != nil && compile.OverrideClass(&w.When) == key {
					o.Threshold = o.Adaptive.Clamp(w.Threshold)
					break
				}
			}
		}
	}
	return list
}
