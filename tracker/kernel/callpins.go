package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Functions of system calls are pinned end by end: what is attached, and its link. The tables that
// they jump through are of many at once. callsState says that all that are attached are pinned: only
// then does the next daemon see the end of each call that is pending.
const (
	callPin    = "call_"
	callsState = "state-calls"
)

// PinCall pins one end of a function, and returns the link to be closed instead of l. If that
// fails, nothing is pinned from here on: see PinError.
func (o *Objects) PinCall(name string, p *ebpf.Program, l link.Link) link.Link {
	store := o.pinning.to()
	if store == nil {
		return l
	}
	name = callPin + name
	if err := errors.Join(store.Put(programPin+jumpPin+name, p.FD()), putLink(store, name, l)); err != nil {
		o.unpin(fmt.Errorf("pin the hook of a system call: %w", err))
		return l
	}
	return o.pinnedHook(name, l)
}

// TakeCall takes over one pinned end of a function.
func (o *Objects) TakeCall(name string) (*ebpf.Program, link.Link, error) {
	store := o.pinning.to()
	if store == nil || !o.pinning.takeover.Taken {
		return nil, nil, errNotPinned
	}
	name = callPin + name
	p, err := openProgram(store, jumpPin+name)
	if err != nil {
		return nil, nil, err
	}
	l, err := o.takeLink(store, p, name)
	if err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	return p, l, nil
}

// CallTable returns the table that functions jump through: the pinned one of this name, or a new
// one, which it pins.
func (o *Objects) CallTable(name string) (*ebpf.Map, error) {
	store, pin := o.pinning.to(), mapPin+jumpPin+callPin+name
	if store != nil && o.pinning.takeover.Taken {
		if m, err := openMap(store, pin); err == nil {
			return m, nil
		}
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make a table of programs: %w", err)
	}
	if store != nil {
		if err := store.Put(pin, m.FD()); err != nil {
			o.unpin(fmt.Errorf("pin a table of programs: %w", err))
		}
	}
	return m, nil
}

// UnpinCalls removes what was left of functions, and was not taken over: their ends and tables. If
// all that was attached has been taken over, what is pending in system calls goes on.
func (o *Objects) UnpinCalls(taken map[string]bool) error {
	store := o.pinning.to()
	if store == nil {
		return nil
	}
	complete := isPinned(store, callsState)
	others, err := o.unpinOthers(callPin, taken)
	o.pinning.callsTaken = complete && !others && o.pinning.takeover.Taken
	if !o.pinning.callsTaken {
		o.KeepCalls(false)
	}
	return err
}

// KeepCalls notes whether all functions that are, or will be, attached are pinned. If that cannot be
// noted, nothing is pinned from here on.
func (o *Objects) KeepCalls(all bool) {
	store := o.pinning.to()
	if store == nil || all == isPinned(store, callsState) {
		return
	}
	err := func() error {
		if !all {
			return store.Remove(callsState)
		}
		m, err := newState(1, 8)
		if err != nil {
			return err
		}
		defer m.Close() //nolint:errcheck // its pin stays
		return store.Put(callsState, m.FD())
	}()
	if err != nil {
		o.unpin(fmt.Errorf("keep functions of system calls: %w", err))
	}
}
