package otlp

import (
	"context"
	"time"

	"go.uber.org/zap"

	logspb "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/tracker/events"
)

// keep moves what is queued in memory to the spool until ctx ends, and takes what is there for
// whoever sends, until enough is closed: no other goroutine waits for the disk. It closes saved
// when ctx has ended and all is on disk. Without a spool, or while the disk refuses, outliers
// stay in memory, from where they are sent as well.
func (e *Exporter) keep(ctx context.Context, saved chan<- struct{}, enough <-chan struct{}) {
	k := &keeper{e: e}
	k.open()
	defer k.close()
	tick := pulse.After(saveAgain)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-e.asks:
			k.answer()
			continue
		case <-tick:
			tick = pulse.After(saveAgain)
			e.hold.expire(false)
			if e.spool.Load() == nil && e.opts.Spool != "" && time.Since(k.opened) > openAgain {
				k.open()
			}
		case <-e.queue.wake:
			if e.spool.Load() != nil {
				pause(ctx, saveTime)
			}
		}
		k.round()
	}
	e.hold.expire(true)
	k.refused = time.Time{} // once more
	k.round()
	close(saved)
	for {
		select {
		case <-enough:
			return
		case <-e.asks:
			k.answer()
		}
	}
}

// keeper is what keep knows.
type keeper struct {
	e       *Exporter
	opened  time.Time // when that was tried
	refused time.Time // when the disk refused last
}

// open opens the spool, if there is to be one.
func (k *keeper) open() {
	e := k.e
	k.opened = time.Now()
	if e.opts.Spool == "" {
		return
	}
	s, err := openSpool(e.opts.Spool, e.opts.Quota, &e.free, &e.counts.dropped, e.ready)
	if err != nil {
		e.spoolFails(err)
		return
	}
	e.spoolErr.Store(nil)
	e.spool.Store(s)
	signalOnce(e.queue.wake)
}

// close leaves what waits for the next one.
func (k *keeper) close() {
	s := k.e.spool.Load()
	if s == nil {
		return
	}
	k.settle(s)
	k.e.spool.Store(nil)
	if err := s.close(); err != nil {
		k.e.log.Warn("close otlp.spool", zap.Error(err))
	}
}

// round saves what is new, and removes what was answered.
func (k *keeper) round() {
	e := k.e
	s := e.spool.Load()
	if s != nil && time.Since(k.refused) > saveAgain {
		k.settle(s)
		err := e.save(s)
		s.failing.Store(err != nil)
		if err != nil {
			k.refused = time.Now()
			e.spoolFails(err)
		}
	}
	if e.queue.len() > 0 {
		signalOnce(e.ready)
	}
}

// answer hands a batch of the spool to whoever asks, unless the last one is still there.
func (k *keeper) answer() {
	s := k.e.spool.Load()
	if s == nil || len(k.e.answer) > 0 {
		return
	}
	k.settle(s)
	k.e.answer <- s.take(func(err error) { k.e.warn("a file of otlp.spool is damaged: its outliers are lost", zap.Error(err)) })
}

// settle removes files that were answered for good.
func (k *keeper) settle(s *spool) {
	e := k.e
	e.answered.Lock()
	files := e.answered.files
	e.answered.files = nil
	e.answered.Unlock()
	if err := s.settle(files); err != nil {
		e.warn("outliers that were sent stay in otlp.spool, and may be sent again", zap.Error(err))
	}
}

func (e *Exporter) spoolFails(err error) {
	why := err.Error()
	e.spoolErr.Store(&why)
	e.warn("outliers wait for the collector in memory alone: otlp.spool cannot be used", zap.String("spool", e.opts.Spool), zap.Error(err))
}

// save writes what is queued, and what is held, to the spool. After an error, what was not
// written is queued again.
func (e *Exporter) save(s *spool) error {
	held := e.hold.list() // first: what is released meanwhile is in the queue
	by, rules := map[string][]item{}, []string{}
	for it, ok := e.queue.pop(); ok; it, ok = e.queue.pop() {
		if by[it.Rule] == nil {
			rules = append(rules, it.Rule)
		}
		by[it.Rule] = append(by[it.Rule], it)
	}
	var failed error
	for _, rule := range rules {
		left := by[rule]
		next := func() (it item, ok bool) {
			if len(left) > 0 {
				it, left, ok = left[0], left[1:], true
			}
			return it, ok
		}
		for len(left) > 0 && failed == nil {
			items, records := e.convertSome(next)
			if len(records) == 0 {
				break
			}
			if failed = s.add(rule, records); failed != nil {
				left = append(items, left...)
			}
		}
		for _, it := range left {
			e.queue.push(it)
		}
	}
	if failed != nil {
		return failed
	}
	e.spoolErr.Store(nil)
	return s.journal.keep(held, func(o *events.Outlier) (*logspb.LogRecord, error) { return e.convert(item{o, time.Now()}) })
}
