package daemon

import (
	"context"
	"sync"
)

// replaceable is a stage that nothing waits for, whose work a reload may replace. Its
// methods may be called from any goroutine.
type replaceable struct {
	mu    sync.Mutex
	work  func(context.Context) // nil: none
	ctx   context.Context       // of the stage; nil: it does not run
	end   context.CancelFunc    // of the work in progress; nil: there is none
	ended chan struct{}
}

// run works until ctx ends.
func (r *replaceable) run(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	r.start()
	r.mu.Unlock()
	<-ctx.Done()
	r.replace(nil)
	return nil
}

// replace waits until the work in progress has ended, and begins another; nil: none.
func (r *replaceable) replace(work func(context.Context)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		r.end()
		<-r.ended
		r.end = nil
	}
	r.work = work
	r.start()
}

// start requires r.mu.
func (r *replaceable) start() {
	if r.work == nil || r.ctx == nil || r.ctx.Err() != nil {
		return
	}
	ctx, end := context.WithCancel(r.ctx)
	work, ended := r.work, make(chan struct{})
	r.end, r.ended = end, ended
	go func() {
		defer close(ended)
		work(ctx)
	}()
}
