// Package otlp sends outliers as log records, and the daemon's metrics, to an
// OpenTelemetry collector. What is handed to it is queued and never waited for; what
// the collector does not take in time is dropped and counted. docs/otlp.md lists
// what is sent.
package otlp

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	collogspb "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	logspb "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/tracker/events"
)

// Protocols, by their names in OpenTelemetry's specification.
const (
	HTTP = "http/protobuf"
	GRPC = "grpc"
)

const (
	queueCapacity = 1024    // outliers
	maxBatch      = 256     // outliers in one request
	maxBatchBytes = 1 << 20 // of one request, before compression; collectors take 4 MiB and more
	gatherTime    = 200 * time.Millisecond
	firstBackoff  = time.Second
	maxBackoff    = 30 * time.Second
	flushTime     = 2 * time.Second // for what is left when the daemon stops
	warnEvery     = time.Minute
)

// Options are where to send what. Endpoint, Protocol and Version are required.
type Options struct {
	Endpoint string // URL of a collector, without the path of a signal
	Protocol string // HTTP or GRPC
	Headers  map[string]string
	TLS      *tls.Config       // nil: the system's authorities, no certificate
	Host     string            // name of this host; empty: the machine's own
	Resource map[string]string // attributes that replace or add to those of this host
	Version  string            // of tailcam
	// SnapshotURL returns where a snapshot is sent to; empty: there is no link. nil: there are none.
	SnapshotURL func(id string) string
	Logs        bool // send outliers
	Metrics     prometheus.Gatherer
	Interval    time.Duration // of metrics
	Start       time.Time     // when the counters of Metrics began
	Counts      *Counts       // nil: of this exporter alone
	Log         *zap.Logger   // nil: silent
	Guard       *guard.Guard  // nil: panics end the program
}

// Exporter sends to one collector. Its methods may be called concurrently and
// never wait for it, but for Run.
type Exporter struct {
	opts   Options
	log    *zap.Logger
	client *client
	queue  *queue
	hold   *hold

	counts *Counts

	noMetrics bool // the collector has no pipeline for them, and the log says so; of sendMetrics

	warning sync.Mutex
	warned  time.Time
}

// New checks the options. Nothing is sent before Run.
func New(opts *Options) (*Exporter, error) {
	c, err := newClient(opts)
	if err != nil {
		return nil, err
	}
	e := &Exporter{opts: *opts, log: opts.Log, client: c, counts: opts.Counts}
	if e.counts == nil {
		e.counts = &Counts{}
	}
	e.queue = newQueue(queueCapacity, &e.counts.dropped)
	if e.log == nil {
		e.log = zap.NewNop()
	}
	e.hold = newHold(func(o *events.Outlier) { e.queue.push(item{o, time.Now()}) }, time.Now)
	return e, nil
}

// Publish takes an outlier that is published for the first time. It must not be
// modified afterwards, as those of Complete and Explain.
func (e *Exporter) Publish(o *events.Outlier) {
	if e != nil && e.opts.Logs {
		e.hold.publish(o)
	}
}

// Complete takes the complete version of an outlier that was published as partial.
func (e *Exporter) Complete(o *events.Outlier) {
	if e != nil && e.opts.Logs {
		e.hold.complete(o)
	}
}

// Explain takes the outliers of a snapshot that was written, or has failed.
func (e *Exporter) Explain(outliers []events.Outlier, failed bool) {
	if e != nil && e.opts.Logs {
		e.hold.explain(outliers, failed)
	}
}

// Run sends until ctx ends, and then for at most two seconds what is left. It returns
// nil: no collector ends the daemon.
func (e *Exporter) Run(ctx context.Context) error {
	var all sync.WaitGroup
	if e.opts.Logs {
		all.Go(func() { e.sendLogs(ctx) })
	}
	if e.opts.Metrics != nil {
		all.Go(func() { e.sendMetrics(ctx) })
	}
	all.Wait()
	e.client.http.CloseIdleConnections()
	return nil
}

