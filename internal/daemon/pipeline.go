package daemon

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/action"
	"github.com/tailcam/tailcam/tracker"
)

// namers is how many outliers are named at once: one whose process is stuck
// keeps the others waiting no longer than its time limit.
const namers = 4

// pipeline takes outliers from the kernel side as fast as they come. Each gets
// its snapshot at once, so that the recorder is read before anything that may
// take long; then it is named, in the background and within a time limit, and
// published in its turn. The snapshot's writer waits for the names.
func (d *daemon) pipeline(ctx context.Context) error {
	if n := d.cfg.Snapshots.RTPriority; n > 0 {
		if err := snapshot.RealTime(n); err != nil {
			return err
		}
	}
	inTurn := make(chan *tracker.Outlier, backlog)
	unnamed := make(chan *tracker.Outlier, backlog+1) // what it has is in turn, or the one waited for
	var handled sync.WaitGroup
	for range namers {
		handled.Go(func() {
			for o := range unnamed {
				d.enrich(o)
				o.Later.Done()
			}
		})
	}
	handled.Go(func() {
		for o := range inTurn {
			o.Later.Wait()
			d.feed.Publish(o)
			d.act(rules.OnOutlier, []tracker.Outlier{*o}, action.Job{})
		}
	})
	stop := context.AfterFunc(ctx, func() {
		if err := d.kernel.Stop(); err != nil {
			d.log.Warn("stop the kernel side", zap.Error(err))
		}
	})
	defer stop()
	defer handled.Wait()
	defer close(unnamed)
	defer close(inTurn)
	for {
		o, err := d.kernel.Read()
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		o.NewLater()
		if d.manager != nil {
			d.manager.Submit(o, o.From)
		}
		select {
		case inTurn <- o:
			unnamed <- o
		default: // its snapshot, if it has one, is taken
			d.dropped.add(o.Rule)
			o.Later.Done()
		}
	}
}

// afterSnapshot starts the actions of a snapshot, and keeps it from retention
// until they have ended.
func (d *daemon) afterSnapshot(done snapshot.Done) {
	if done.Err != nil || len(done.Outliers) == 0 {
		return
	}
	d.feed.Explain(done.Outliers)
	d.act(rules.OnSnapshot, done.Outliers, action.Job{ID: done.ID, Dir: done.Dir, Done: d.store.Hold(done.ID)})
}

func (d *daemon) act(on string, outliers []tracker.Outlier, job action.Job) {
	job.Items = action.ItemsFor(on, outliers, d.rule)
	if len(job.Items) == 0 && job.Done == nil {
		return
	}
	d.actions.Submit(job)
}

// rule finds a rule as it was loaded last; nil: it is gone.
func (d *daemon) rule(name string) *rules.Rule {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.rules {
		if d.rules[i].Name == name {
			return &d.rules[i]
		}
	}
	return nil
}

// cgroups answers the kernel side's questions.
type cgroups struct{ table *process.Table }

func (c cgroups) CgroupPath(id uint64) (string, error) { return c.table.CgroupPath(id) }

// WalkCgroups walks nothing where there is no cgroup v2: all tasks are then in "/".
func (c cgroups) WalkCgroups(visit func(id uint64, path string)) error {
	err := c.table.Walk(visit)
	if errors.Is(err, process.ErrNoCgroup2) {
		return nil
	}
	return err
}

// dropCounter counts by rule.
type dropCounter struct {
	rules sync.Map // name to *atomic.Uint64
}

func (c *dropCounter) add(rule string) {
	n, _ := c.rules.LoadOrStore(rule, new(atomic.Uint64))
	n.(*atomic.Uint64).Add(1)
}

func (c *dropCounter) get(rule string) uint64 {
	n, ok := c.rules.Load(rule)
	if !ok {
		return 0
	}
	return n.(*atomic.Uint64).Load()
}
