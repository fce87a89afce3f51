package explain

// cast is who took part in something.
type cast struct {
	in   map[*actor]bool
	seen map[scene]bool
}

type scene struct {
	t        *actor
	from, to uint64
}

// follow adds a task, who was in its way, and what those did.
func (c *cast) follow(t *actor, from, to uint64, depth int) {
	if t == nil || c.seen[scene{t, from, to}] || depth > maxDepth {
		return
	}
	c.seen[scene{t, from, to}] = true
	c.in[t] = true
	if len(t.truth) > 0 && t.truth[0].From > from {
		c.follow(t.born, from, min(t.truth[0].From, to), depth+1)
	}
	for i := range t.truth {
		s := &t.truth[i]
		lo, hi := max(s.From, from), min(s.To, to)
		if lo >= hi {
			continue
		}
		switch s.state {
		case runnable:
			s.cpu.within(lo, hi, func(x cpuSpan, _, _ uint64) {
				if x.task != nil {
					c.in[x.task] = true
				}
			})
		case blocked:
			c.reason(s, lo, hi, depth)
		}
	}
	for i := range t.notes {
		if n := &t.notes[i]; max(n.From, from) < min(n.To, to) && n.by != nil {
			c.in[n.by] = true
		}
	}
}

func (c *cast) reason(s *episode, lo, hi uint64, depth int) {
	if s.hope != nil {
		c.follow(s.hope.by, lo, hi, depth+1)
	}
	why := s.why
	if why == nil {
		return
	}
	if why.legs == nil {
		c.follow(why.by, lo, hi, depth+1)
	} else {
		c.awake(why.by, lo, hi)
	}
	for _, l := range clip(why.legs, lo, hi) {
		c.follow(l.below, l.From, l.To, depth+1)
	}
	if s.series != nil {
		c.follow(s.series.why.by, lo, hi, depth+1)
	}
	if why.issuer != nil {
		c.in[why.issuer] = true
	}
	if why.disk != nil {
		for _, r := range why.disk.all {
			if r.by != nil && r.queued < hi && (r.answers == 0 || r.answers > lo) {
				c.in[r.by] = true
			}
		}
	}
	if why.worker != nil {
		c.follow(why.worker.t, lo, hi, depth+1)
		for _, x := range why.worker.log {
			if x.by != nil && x.From < s.To && x.To > s.From {
				c.in[x.by] = true
			}
		}
		for i, x := range why.worker.wakers { // the last one before, and those meanwhile
			if x.by != nil && x.From < hi && (i+1 == len(why.worker.wakers) || why.worker.wakers[i+1].From > lo) {
				c.in[x.by] = true
			}
		}
	}
}

// awake adds a server, and who had its CPU while it was ready: who asked it for what is not the
// matter here.
func (c *cast) awake(t *actor, from, to uint64) {
	c.in[t] = true
	for i := range t.truth {
		s := &t.truth[i]
		if lo, hi := max(s.From, from), min(s.To, to); lo < hi && s.state == runnable {
			s.cpu.within(lo, hi, func(x cpuSpan, _, _ uint64) {
				if x.task != nil {
					c.in[x.task] = true
				}
			})
		}
	}
}
