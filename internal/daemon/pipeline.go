package daemon

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/fair"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	// namingWorkers is how many outliers are named concurrently, at most one per
	// process.
	namingWorkers = 8
	// namingQueue is how many outliers may wait to be named.
	namingQueue = 4096
	// maxNamingDelay is the age at which an outlier is no longer named.
	maxNamingDelay = 5 * time.Second
	// drainTime is how long outliers are named after the daemon is told to stop.
	drainTime = time.Second
	// retryDelay is the pause after an unreadable sample, to avoid a busy loop.
	retryDelay = time.Millisecond
)

// pipeline reads outliers from the kernel side without waiting for anything else. It
// requests each outlier's snapshot at once, so that the recorder is drained early.
// Workers then name it (symbols, identity), fairly shared between processes and users.
// It is published when complete, or at its deadline with what is known; the rest
// follows.
type pipeline struct {
	read     func() (*events.Outlier, error) // os.ErrClosed: no more outliers
	submit   func(o *events.Outlier)         // requests its snapshot; must not block
	enrich   func(o *events.Outlier)         // looks up names and adds them with o.Enrichment.Learn
	publish  func(o *events.Outlier)         // first publication; must not block
	complete func(o *events.Outlier)         // published as Partial before, now complete; must not block
	guard    *guard.Guard
	log      *zap.Logger
	now      func() time.Time
	run      string // prefix of event ids, unique per run

	accepting sync.Mutex
	seq       uint64    // of the last outlier; guarded by accepting
	warned    time.Time // last warning about a sample; used by the reader
	queue     *fair.Queue[*event]
	stopping  chan struct{} // closed when naming ends
	deadlines deadlines

	late, skipped, dropped ruleCounter   // by rule
	unusable               atomic.Uint64 // number of unreadable samples
}

// event is an outlier to be published.
type event struct {
	*events.Outlier
	read time.Time
	due  time.Time // deadline

	mu        sync.Mutex
	published bool
}

// prepare initializes the common fields.
func (p *pipeline) prepare() *pipeline {
	p.queue = fair.New[*event](&fair.Options{Workers: namingWorkers, Capacity: namingQueue})
	p.stopping = make(chan struct{})
	p.deadlines.wake = make(chan struct{}, 1)
	return p
}

// serve runs until there are no more outliers and all are published.
func (p *pipeline) serve() error {
	var naming, telling sync.WaitGroup
	for range namingWorkers {
		naming.Go(p.nameEvents)
	}
	named := make(chan struct{})
	telling.Go(func() { p.publishDeadlines(named) })

	err := p.readAll()

	stop := time.AfterFunc(drainTime, func() { close(p.stopping) })
	defer stop.Stop()
	p.queue.Close()
	naming.Wait()
	close(named)
	telling.Wait()
	return err
}

// readAll reads outliers until the kernel side is closed. Unreadable samples are
// skipped.
func (p *pipeline) readAll() error {
	for {
		var o *events.Outlier
		err := p.guard.Do(guard.Decode, func() (err error) {
			o, err = p.read()
			return err
		})
		var panicked *guard.PanicError
		switch {
		case err == nil:
			p.accept(o)
		case errors.Is(err, os.ErrClosed):
			return nil
		case errors.As(err, &panicked), errors.Is(err, tracker.ErrSample):
			p.unusable.Add(1)
			if now := p.now(); now.Sub(p.warned) > time.Minute {
				p.warned = now
				p.log.Warn("dropped an undecodable sample of the kernel side", zap.Error(err))
			}
			time.Sleep(retryDelay)
		default:
			return err
		}
	}
}

// accept starts the processing of one outlier. It may be called concurrently.
func (p *pipeline) accept(o *events.Outlier) {
	p.accepting.Lock()
	defer p.accepting.Unlock()
	p.seq++
	o.Seq, o.ID = p.seq, fmt.Sprintf("%s-%d", p.run, p.seq)
	o.NewEnrichment()
	now := p.now()
	e := &event{Outlier: o, read: now, due: deadline(o.Time, now)}
	if err := p.guard.Do(guard.Snapshot, func() error { p.submit(o); return nil }); err != nil {
		o.Snapshot = nil
	}
	early := p.deadlines.add(e)
	if !p.queue.Push(fair.Owner{User: o.Task.UID, Process: o.Task.PID}, e) {
		p.skip(e) // published at its deadline, after earlier ones of its process
	}
	if early != nil {
		p.publishEvent(early)
	}
}

// skip gives up naming an outlier.
func (p *pipeline) skip(e *event) {
	p.skipped.add(e.Rule)
	e.Enrichment.Learn(func(o *events.Outlier) { o.Partial = true })
	e.Enrichment.Done()
}

// nameEvents names outliers until the queue is closed.
func (p *pipeline) nameEvents() {
	for {
		t, ok := p.queue.Next()
		if !ok {
			return
		}
		begin := time.Now()
		p.name(t.Item)
		t.Done(time.Since(begin))
	}
}

func (p *pipeline) name(e *event) {
	defer p.publishEvent(e)
	stopping := false
	select {
	case <-p.stopping:
		stopping = true
	default:
	}
	if stopping || p.now().Sub(e.read) > maxNamingDelay {
		p.skip(e)
		return
	}
	err := p.guard.Do(guard.Naming, func() error { p.enrich(e.Outlier); return nil })
	if err != nil { // keep what was learned before
		e.Enrichment.Learn(func(o *events.Outlier) { o.Partial = true })
	}
	e.Enrichment.Done()
}

// publishEvent publishes an outlier or its completion. It does nothing if nothing new
// is known.
func (p *pipeline) publishEvent(e *event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.Enrichment.Known()
	first := !e.published
	e.published = true
	if !first && o.Partial {
		return
	}
	o.Completed = !first
	err := p.guard.Do(guard.Publish, func() error {
		if first {
			p.publish(&o)
		} else {
			p.complete(&o)
		}
		return nil
	})
	if err != nil {
		p.dropped.add(o.Rule)
	}
	if first && o.Partial {
		p.late.add(o.Rule)
	}
}

// ruleCounter counts per rule.
type ruleCounter struct {
	rules sync.Map // rule name to *atomic.Uint64
}

func (c *ruleCounter) add(rule string) {
	n, _ := c.rules.LoadOrStore(rule, new(atomic.Uint64))
	n.(*atomic.Uint64).Add(1)
}

func (c *ruleCounter) get(rule string) uint64 {
	n, ok := c.rules.Load(rule)
	if !ok {
		return 0
	}
	return n.(*atomic.Uint64).Load()
}
