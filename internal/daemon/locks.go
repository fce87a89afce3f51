package daemon

import "context"

// watchLocks attaches the hooks of contended locks while these are few enough to be cheap. Without
// hooks nobody counts them: they are attached again after a while, to see.
func (d *daemon) watchLocks(ctx context.Context) error {
	d.watchGate(ctx, &gated{
		gate: &d.cost.locks, hooks: "the hooks of contended locks", key: "budget.locks", count: d.kernel.Contended,
		many: "too many contended locks of the kernel for hooks: from here on they are not recorded",
		few:  "the hooks of contended locks are attached again, to see how many there are",
	})
	return nil
}
