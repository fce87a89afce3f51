package kernel

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/tracker/pins"
)

// Hooks beside those of the main object are pinned as these are, with a prefix of their kind
// (declaredPin, callPin) before their names: the link after linkPin, what is attached by it after
// programPin and jumpPin, and the table that this jumps through after mapPin and jumpPin.

// besideMain reports whether a name is of such a hook.
func besideMain(name string) bool {
	return strings.HasPrefix(name, declaredPin) || strings.HasPrefix(name, callPin)
}

// putLink pins a link.
func putLink(store pins.Store, name string, l link.Link) error {
	fd, err := linkFD(l)
	if err != nil {
		return err
	}
	return store.Put(linkPin+name, fd)
}

// pinnedHook is a link that is pinned.
func (o *Objects) pinnedHook(name string, l link.Link) *pinnedLink {
	return &pinnedLink{Link: l, pinning: &o.pinning, name: linkPin + name}
}

// takeLink opens the pinned link of a program.
func (o *Objects) takeLink(store pins.Store, p *ebpf.Program, name string) (*pinnedLink, error) {
	fd, err := store.Get(linkPin + name)
	if err != nil {
		return nil, err
	}
	l, err := link.NewFromFD(fd)
	if err != nil {
		return nil, err
	}
	if err := ofProgram(l, p); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return o.pinnedHook(name, l), nil
}

// unpinOthers removes the hooks of a kind that were left, and not taken over, with their tables,
// and reports whether there were any. They have ended when it returns.
func (o *Objects) unpinOthers(kind string, taken map[string]bool) (any bool, err error) {
	store := o.pinning.to()
	if store == nil {
		return false, nil
	}
	names, err := store.Names()
	if err != nil {
		return false, err
	}
	var errs []error
	for _, name := range names {
		for _, pin := range []string{linkPin + kind, programPin + jumpPin + kind, mapPin + jumpPin + kind} {
			if hook, ok := strings.CutPrefix(name, pin); ok && !taken[hook] {
				any = true
				errs = append(errs, store.Remove(name))
			}
		}
	}
	if any {
		time.Sleep(o.detachGrace())
	}
	return any, errors.Join(errs...)
}

// openProgram opens a pinned program.
func openProgram(store pins.Store, name string) (*ebpf.Program, error) {
	fd, err := store.Get(programPin + name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotPinned, err)
	}
	return ebpf.NewProgramFromFD(fd)
}

// isPinned reports whether something of that name is.
func isPinned(store pins.Store, name string) bool {
	fd, err := store.Get(name)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}
