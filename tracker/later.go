package tracker

import (
	"fmt"
	"sync"
)

// Later is what becomes known of an outlier after copies of it were made: who
// the process is, and names for the addresses of its stacks. Its methods may be
// called from any goroutine.
type Later struct {
	done chan struct{}
	mu   sync.Mutex
	from *Outlier // guarded by mu until done
}

// NewLater makes one for an outlier, and for every copy of it from now on. From
// then on only Learn may change the outlier.
func (o *Outlier) NewLater() {
	o.Later = &Later{done: make(chan struct{}), from: o}
}

// Learn adds to the outlier what was found out. fn must be quick, and must not
// change what the outlier's maps and slices hold, but replace them.
func (l *Later) Learn(fn func(o *Outlier)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(l.from)
}

// Done says that nothing more will be found out. It must be called once.
func (l *Later) Done() { close(l.done) }

// Completed is closed once nothing more will be found out.
func (l *Later) Completed() <-chan struct{} { return l.done }

// Known returns a copy of the outlier with what is known now. Stacks without
// names are addresses. It is Partial if more may be found out.
func (l *Later) Known() Outlier {
	l.mu.Lock()
	o := *l.from
	l.mu.Unlock()
	o.Later = nil
	select {
	case <-l.done:
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
	if o.Later == nil || o.Later.from == o {
		return
	}
	select {
	case <-o.Later.done: // first of all: both may be closed
	default:
		select {
		case <-o.Later.done:
		case <-giveUp:
		}
	}
	known := o.Later.Known()
	o.Task, o.Stacks, o.Labels, o.Partial, o.Later = known.Task, known.Stacks, known.Labels, known.Partial, nil
}

// IsComplete tells whether Complete would not wait.
func (o *Outlier) IsComplete() bool {
	if o.Later == nil {
		return true
	}
	select {
	case <-o.Later.done:
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