// sendLogs sends the queue, one batch at a time.
func (e *Exporter) sendLogs(ctx context.Context) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
			defer cancel()
			e.hold.expire(true)
			for e.queue.len() > 0 && last.Err() == nil {
				e.sendBatch(last, false)
			}
			e.queue.dropAll()
			return
		case <-second.C:
			e.hold.expire(false)
			continue
		case <-e.queue.wake:
		}
		pause(ctx, gatherTime) // more come at the same time
		e.hold.expire(false)
		for e.queue.len() > 0 && ctx.Err() == nil {
			e.sendBatch(ctx, true)
		}
	}
}

// sendBatch sends some of the queue. If patient, it repeats that until the collector
// has answered for good, or ctx ends; then the batch is back in the queue.
func (e *Exporter) sendBatch(ctx context.Context, patient bool) {
	batch, request := e.take()
	if len(batch) == 0 {
		return
	}
	backoff := firstBackoff
	for {
		answer := new(collogspb.ExportLogsServiceResponse)
		err := e.client.send(ctx, logsSignal, request, answer)
		e.count(logsSignal, err)
		var refused *refusedError
		switch {
		case err == nil:
			if p := answer.GetPartialSuccess(); p.GetRejectedLogRecords() > 0 {
				n := min(p.GetRejectedLogRecords(), int64(len(batch)))
				e.counts.rejected.add("", uint64(n)) // it does not say which
				e.warn("the collector rejected outliers", zap.Int64("outliers", n), zap.String("reason", clip(p.GetErrorMessage())))
			}
			return
		case !errors.As(err, &refused) || !refused.retry:
			for _, it := range batch {
				e.counts.rejected.add(it.Rule, 1)
			}
			e.warn("the collector refused outliers", zap.Int("outliers", len(batch)), zap.Error(err))
			return
		case !patient:
			e.queue.drop(batch...)
			return
		}
		e.warn("the collector does not take outliers; trying again", zap.Error(err))
		if !pause(ctx, max(refused.after, backoff/2+rand.N(backoff/2))) { //nolint:gosec // spreads the load of many hosts
			for _, it := range batch {
				e.queue.push(it)
			}
			return
		}
		e.hold.expire(false)
		backoff = min(2*backoff, maxBackoff)
	}
}

// take returns outliers of the queue and the request with them. One that cannot be
// converted is left out and counted.
func (e *Exporter) take() (batch []item, request *collogspb.ExportLogsServiceRequest) {
	scope := &logspb.ScopeLogs{Scope: e.scope()}
	size := 0
	for len(batch) < maxBatch && size < maxBatchBytes {
		it, ok := e.queue.pop()
		if !ok {
			break
		}
		var record *logspb.LogRecord
		err := e.opts.Guard.Do(guard.Publish, func() (err error) {
			record, err = logRecord(it.Outlier, it.observed)
			if err == nil && it.Snapshot != nil && e.opts.SnapshotURL != nil {
				addText(record, prefix+"snapshot_url", e.opts.SnapshotURL(*it.Snapshot))
			}
			return err
		})
		if err != nil {
			e.queue.drop(it)
			e.warn("an outlier could not be sent", zap.Error(err))
			continue
		}
		size += proto.Size(record)
		batch = append(batch, it)
		scope.LogRecords = append(scope.LogRecords, record)
	}
	return batch, &collogspb.ExportLogsServiceRequest{ResourceLogs: []*logspb.ResourceLogs{{
		Resource: e.resource(), ScopeLogs: []*logspb.ScopeLogs{scope},
	}}}
}

// warn logs a failure, at most once a minute, as there may be one for each request, and
// reports whether it did.
func (e *Exporter) warn(message string, fields ...zap.Field) bool {
	e.warning.Lock()
	now := time.Now()
	quiet := now.Sub(e.warned) < warnEvery
	if !quiet {
		e.warned = now
	}
	e.warning.Unlock()
	if !quiet {
		e.log.Warn(message, append(fields, zap.String("endpoint", e.client.base.String()))...)
	}
	return !quiet
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
