package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/tailcam/tailcam/internal/helper"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// CheckLoad loads and attaches rules on this kernel, and takes them off again.
func CheckLoad(_ context.Context, list []rules.Rule) error {
	hosts := process.New(nil)
	defer hosts.Close() //nolint:errcheck // only read from
	programs, err := helper.New(&helper.Options{NoLines: true})
	if err != nil {
		return err
	}
	defer programs.Close() //nolint:errcheck // who hangs in the kernel is left behind
	t, err := tracker.New(list, &tracker.Options{Cgroups: cgroups{hosts}, Programs: programs})
	if err != nil {
		return err
	}
	err = t.Attach()
	for name, why := range t.Inactive() {
		err = errors.Join(err, fmt.Errorf("rule %s: %w", name, why))
	}
	return errors.Join(err, t.Close())
}
