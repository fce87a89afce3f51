package kernel

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Hooks of declared pairs are pinned like those of the main object: a Jump and its link,
// after linkPin and jumpPin. What they are is in a record of their own, which is put last
// and removed first: without it, the next daemon attaches them anew.
const (
	declaredPin = "pair_"
	pairsState  = "state-pairs"
	pairsSize   = 32 << 10
)

// PinHook pins the hook of a declared pair, and returns the link to be closed instead of
// l. If that fails, nothing is pinned from here on: see PinError.
func (o *Objects) PinHook(name string, j *Jump, l link.Link) link.Link {
	store := o.pinning.to()
	if store == nil {
		return l
	}
	name = declaredPin + name
	err := errors.Join(store.Put(programPin+jumpPin+name, j.Program.FD()), store.Put(mapPin+jumpPin+name, j.table.FD()), putLink(store, name, l))
	if err != nil {
		o.unpin(fmt.Errorf("pin the hook of a declared pair: %w", err))
		return l
	}
	return o.pinnedHook(name, l)
}

// UnpinHook removes the pins of a hook whose link was closed.
func (o *Objects) UnpinHook(name string) error {
	store := o.pinning.to()
	if store == nil {
		return nil
	}
	return errors.Join(store.Remove(programPin+jumpPin+declaredPin+name), store.Remove(mapPin+jumpPin+declaredPin+name))
}

// TakeHook takes over the pinned hook of a declared pair, if it runs this program.
func (o *Objects) TakeHook(name string, runs ebpf.ProgramID) (*Jump, link.Link, error) {
	store := o.pinning.to()
	if store == nil {
		return nil, nil, errNotPinned
	}
	j, err := openJump(store, declaredPin+name)
	if err != nil {
		return nil, nil, err
	}
	l, err := o.takeLink(store, j.Program, declaredPin+name)
	if err != nil {
		return nil, nil, errors.Join(err, j.Close())
	}
	if id, err := j.Runs(); err != nil || id != runs {
		return nil, nil, errors.Join(fmt.Errorf("it runs program %d, not %d", id, runs), err, l.Link.Close(), j.Close())
	}
	return j, l, nil
}

// UnpinOthers removes the hooks of declared pairs that were left, and not taken over,
// and reports whether there were any. They have ended when it returns.
func (o *Objects) UnpinOthers(taken map[string]bool) (any bool, err error) {
	return o.unpinOthers(declaredPin, taken)
}

// KeepPairs keeps what the next daemon needs to know of the declared pairs, when all
// their hooks are as it says. If that fails, nothing is pinned from here on.
func (o *Objects) KeepPairs(state any) {
	store := o.pinning.to()
	if store == nil {
		return
	}
	err := func() error {
		text, err := json.Marshal(state)
		if err != nil {
			return err
		}
		m, err := newState(1, pairsSize)
		if err != nil {
			return err
		}
		defer m.Close() //nolint:errcheck // its pin stays
		if err := putRecord(m, 0, text); err != nil {
			return err
		}
		return store.Put(pairsState, m.FD())
	}()
	if err != nil {
		o.unpin(fmt.Errorf("keep the declared pairs: %w", err))
	}
}

// ForgetPairs has what is pinned not be of declared pairs while these change. If that
// fails, they must not change.
func (o *Objects) ForgetPairs() error {
	store := o.pinning.to()
	if store == nil {
		return nil
	}
	if err := store.Remove(pairsState); err != nil {
		return fmt.Errorf("change what is pinned: %w", err)
	}
	return nil
}

// KeptPairs decodes what the daemon before has kept of declared pairs. An error is that
// there is nothing to go on with.
func (o *Objects) KeptPairs(into any) error {
	if !o.pinning.takeover.Taken {
		return errNotPinned
	}
	m, err := openMap(o.pinning.to(), pairsState)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // only read from
	return readRecord(m, 0, into)
}

// Unpin goes on without pins, as what is pinned is not what runs.
func (o *Objects) Unpin(why error) {
	if o.Pinned() {
		o.unpin(why)
	}
}
