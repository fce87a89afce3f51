// Package otlp sends outliers as log records, and the daemon's metrics, to an
// OpenTelemetry collector. What is handed to it is queued, on disk if there is a spool, and
// never waited for; what finds no room there is dropped and counted. docs/otlp.md lists what
// is sent.
package otlp

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	collogspb "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	logspb "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/tracker/events"
)

// Protocols, by their names in OpenTelemetry's specification.
const (
	HTTP = "http/protobuf"
	GRPC = "grpc"
)

const (
	queueCapacity = 1024    // outliers in memory
	maxBatch      = 256     // outliers in one request
	maxBatchBytes = 1 << 20 // of one request, before compression; collectors take 4 MiB and more
	gatherTime    = 200 * time.Millisecond
	saveTime      = 10 * time.Millisecond // from being queued to being on disk; more come at the same time
	saveAgain     = time.Second           // after the disk refused
	openAgain     = time.Minute
	diskTime      = 2 * time.Second // after which what is in memory is sent from there
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
	Logs        bool   // send outliers
	Spool       string // directory where outliers wait, created if missing; empty: they wait in memory alone
	Quota       int64  // bytes of the spool
	MinFree     int64  // bytes that the spool leaves free on its file system
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
	hold   *hold
	queue  *queue
	spool  atomic.Pointer[spool] // nil: there is none, or it cannot be opened
	ready  chan struct{}         // signaled when there is something to send
	asks   chan struct{}         // asks keep for a batch of the spool
	answer chan *batch           // of keep; nil: nothing waits there
	free   atomic.Int64          // MinFree

	counts *Counts

	spoolErr atomic.Pointer[string] // why outliers wait in memory alone; nil: they do not, or shall

	answered struct { // files that the collector has answered for good
		sync.Mutex
		files []stored
	}

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
	e.ready, e.asks, e.answer = make(chan struct{}, 1), make(chan struct{}, 1), make(chan *batch, 1)
	e.free.Store(opts.MinFree)
	if e.log == nil {
		e.log = zap.NewNop()
	}
	e.hold = newHold(func(o *events.Outlier) { e.queue.push(item{o, time.Now()}) }, func() { signalOnce(e.queue.wake) }, time.Now)
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

// SetMinFree changes Options.MinFree.
func (e *Exporter) SetMinFree(bytes int64) { e.free.Store(bytes) }

// Run sends until ctx ends, and then for at most two seconds what is left; what a spool has
// waits there for the next one. It returns nil: no collector and no disk ends the daemon. Of a
// disk that hangs, it leaves a goroutine behind.
func (e *Exporter) Run(ctx context.Context) error {
	var all sync.WaitGroup
	if e.opts.Logs {
		all.Go(func() { e.sendLogs(ctx) })
	}
	if e.opts.Metrics != nil {
		all.Go(func() { e.sendMetrics(ctx) })
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		all.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		if !pauseUntil(ended, 2*(flushTime+diskTime)) {
			e.log.Warn("OTLP does not stop: the disk of otlp.spool may hang", zap.String("spool", e.opts.Spool))
		}
	}
	e.client.http.CloseIdleConnections()
	return nil
}

// sendLogs sends what is queued, one batch at a time. It uses no disk: keep does.
func (e *Exporter) sendLogs(ctx context.Context) {
	saved, enough, kept := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		e.keep(ctx, saved, enough)
	}()
	second := pulse.After(time.Second) // should keep hang
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-second:
			second = pulse.After(time.Second)
			if e.queue.len() == 0 {
				continue
			}
		case <-e.ready:
			pause(ctx, gatherTime) // more come at the same time
		}
		for ctx.Err() == nil && e.sendBatch(ctx, true) {
			continue
		}
	}
	pauseUntil(saved, diskTime)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	for last.Err() == nil && e.sendBatch(last, false) {
		continue
	}
	close(enough)
	<-kept
	e.queue.dropAll()
}

// batch is a request to be sent, and where its outliers wait until there is an answer: in
// files, or nowhere but here.
type batch struct {
	records []*logspb.LogRecord
	rules   []string // of each record
	files   []stored
	items   []item
}

