package daemon

import (
	"context"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/action"
	"github.com/tailcam/tailcam/tracker/events"
)

// newPipeline connects the pipeline to the other parts.
func (d *daemon) newPipeline() *pipeline {
	p := &pipeline{
		read: func() (*events.Outlier, error) {
			o, err := d.kernel.Read()
			d.outlierCame()
			return o, err
		},
		submit: func(*events.Outlier) {},
		enrich: d.enrich,
		publish: func(o *events.Outlier) {
			d.tally.Outlier(o)
			d.feed.Publish(o)
			d.collector.Load().Publish(o)
			d.act(rules.OnOutlier, []events.Outlier{*o}, &action.Job{})
		},
		complete: func(o *events.Outlier) {
			d.feed.Complete(o)
			d.collector.Load().Complete(o)
		},
		guard: d.guard,
		log:   d.log,
		now:   time.Now,
		run:   strconv.FormatInt(d.start.UnixMilli(), 36),
	}
	return p.prepare()
}

// readOutliers runs the pipeline until ctx is done.
func (d *daemon) readOutliers(ctx context.Context) error {
	if n := d.cfg.Snapshots.RTPriority; n > 0 {
		if err := snapshot.RealTime(n); err != nil {
			return err
		}
	}
	d.boost.Prompt()
	stop := context.AfterFunc(ctx, func() {
		if err := d.kernel.Stop(); err != nil {
			d.log.Warn("stop the kernel side", zap.Error(err))
		}
	})
	defer stop()
	return d.outliers.serve()
}

// afterSnapshot starts the actions of a snapshot and holds it until they have ended and it
// is packed.
func (d *daemon) afterSnapshot(done snapshot.Done) {
	job := action.Job{ID: done.ID, Dir: done.Dir}
	on, given := rules.OnSnapshot, done.Outliers
	manual := done.Trigger()
	if o := manual; o != nil {
		on, given, job.Reason = rules.OnTrigger, []events.Outlier{*o}, done.Reason
		done.Outliers = nil // no rule's: its answer tells of it
	}
	d.tally.Snapshot(&done)
	d.exportExplained(&done)
	if done.Err != nil {
		return
	}
	if manual != nil {
		d.feed.FinishManual(done.Dir, manual)
	}
	d.feed.Finish(done.Dir, done.Outliers)
	job.Done = d.upload(done.ID) // with what the actions leave in it
	d.act(on, given, &job)
}

// rule returns a running rule, or nil.
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
