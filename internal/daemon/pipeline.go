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
	// namers is how many outliers are named at once, at most one of a process.
	namers = 8
	// backlog is how many outliers wait for their names, of all processes together.
	backlog = 4096
	// nameWithin is how long after it was read an outlier may begin to be named.
	nameWithin = 5 * time.Second
	// drainTime is how long outliers are still named when the daemon stops.
	drainTime = time.Second
	// pause follows a sample that could not be read, so that a kernel side gone
	// wrong does not keep a CPU busy.
	pause = time.Millisecond
)

// pipeline takes outliers from the kernel side and waits for nothing else. Each
// gets its snapshot at once, so that the recorder is read before anything that
// may take long. Then it is named, in the background and in turns that are fair
// to processes and users, and published: when it is whole, or at its deadline
// with what is known by then; the rest follows.
type pipeline struct {
	read     func() (*events.Outlier, error) // os.ErrClosed: no more
	submit   func(o *events.Outlier)         // arranges its snapshot; must not block
	enrich   func(o *events.Outlier)         // finds out more, and adds it by o.Enrichment.Learn
	publish  func(o *events.Outlier)         // for the first time; must not block
	complete func(o *events.Outlier)         // published as Partial before, and whole now; must not block
	guard    *guard.Guard
	log      *zap.Logger
	now      func() time.Time
	run      string // the part of ids that is of this run of the daemon

	seq      uint64    // of the last outlier; of the reader
	warned   time.Time // about a sample; of the reader
	queue    *fair.Queue[*event]
	stopping chan struct{} // closed when no more is named
	waiting  deadlines

	late, skipped, dropped dropCounter   // by rule
	unusable               atomic.Uint64 // samples
}

// event is an outlier on its way to be told of.
type event struct {
	*events.Outlier
	read time.Time
	due  time.Time // it is told of at the latest

	mu   sync.Mutex
	told bool
}

// prepare makes what every pipeline has.
func (p *pipeline) prepare() *pipeline {
	p.queue = fair.New[*event](&fair.Options{Workers: namers, Capacity: backlog})
	p.stopping = make(chan struct{})
	p.waiting.wake = make(chan struct{}, 1)
	return p
}

// serve runs until there are no more outliers, and all are told of.
func (p *pipeline) serve() error {
	var naming, telling sync.WaitGroup
	for range namers {
		naming.Go(p.nameAll)
	}
	named := make(chan struct{})
	telling.Go(func() { p.tellAll(named) })

	err := p.readAll()

	stop := time.AfterFunc(drainTime, func() { close(p.stopping) })
	defer stop.Stop()
	p.queue.Close()
	naming.Wait()
	close(named)
	telling.Wait()
	return err
}

// readAll reads until the kernel side is closed. A sample that cannot be read
// costs that sample.
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
			p.take(o)
		case errors.Is(err, os.ErrClosed):
			return nil
		case errors.As(err, &panicked), errors.Is(err, tracker.ErrSample):
			p.unusable.Add(1)
			if now := p.now(); now.Sub(p.warned) > time.Minute {
				p.warned = now
				p.log.Warn("a sample of the kernel side was left out", zap.Error(err))
			}
			time.Sleep(pause)
		default:
			return err
		}
	}
}

// take starts one outlier on its way.
func (p *pipeline) take(o *events.Outlier) {
	p.seq++
	o.Seq, o.ID = p.seq, fmt.Sprintf("%s-%d", p.run, p.seq)
	o.NewEnrichment()
	now := p.now()
	e := &event{Outlier: o, read: now, due: deadline(o.Time, now)}
	if err := p.guard.Do(guard.Snapshot, func() error { p.submit(o); return nil }); err != nil {
		o.Snapshot = nil
	}
	early := p.waiting.add(e)
	if !p.queue.Push(fair.Owner{User: o.Task.UID, Process: o.Task.PID}, e) {
		p.skip(e) // told of in its turn: those before it of its process are first
	}
	if early != nil {
		p.tell(early)
	}
}

// skip gives up to find out more about an outlier.
func (p *pipeline) skip(e *event) {
	p.skipped.add(e.Rule)
	e.Enrichment.Learn(func(o *events.Outlier) { o.Partial = true })
	e.Enrichment.Done()
}

// nameAll names outliers until there are no more.
func (p *pipeline) nameAll() {
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
	defer p.tell(e)
	stopping := false
	select {
	case <-p.stopping:
		stopping = true
	default:
	}
	if stopping || p.now().Sub(e.read) > nameWithin {
		p.skip(e)
		return
	}
	err := p.guard.Do(guard.Naming, func() error { p.enrich(e.Outlier); return nil })
	if err != nil { // what was learned before stays
		e.Enrichment.Learn(func(o *events.Outlier) { o.Partial = true })
	}
	e.Enrichment.Done()
}

// tell publishes an outlier, or what was found out since it was published. It
// does nothing if there is nothing new.
func (p *pipeline) tell(e *event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.Enrichment.Known()
	first := !e.told
	e.told = true
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