func (b *batch) add(rule string, r *logspb.LogRecord) {
	b.records = append(b.records, r)
	b.rules = append(b.rules, rule)
}

// sendBatch sends some of what waits; false: nothing does, or it waits on. If patient, it
// repeats that until the collector has answered for good, or ctx ends.
func (e *Exporter) sendBatch(ctx context.Context, patient bool) bool {
	b := e.take()
	if b == nil {
		return false
	}
	request := &collogspb.ExportLogsServiceRequest{ResourceLogs: []*logspb.ResourceLogs{{
		Resource: e.resource(), ScopeLogs: []*logspb.ScopeLogs{{Scope: e.scope(), LogRecords: b.records}},
	}}}
	backoff := firstBackoff
	for {
		answer := new(collogspb.ExportLogsServiceResponse)
		err := e.client.send(ctx, logsSignal, request, answer)
		e.count(logsSignal, err)
		var refused *refusedError
		switch {
		case err == nil:
			if p := answer.GetPartialSuccess(); p.GetRejectedLogRecords() > 0 {
				n := min(p.GetRejectedLogRecords(), int64(len(b.records)))
				e.counts.rejected.add("", uint64(n)) // it does not say which
				e.warn("the collector rejected outliers", zap.Int64("outliers", n), zap.String("reason", clip(p.GetErrorMessage())))
			}
			e.settle(b)
			return true
		case !errors.As(err, &refused) || !refused.retry:
			for _, rule := range b.rules {
				e.counts.rejected.add(rule, 1)
			}
			e.warn("the collector refused outliers", zap.Int("outliers", len(b.records)), zap.Error(err))
			e.settle(b)
			return true
		case !patient:
			e.queue.drop(b.items...)
			return false
		}
		e.warn("the collector does not take outliers; trying again", zap.Error(err))
		if !pause(ctx, max(refused.after, backoff/2+rand.N(backoff/2))) { //nolint:gosec // spreads the load of many hosts
			for _, it := range b.items {
				e.queue.push(it)
			}
			return false
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// settle has the files of a batch removed.
func (e *Exporter) settle(b *batch) {
	if len(b.files) > 0 {
		e.answered.Lock()
		e.answered.files = append(e.answered.files, b.files...)
		e.answered.Unlock()
		signalOnce(e.queue.wake)
	}
}

// take returns outliers to send, of the spool first; nil: there are none.
func (e *Exporter) take() *batch {
	if s := e.spool.Load(); s != nil {
		signalOnce(e.asks)
		select {
		case b := <-e.answer:
			if b != nil || !s.failing.Load() {
				return b
			}
		case <-time.After(diskTime):
		}
	}
	items, records := e.convertSome(e.queue.pop)
	if len(records) == 0 {
		return nil
	}
	b := &batch{items: items}
	for i := range items {
		b.add(items[i].Rule, records[i])
	}
	return b
}

// convertSome makes log records of what next gives, as many as fit into a request. What cannot
// be converted is dropped.
func (e *Exporter) convertSome(next func() (item, bool)) (items []item, records []*logspb.LogRecord) {
	for size := 0; len(records) < maxBatch && size < maxBatchBytes; {
		it, ok := next()
		if !ok {
			break
		}
		record, err := e.convert(it)
		if err != nil {
			e.queue.drop(it)
			continue
		}
		size += proto.Size(record)
		items, records = append(items, it), append(records, record)
	}
	return items, records
}

// convert makes the log record of an outlier. It logs its errors.
func (e *Exporter) convert(it item) (record *logspb.LogRecord, err error) {
	err = e.opts.Guard.Do(guard.Publish, func() (err error) {
		record, err = logRecord(it.Outlier, it.observed)
		if err == nil && it.Snapshot != nil && e.opts.SnapshotURL != nil {
			addText(record, prefix+"snapshot_url", e.opts.SnapshotURL(*it.Snapshot))
		}
		return err
	})
	if err != nil {
		e.warn("an outlier could not be sent", zap.Error(err))
	}
	return record, err
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
func pause(ctx context.Context, d time.Duration) bool { return !pauseUntil(ctx.Done(), d) }

// pauseUntil waits; true: for less than that, as ended is closed.
func pauseUntil(ended <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ended:
		return true
	case <-t.C:
		return false
	}
}
