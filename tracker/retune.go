package tracker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/histogram"
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
func (t *Tracker) Adaptives() (generation uint32, list []Adaptive, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, r := range t.live.source {
		h := &t.live.histogramOf[i]
		add := func(override, number int, spec *rules.Adaptive, now time.Duration, class string) {
			if spec == nil || err != nil {
				return
			}
			a := Adaptive{Rule: r.Name, Override: override, Class: class, Spec: *spec, Threshold: now}
			a.Seen, _, err = t.distribution(number)
			list = append(list, a)
		}
		add(OwnThreshold, h.own, r.Adaptive, r.Threshold, "")
		for j := range r.Overrides {
			o := &r.Overrides[j]
			if o.Adaptive != nil {
				add(j, h.overrides[j], o.Adaptive, o.Threshold, OverrideClass(&o.When))
			}
		}
	}
	return t.live.generation, list, err
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
// are not live any more, it returns ErrStale and changes nothing.
func (t *Tracker) Retune(generation uint32, list []Tuning) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.live
	if c.generation != generation {
		return ErrStale
	}
	sources := slices.Clone(c.source)
	var writes []func() error
	for _, n := range list {
		i := slices.IndexFunc(sources, func(r *rules.Rule) bool { return r.Name == n.Rule })
		if i < 0 || n.Override >= len(sources[i].Overrides) {
			return fmt.Errorf("change the threshold of rule %s: there is no such rule or override", n.Rule)
		}
		r := *sources[i]
		if n.Override == OwnThreshold {
			r.Threshold = n.Threshold
		} else {
			r.Overrides = slices.Clone(r.Overrides)
			r.Overrides[n.Override].Threshold = n.Threshold
		}
		sources[i] = &r
		writes = append(writes, func() error { return t.writeThresholds(c, i, &r) })
	}
	plain := make([]rules.Rule, len(sources))
	for i, r := range sources {
		plain[i] = *r
	}
	floors := newFloors(plain)
	both := floors.lowest(&c.floors)
	if err := t.writeFloors(&both); err != nil {
		return fmt.Errorf("change thresholds: %w", err)
	}
	c.source, c.floors = sources, both // the reader judges by them from now on
	for _, write := range writes {
		if err := write(); err != nil {
			return fmt.Errorf("change thresholds: %w", err)
		}
	}
	if err := t.writeFloors(&floors); err != nil {
		return fmt.Errorf("change thresholds: %w", err)
	}
	c.floors = floors
	return nil
}

// writeThresholds writes those of rule i, each as one word: programs may be reading it.
func (t *Tracker) writeThresholds(c *compiled, i int, r *rules.Rule) error {
	half := int(c.generation & 1)
	const rule, override = int(unsafe.Sizeof(bpf.TailcamRule{})), int(unsafe.Sizeof(bpf.TailcamOverride{}))
	const inRule, inOverride = unsafe.Offsetof(bpf.TailcamRule{}.ThresholdNs), unsafe.Offsetof(bpf.TailcamOverride{}.ThresholdNs)
	c.rules[i].ThresholdNs = limitOf(r.Threshold)
	err := writeWord(t.ruleMemory, (half*maxRules+i)*rule+int(inRule), c.rules[i].ThresholdNs)
	for j := range r.Overrides {
		at := int(c.rules[i].FirstOverride) + j
		c.overrides[at].ThresholdNs = limitOf(r.LimitsOf(j).Threshold)
		err = errors.Join(err, writeWord(t.overrideMemory, (half*maxOverrides+at)*override+int(inOverride), c.overrides[at].ThresholdNs))
	}
	return err
}

func writeWord(m *ebpf.Memory, at int, v uint64) error {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], v)
	_, err := m.WriteAt(word[:], int64(at))
	return err
}

// carryThresholds gives adaptive rules that stay, by their name, the threshold
// that they have now, so that a reload does not make them quiet. Under t.mu.
func (t *Tracker) carryThresholds(list []rules.Rule) []rules.Rule {
	if t.live == nil {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		r := &list[i]
		at := slices.IndexFunc(t.live.source, func(o *rules.Rule) bool { return o.Name == r.Name && o.Track == r.Track })
		if at < 0 || !r.IsAdaptive() {
			continue
		}
		was := t.live.source[at]
		if r.Adaptive != nil && was.Adaptive != nil {
			r.Threshold = r.Adaptive.Clamp(was.Threshold)
		}
		r.Overrides = slices.Clone(r.Overrides)
		for j := range r.Overrides {
			o := &r.Overrides[j]
			if o.Adaptive == nil {
				continue
			}
			key := OverrideClass(&o.When)
			for k := range was.Overrides {
				w := &was.Overrides[k]
				if w.Adaptive != nil && OverrideClass(&w.When) == key {
					o.Threshold = o.Adaptive.Clamp(w.Threshold)
					break
				}
			}
		}
	}
	return list
}

// tracked is a floor that no delay reaches either, but unlike never it lets work be tracked.
const tracked = math.MaxInt64 - 1
