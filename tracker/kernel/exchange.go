package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// What another daemon has left may be of another version whose maps hold the same, or its
// configuration or rules may have needed other programs. Then programs of this one go on
// with the maps, and take their places as those of a reload do: each event is seen by one
// of the two.

// loadFor loads spec for maps that are pinned. Those whose size has changed begin with
// nothing.
func (o *Objects) loadFor(spec *ebpf.CollectionSpec, plan *Plan, pinned map[string]*ebpf.Map) (*ebpf.Collection, error) {
	if seed := o.pinning.before.SpanSeed; len(seed) == len(spec.Variables[spanSeed].Value) {
		spec.Variables[spanSeed].Value = seed
	}
	if spec.Maps["records"].MaxEntries != pinned["records"].MaxEntries() {
		return nil, errors.New("the recorder's rings have another size")
	}
	kept := map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		have := pinned[name]
		if m.MaxEntries == 0 { // the library counts CPUs
			m.MaxEntries = have.MaxEntries()
		}
		switch {
		case name == constantsMap:
		case m.MaxEntries != have.MaxEntries():
			o.pinning.takeover.Begun = append(o.pinning.takeover.Begun, name)
		default:
			m.ValueSize = have.ValueSize()
			kept[name] = have
		}
	}
	slices.Sort(o.pinning.takeover.Begun)
	return newCollection(spec, kept, plan.Unrecorded)
}

// begun reports whether a map began with nothing, although others were taken over.
func (o *Objects) begun(m *ebpf.Map) bool {
	return slices.ContainsFunc(o.pinning.takeover.Begun, func(name string) bool { return o.loaded.Load().byName[name] == m })
}

// exchange has the hooks that are attached run the programs of n. What is pinned is not
// complete until pinComplete.
func (o *Objects) exchange(n *build) error {
	if err := errors.Join(o.pinBegin(), o.setUnhooked(n.plan)); err != nil {
		return err
	}
	if _, err := o.Calls().LearnRegs.Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("find the registers of user space: %w", err)
	}
	for i := range kinds.Hooks {
		if err := o.exchangeHook(kinds.Hooks[i].Program, n.programs); err != nil {
			return err
		}
	}
	fresh, err := newHooks(n.specs, o.lacking(n.programs))
	if err != nil {
		return err
	}
	maps.Copy(o.hooks, fresh)
	names, err := o.pinning.to().Names()
	if err != nil {
		return err
	}
	o.pinning.put = map[string]descriptor{}
	for _, name := range names { // all that nobody wants any more is removed
		if ofObjects(name) {
			o.pinning.put[name] = nil
		}
	}
	return o.putObjects()
}

// ofObjects reports whether a pin is one of those that Objects.objects lists.
func ofObjects(name string) bool {
	for _, jump := range []string{programPin + jumpPin, mapPin + jumpPin} {
		if hook, ok := strings.CutPrefix(name, jump); ok && besideMain(hook) {
			return false
		}
	}
	return strings.HasPrefix(name, programPin) || strings.HasPrefix(name, mapPin) && !strings.HasPrefix(name, mapPin+segmentInfix)
}

// exchangeHook has a hook that is pinned run its program among those, or detaches it.
func (o *Objects) exchangeHook(name string, programs map[string]*ebpf.Program) error {
	j, err := openJump(o.pinning.to(), name)
	switch {
	case errors.Is(err, errNotPinned):
		return nil
	case err != nil:
		return fmt.Errorf("take over what runs %s: %w", name, err)
	case programs[name] == nil:
		return errors.Join(o.pinning.to().Remove(linkPin+name), j.Close())
	}
	o.hooks[name] = j
	return j.To(programs[name])
}

// exchanged tells programs that are new what happened before them, when all are attached.
func (o *Objects) exchanged() error {
	p := &o.pinning
	if p.takeover.Programs == "" {
		return nil
	}
	if !maps.Equal(p.before.Groups, o.Plan().Groups) {
		p.since = linux.Monotonic()
		p.before.Attached = p.since
	}
	return errors.Join(o.seedNames(), o.eachTask(seedTasksProgram))
}

// unpinSegments removes the segments of a table that begins anew.
func (o *Objects) unpinSegments(table int) error {
	names, err := o.pinning.to().Names()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if strings.HasPrefix(name, fmt.Sprintf("%s%s%d_", mapPin, segmentInfix, table)) {
			errs = append(errs, o.pinning.to().Remove(name))
		}
	}
	return errors.Join(errs...)
}
