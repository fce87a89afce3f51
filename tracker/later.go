package tracker

// Later is what becomes known of an outlier after copies of it were made: who
// the process is, and names for the addresses of its stacks. Only who called
// NewLater may change these until Done. Wait and Complete may be called from any
// goroutine.
type Later struct {
	done chan struct{}
	from *Outlier
}

// NewLater makes one for an outlier, and for every copy of it from now on.
func (o *Outlier) NewLater() {
	o.Later = &Later{done: make(chan struct{}), from: o}
}

// Done says that the outlier itself is complete, and will not change any more.
func (l *Later) Done() { close(l.done) }

// Wait returns once the outlier is complete.
func (l *Later) Wait() { <-l.done }

// Complete waits until the outlier that o is a copy of is complete, and takes
// over what was found out meanwhile.
func (o *Outlier) Complete() {
	if o.Later == nil || o.Later.from == o {
		return
	}
	o.Later.Wait()
	full := o.Later.from
	o.Task, o.Stacks, o.Labels, o.Later = full.Task, full.Stacks, full.Labels, nil
}
