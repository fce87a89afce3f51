package watch

// scanProcess looks at the tokens of a process, from where the last scan has stopped if
// there was too much. Requires w.mu.
func (w *Watcher) scanProcess(f *followed, now uint64) {
	n, looks := uint32(len(f.elements)), 0
	start := f.next % max(n, 1)
	f.next = 0
	for i := range n {
		at := (start + i) % n
		e := &f.elements[at]
		g := f.generation(f.first() + at)
		if g == e.generation && (e.live == nil || (e.deadline == 0 || now < e.deadline) && f.carried[f.first()+at] == nil) {
			continue
		}
		if looks++; looks > maxLooks {
			f.next = at
			return
		}
		w.look(f, f.first()+at, now)
	}
}

// look finds out what has become of one element since it was looked at last. Requires w.mu.
func (w *Watcher) look(f *followed, token uint32, now uint64) {
	i := token - f.first()
	if token < f.first() || int(i) >= len(f.elements) {
		return
	}
	e := &f.elements[i]
	t, account, ok := f.both(token)
	if !ok {
		return // it is looked at again
	}
	if t.Generation == e.generation {
		if e.live != nil {
			e.live.threads = f.threadsOf(token, t.Generation, e.live.threads)
			w.timeouts(f, e, token, &t, account, now)
		}
		return
	}
	passed := t.Generation - e.generation // it wraps as the generation does
	if int32(passed) < 0 {                // backwards: anything may have happened
		passed = 1
	}
	if t.Generation&1 == 1 {
		w.counts.Missed += uint64(passed / 2)
		w.begun(f, e, token, &t, account, now)
	} else {
		w.counts.Missed += uint64((passed - 1) / 2)
		w.ended(f, e, token, &t, account, passed == 1, now)
	}
	e.generation = t.Generation
}

// ended is for an element that is free now, and was not, or was used meanwhile. same: it was
// seen live.
func (w *Watcher) ended(f *followed, e *element, token uint32, t *Token, account *Values, same bool, now uint64) {
	r := w.newRecord(f, token, t, now)
	r.End = min(max(t.EndNS, r.Begin), now)
	r.account(t, account)
	for _, c := range f.carried[token] {
		if c.half == 0 && c.Half[0].Generation == t.used() { // its program has not taken it off that thread
			r.progress(c.Thread, r.End)
		}
	}
	r.Values.settle()
	var fired []firedRule
	if e.live != nil && same {
		r.Threads, fired = e.live.threads, e.live.fired
	}
	r.Threads = f.threadsOf(token, t.used(), r.Threads)
	w.counts.Ended++
	e.live, e.deadline = nil, 0
	w.thresholds(f, r, fired)
	w.store.add(r)
}

// begun is for an element that is live now.
func (w *Watcher) begun(f *followed, e *element, token uint32, t *Token, account *Values, now uint64) {
	e.live = &live{threads: f.threadsOf(token, t.Generation, nil)}
	e.deadline = 1 // not known yet
	w.timeouts(f, e, token, t, account, now)
}
