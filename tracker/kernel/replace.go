package kernel

import (
	"errors"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/tailcam/tailcam/tracker/kinds"
)

// Replace loads the kernel side again, for another plan or other options, and lets it
// take the place of what runs. The maps are the same but for those whose size changes:
// of what was not in use before, and the recorder's rings. The programs change places
// hook by hook, what ends work before what begins it: each event is seen by one of the
// two. Hooks that are new are attached, those that nothing needs any more detached. If it
// fails, all is as it was. Options that size what is in use do not change: of Slots
// those of tables in use, Chains, Buffer, Histograms. It takes a second or more.
func (o *Objects) Replace(plan *Plan, types *btf.Spec, opts *Options) error {
	o.replacing.Lock()
	defer o.replacing.Unlock()
	before := o.loaded.Load()
	n, err := o.build(plan, types, opts)
	if err != nil {
		return err
	}
	fresh, err := newHooks(n.specs, o.lacking(n.programs))
	if err != nil {
		return errors.Join(err, n.drop(before))
	}
	if err := o.pinBegin(); err != nil {
		return errors.Join(err, fresh.close(), n.drop(before))
	}
	if err := o.change(n, before, fresh); err != nil {
		o.pinComplete() // as before
		return err
	}
	o.tables.use(n)
	time.Sleep(o.detachGrace()) // a program may still be at work with the old rings
	n.rings.settle()
	defer o.pinChanged(before)
	var errs []error
	if plan.Groups["sched"] && !before.plan.Groups["sched"] {
		errs = append(errs, o.seedNames())
	}
	if plan.Timeouts && !before.plan.Timeouts {
		errs = append(errs, o.eachTask(seedTasksProgram))
	}
	return errors.Join(errs...)
}

// lacking are the programs whose hooks are not there.
func (o *Objects) lacking(programs map[string]*ebpf.Program) map[string]*ebpf.Program {
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	list := map[string]*ebpf.Program{}
	for name, p := range programs {
		if o.hooks[name] == nil {
			list[name] = p
		}
	}
	return list
}

var errStopped = errors.New("the kernel side is stopping")

// change lets n take the place of before, or changes nothing.
func (o *Objects) change(n *build, before *loaded, fresh hooks) error {
	if err := n.openTables(before); err != nil {
		return errors.Join(err, fresh.close(), n.drop(before))
	}
	o.links.mu.Lock()
	defer o.links.mu.Unlock()
	if o.links.stopped {
		return errors.Join(errStopped, fresh.close(), n.drop(before))
	}
	if err := o.swap(n, fresh); err != nil {
		return errors.Join(err, o.swapBack(before, fresh), n.drop(before))
	}
	o.loaded.Store(n.loaded)
	errs := []error{o.shedLocked(), o.dropHooks()}
	for i := range kinds.Hooks {
		if p := before.programs[kinds.Hooks[i].Program]; p != nil {
			errs = append(errs, p.Close()) // the others are somebody's perhaps, who has just asked for them
		}
	}
	return errors.Join(errs...)
}

// swap puts the programs of n in their places, and attaches what is fresh. Under
// o.links.mu.
func (o *Objects) swap(n *build, fresh hooks) error {
	if n.plan.without(&o.links.shedding).softirqs() {
		if err := o.setUnhooked(n.plan); err != nil {
			return err
		}
	}
	for i := range kinds.Hooks {
		h := &kinds.Hooks[i]
		p := n.programs[h.Program]
		if p == nil {
			continue
		}
		if j := o.hooks[h.Program]; j != nil {
			if err := j.To(p); err != nil {
				return err
			}
			continue
		}
		a, err := o.attachHook(h, fresh[h.Program])
		if err != nil && h.Trackers() == nil {
			n.plan.Unrecorded[h.Site()] = err
			continue
		}
		if err != nil {
			return err
		}
		o.hooks[h.Program] = fresh[h.Program]
		delete(fresh, h.Program)
		o.links.list = append(o.links.list, a)
	}
	return fresh.close() // what could not be attached
}

// swapBack undoes what swap has done. Under o.links.mu.
func (o *Objects) swapBack(before *loaded, fresh hooks) error {
	errs := []error{fresh.close()}
	for i := len(kinds.Hooks) - 1; i >= 0; i-- {
		name := kinds.Hooks[i].Program
		j, p := o.hooks[name], before.programs[name]
		switch {
		case j == nil:
		case p == nil:
			errs = append(errs, o.dropHook(name))
		default:
			errs = append(errs, j.To(p))
		}
	}
	return errors.Join(append(errs, o.shedLocked())...)
}

// dropHooks forgets the hooks that what is loaded has no program for; shedLocked has
// detached them. Under o.links.mu.
func (o *Objects) dropHooks() error {
	var errs []error
	now := o.loaded.Load()
	for i := len(kinds.Hooks) - 1; i >= 0; i-- {
		if name := kinds.Hooks[i].Program; o.hooks[name] != nil && now.programs[name] == nil {
			errs = append(errs, o.dropHook(name))
		}
	}
	return errors.Join(errs...)
}

// dropHook detaches and unloads a hook. Under o.links.mu.
func (o *Objects) dropHook(name string) error {
	var errs []error
	o.links.list = slices.DeleteFunc(o.links.list, func(a Attachment) bool {
		if a.Program != name || a.Rule != "" {
			return false
		}
		errs = append(errs, a.Link.Close())
		return true
	})
	errs = append(errs, o.hooks[name].Close())
	delete(o.hooks, name)
	delete(o.links.shed, name)
	return errors.Join(errs...)
}
