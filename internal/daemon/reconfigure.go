package daemon

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/tracker"
)

// setBudget changes the budget. What is shed comes back, or more goes, in its own time.
func (d *daemon) setBudget(c *config.Config) error {
	cost := &d.cost
	cost.mu.Lock()
	cost.controller.CPU, cost.softirqs.Limit, cost.locks.Limit = c.Budget.CPU, c.Budget.Softirqs, c.Budget.Locks
	cost.mu.Unlock()
	d.limitHeap(c.Budget.Memory)
	return nil
}

// limitOutliers changes the rate limit of rules. Requires d.change.
func (d *daemon) limitOutliers(c *config.Config) error {
	err := d.kernel.Configure(func(o *tracker.Options) { o.Rate, o.Burst = c.Outliers.Rate, c.Outliers.Burst })
	if err != nil {
		return err
	}
	d.triggers.SetRate(c.Outliers.Rate, c.Outliers.Burst)
	if d.requests != nil {
		d.requests.SetRate(c.Outliers.Rate, c.Outliers.Burst)
	}
	d.mu.Lock()
	d.storms.Rate = c.Outliers.Rate
	d.mu.Unlock()
	return nil
}

// limitTables changes how far the pending tables may grow. Those that are larger stay.
func (d *daemon) limitTables(c *config.Config) error {
	most := &c.Capacity.Max
	return d.kernel.Limit(func(o *tracker.Options) {
		o.MaxTasks, o.MaxSyscalls, o.MaxRequests, o.MaxWorks = most.Tasks, most.Syscalls, most.Block, most.Workqueue
	})
}

// recordEvents changes what is recorded, and with recorder.cover, the size of the rings
// for that. Requires d.change.
func (d *daemon) recordEvents(c *config.Config) error {
	if d.recorder == nil {
		return nil // for the next start
	}
	r := &c.Recorder
	err := d.kernel.Configure(func(o *tracker.Options) { o.Groups, o.IRQFloor = r.Events, r.IRQFloor })
	if err != nil {
		return err
	}
	d.logUnrecorded()
	if r.Backend != flight.BackendMmap {
		return nil
	}
	if r.Cover == 0 {
		return d.openRings()
	}
	return d.resizeRecorder(c)
}

// resizeRecorder changes the size of the recorder's rings. What the old ones hold is read
// once, into the memory of this process, where the next snapshots find it. Requires d.change.
func (d *daemon) resizeRecorder(c *config.Config) error {
	if d.recorder == nil {
		return nil // for the next start
	}
	reason, err := ringReason(&c.Recorder)
	if err != nil {
		return err
	}
	ring, err := d.ringSize(&c.Recorder)
	if err != nil {
		return err
	}
	if err := d.kernel.Configure(func(o *tracker.Options) { o.Ring, o.RingReason = ring, reason }); err != nil {
		return err
	}
	d.ring = ring
	d.manager.SetCover(c.Recorder.Cover)
	return d.openRings()
}

// openRings reads the rings that the kernel side has now, if they are others.
func (d *daemon) openRings() error {
	_, records := d.kernel.Records()
	if records*abi.RecordSize == d.recorder.Size() {
		return nil
	}
	r, err := flight.NewMmap(d.kernel.Recorder())
	if err != nil {
		return fmt.Errorf("open the recorder's new rings: %w", err)
	}
	d.recorder.Replace(r)
	d.manager.Resize(r.Capacity())
	d.limitHeap(d.now.Load().Budget.Memory)
	d.log.Info("the recorder's rings have another size", zap.Int("bytes_per_cpu", r.Size()))
	return nil
}
