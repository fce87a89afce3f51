package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/internal/containers"
	"github.com/tailcam/tailcam/internal/helper"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// CheckActivities loads the kernel side of accounts with these groups, and takes it away again.
func CheckActivities(groups []string) error {
	a, err := activities.New(&activities.Options{Groups: groups})
	if err != nil {
		return err
	}
	return a.Close()
}

// CheckLoad loads and attaches rules on this kernel and detaches them again. It
// returns why rules are left out that may be (attach: auto).
func CheckLoad(ctx context.Context, list []rules.Rule) (notes []string, err error) {
	hosts := process.New(nil)
	defer hosts.Close() //nolint:errcheck // only read from
	programs, err := helper.New(&helper.Options{NoLines: true})
	if err != nil {
		return nil, err
	}
	defer programs.Close() //nolint:errcheck // who hangs in the kernel is left behind
	nobody := containers.New(&containers.Options{})
	defer nobody.Close() //nolint:errcheck // asks nobody
	var none atomic.Pointer[containers.Lookup]
	none.Store(nobody)
	t, err := tracker.New(list, &tracker.Options{Cgroups: cgroups{hosts, &none}, Programs: programs})
	if err != nil {
		return nil, err
	}
	if err = t.Attach(); err == nil {
		t.AttachCalls(ctx)
	}
	for _, call := range slices.Sorted(maps.Keys(t.CallFunctions().Failed)) {
		err = errors.Join(err, fmt.Errorf("system call %s: %w", call, t.CallFunctions().Failed[call]))
	}
	err = errors.Join(err, checkTriggers(list, hosts))
	inactive := t.Inactive()
	for _, name := range slices.Sorted(maps.Keys(inactive)) {
		why := fmt.Errorf("rule %s: %w", name, inactive[name])
		if calls, ok := errors.AsType[*tracker.InactiveCalls](why); ok && calls.Attach != rules.AttachFunction {
			notes = append(notes, why.Error())
			continue
		}
		err = errors.Join(err, why)
	}
	return notes, errors.Join(err, t.Close())
}
