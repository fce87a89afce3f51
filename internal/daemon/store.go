package daemon

import (
	"cmp"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/snapshot"
)

func (d *daemon) openStore() (err error) {
	d.store, err = snapshot.OpenStore(snapshot.StoreOptions{
		Dir:       d.cfg.Snapshots.Dir,
		Retention: retention(d.cfg.Snapshots.Keep),
		MinFree:   uint64(d.cfg.Snapshots.MinFree),
		Logger:    d.log.Named("snapshots"),
		Thread: func() {
			if n := d.cfg.Snapshots.RTPriority; n > 0 {
				_ = snapshot.RealTime(n) // the writer reports errors
			}
		},
	})
	return err
}

// openBoost prepares what raises priorities; without, snapshots take longer on a busy machine.
func (d *daemon) openBoost() error {
	if d.cfg.Snapshots.Boost == 0 || d.cfg.Snapshots.RTPriority > 0 {
		return nil
	}
	if d.boost, d.boostError = snapshot.NewBoost(d.cfg.Snapshots.Boost); d.boostError != nil {
		d.log.Info("snapshots are taken at ordinary priority", zap.Error(d.boostError))
	}
	return nil
}

func retention(keep config.Keep) snapshot.Retention {
	return snapshot.Retention{Count: keep.Count, Bytes: uint64(keep.Bytes), Age: keep.Age, Worst: keep.Worst}
}

// storeLosses lists the losses of the snapshot store.
func (d *daemon) storeLosses() []api.Loss {
	stats := d.manager.Stats()
	stalled := "the disk of " + d.store.Dir() + " did not answer for seconds: outliers were reported, snapshots delayed"
	if what, since := d.store.Stalled(); what != "" {
		stalled = fmt.Sprintf("the disk of %s does not answer: %q is blocked for %s; fix it, or set another snapshots.dir",
			d.store.Dir(), what, since.Round(time.Second))
	}
	return []api.Loss{
		{Cause: "snapshot_failed", Count: stats.Failed, Advice: "see the log: " + cmp.Or(stats.LastError, "no failures")},
		{Cause: "snapshot_disk_stalled", Count: stats.Stalls, Advice: stalled},
		{Cause: "snapshot_unremovable", Count: uint64(d.store.Unremovable()), Advice: "they stay on disk beyond snapshots.keep: see the log; check them for immutable files and mounts"},
		{Cause: "snapshot_dir_replaced", Count: d.store.Replaced(), Advice: "snapshots.dir was removed or replaced while tailcam was running: its snapshots are no longer managed"},
	}
}
