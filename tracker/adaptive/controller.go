package adaptive

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tailcam/tailcam/tracker/install"
)

// Kernel is what a Controller reads and sets; *install.Rules is one.
type Kernel interface {
	Adaptives() (generation uint32, list []install.Adaptive, err error)
	Retune(generation uint32, list []install.Tuning) error
}

// Controller keeps every adaptive threshold of the running rules up to date.
// Its methods may be called from several goroutines at once.
type Controller struct {
	kernel Kernel

	mu        sync.Mutex
	followers map[key]*Follower
	states    map[key]State
}

type key struct{ rule, class string }

// NewController returns one that has seen nothing.
func NewController(kernel Kernel) *Controller {
	return &Controller{kernel: kernel, followers: map[key]*Follower{}}
}

// Idle reports whether no threshold was adaptive at the last Tick.
func (c *Controller) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.followers) == 0
}

// Tick reads the histograms of all adaptive thresholds and changes those
// thresholds that have moved. To be called about once a second: a shift of the
// load is followed at the next tick. Rules that were replaced in between are
// looked at in the next one.
func (c *Controller) Tick(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	generation, list, err := c.kernel.Adaptives()
	if err != nil {
		return fmt.Errorf("read the histograms of adaptive thresholds: %w", err)
	}
	followers := map[key]*Follower{}
	states := map[key]State{}
	var tunings []install.Tuning
	for i := range list {
		a := &list[i]
		k := key{a.Rule, a.Class}
		f := c.followers[k]
		if f == nil || f.spec.Window != a.Spec.Window { // it is new, or its past is not kept for long enough
			f = New(a.Spec)
		}
		f.spec = a.Spec // a reload may have changed it
		followers[k] = f
		s := f.Update(now, &a.Seen)
		if keep(a.Threshold, &s) {
			s.Threshold = a.Threshold
		} else if s.Threshold != a.Threshold {
			tunings = append(tunings, install.Tuning{Rule: a.Rule, Override: a.Override, Threshold: s.Threshold})
		}
		states[k] = s
	}
	c.followers, c.states = followers, states
	if len(tunings) == 0 {
		return nil
	}
	if err := c.kernel.Retune(generation, tunings); err != nil && !errors.Is(err, install.ErrStale) {
		return err
	}
	return nil
}

// keep reports whether the threshold of now is as good as the one that was
// found: quantiles are not known better than to a few per cent.
func keep(now time.Duration, s *State) bool {
	if now == 0 || s.Threshold == 0 {
		return false
	}
	return (now - s.Threshold).Abs() < s.Threshold/32
}

// State is that of one threshold after the last Tick: class is "" for the
// rule's own, and compile.OverrideClass for that of an override, wherever it
// stands now. ok: there is one.
func (c *Controller) State(rule, class string) (s State, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok = c.states[key{rule, class}]
	return s, ok
}
