package events

import (
	"fmt"
	"sync"
)

// Enrichment is what becomes known of an outlier after copies of it were made: who
// the process is, and names for the addresses of its stacks. Its methods may be
// called from any goroutine.
type Enrichment struct {
	done    chan struct{}
	mu      sync.Mutex
	outlier *Outlier // guarded by mu until done
}

// NewEnrichment makes one for an outlier, and for every copy of it from now on. From
// then on only Learn may change the outlier.
func (o *Outlier) NewEnrichment() {
	o.Enrichment = &Enrichment{done: make(chan struct{}), outlier: o}
}

// Learn adds to the outlier what was found out. fn must be quick, and must not
// change what the outlier's maps and slices hold, but replace them.
func (e *Enrichment) Learn(fn func(o *Outlier)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fn(e.outlier)
}

// Done says that nothing more will be found out. It must be called once.
func (e *Enrichment) Done() { close(e.done) }

// Completed is closed once nothing more will be found out.
func (e *Enrichment) Completed() <-chan struct{} { return e.done }

// Known returns a copy of the outlier with what is known now. Stacks without
// names are addresses. It is Partial if more may be found out.
func (e *Enrichment) Known() Outlier {
	e.mu.Lock()
	o := *e.outlier
	e.mu.Unlock()
	o.Enrichment = nil
	select {
	case <-e.done:
	default:
		o.Partial = true
	}
	o.unnamed()
	return o
}

// Complete takes over what was found out since o was copied. It waits for it
// until giveUp is closed; what is known by then is taken over in any case, and o
// is Partial if that is not all.
func (o *Outlier) Complete(giveUp <-chan struct{}) {
	if o.Enrichment == nil || o.Enrichment.outlier == o {
		return
	}
	select {
	case <-o.Enrichment.done: // first of all: both may be closed
	default:
		select {
		case <-o.Enrichment.done:
		case <-giveUp:
		}
	}
	known := o.Enrichment.Known()
	o.Task, o.Stacks, o.Labels, o.Work = known.Task, known.Stacks, known.Labels, known.Work
	o.TraceID, o.SpanID, o.Attributes, o.Activity = known.TraceID, known.SpanID, known.Attributes, known.Activity
	o.Waker, o.OnCPU, o.EntryTask = known.Waker, known.OnCPU, known.EntryTask
	o.Partial, o.Enrichment = known.Partial, nil
}

// IsComplete tells whether Complete would not wait.
func (o *Outlier) IsComplete() bool {
	if o.Enrichment == nil {
		return true
	}
	select {
	case <-o.Enrichment.done:
		return true
	default:
		return false
	}
}

// unnamed fills stacks that have no names with their addresses.
func (o *Outlier) unnamed() {
	fill := func(named *[]Frame, addrs []uint64) {
		if len(*named) > 0 || len(addrs) == 0 {
			return
		}
		list := make([]Frame, len(addrs))
		for i, a := range addrs {
			list[i] = fmt.Sprintf("[unknown] 0x%x", a)
		}
		*named = list
	}
	fill(&o.Stacks.Kernel, o.Raw.Kernel)
	fill(&o.Stacks.User, o.Raw.User)
	fill(&o.Stacks.Waker, o.Raw.Waker)
	if len(o.Stacks.Progress) == 0 && len(o.Raw.Progress) > 0 {
		o.Stacks.Progress = make([]Progress, len(o.Raw.Progress))
		for i, p := range o.Raw.Progress {
			o.Stacks.Progress[i] = Progress{AgeNS: p.AgeNS, State: p.State}
			fill(&o.Stacks.Progress[i].Kernel, p.Kernel)
		}
	}
}
