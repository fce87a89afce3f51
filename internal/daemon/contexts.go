package daemon

import (
	"context"
	"encoding/hex"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/contexts"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// openContexts prepares the search for processes that publish the contexts of their threads.
func (d *daemon) openContexts() error {
	if d.cfg.Activities.Enabled {
		d.contexts = contexts.New(&contexts.Options{
			Find: func(pid int) (abi.ContextPlace, error) { return contexts.Find(d.symbols, pid) },
			Set:  d.kernel.SetContext, Log: d.log.Named("contexts"),
		})
		d.attributes = contexts.NewAttributes(d.cfg.Activities.Attributes, d.symbols.ContextKeys)
	}
	return nil
}

// findContexts runs the search until ctx is done.
func (d *daemon) findContexts(ctx context.Context) error {
	if d.contexts == nil {
		return nil
	}
	return d.contexts.Run(ctx)
}

// publishedContexts is snapshot.Options.Contexts.
func (d *daemon) publishedContexts(from, to uint64) (list []snapshot.PublishedContext) {
	if d.contexts == nil || d.contexts.Publishers() == 0 {
		return nil
	}
	kept, err := d.kernel.KeptContexts(from, to)
	if err != nil {
		d.log.Warn("contexts of threads beside the slow one", zap.Error(err))
	}
	for i := range kept {
		k := &kept[i]
		x := snapshot.PublishedContext{MonoNS: k.MonoNS, TraceID: hex.EncodeToString(k.TraceID[:]), SpanID: hex.EncodeToString(k.SpanID[:])}
		if k.Ran {
			x.TID = k.Of
		} else {
			x.WokenTID = k.Of
		}
		list = append(list, x)
	}
	return list
}

// learnContext waits for the context of a thread, which follows outliers at switches. Of a
// process without one it is looked for again.
func (d *daemon) learnContext(o *events.Outlier) {
	if d.contexts == nil || o.Task.Kernel || o.Task.PID == 0 {
		return
	}
	if o.Context != nil {
		trace := o.Context.Wait(copyTimeout)
		o.Enrichment.Learn(func(o *events.Outlier) { o.SetTrace(trace) })
	}
	if o.TraceID == "" && o.Switches > 0 {
		d.learnContextOfSleeper(o)
	}
	if o.TraceID == "" {
		d.contexts.Missing(o.Task.PID)
	}
}

// learnContextOfSleeper has the context read of a thread that has not run since it was reported
// by a timeout: so it is that of then.
func (d *daemon) learnContextOfSleeper(o *events.Outlier) {
	switch rules.Track(o.Track) {
	case rules.Syscall, rules.OffCPU, rules.Wakeup, rules.Pair:
	default: // a task that was interrupted, or a worker
		return
	}
	if d.contexts.Publishers() == 0 {
		return
	}
	sleeps := func() (abi.ContextThread, bool) {
		t, ok, err := d.kernel.ContextThread(o.Task.TID)
		if err != nil {
			d.log.Debug("the context of a thread that sleeps", zap.Error(err))
		}
		return t, err == nil && ok && t.Running == 0 && t.Switches == o.Switches
	}
	t, ok := sleeps()
	if !ok {
		return
	}
	found := contexts.Read(d.symbols, []abi.ContextThread{t}, time.Now().Add(copyTimeout))
	if _, still := sleeps(); still && len(found) == 1 {
		o.Enrichment.Learn(func(o *events.Outlier) { o.SetTrace(found[0].Trace) })
	}
}

// learnAttributes names what stands beside the context that learnContext has waited for.
func (d *daemon) learnAttributes(o *events.Outlier) {
	if d.attributes == nil || o.Context == nil || !o.Context.IsKnown() {
		return
	}
	raw := o.Context.Wait(copyTimeout).Attributes
	if raw == nil {
		return
	}
	image := process.Image{StartCode: raw.StartCode, StartStack: raw.StartStack}
	if named := d.attributes.Named(raw.PID, image, raw.Data); named != nil {
		o.Enrichment.Learn(func(o *events.Outlier) { o.Attributes = named })
	}
}
