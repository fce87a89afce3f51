package explain

import (
	"github.com/tailcam/tailcam/snapshot/trace"
)

type simLock struct {
	kernel  bool
	pi      bool
	handoff bool
	address uint64
	owner   *actor
	waiters []*simWaiter
}

type simWaiter struct {
	t       *actor
	started uint64
}

// pipe is what some write to and others wait for.
type pipe struct {
	readers []*actor
	kind    string
	full    int
}

// lock takes a lock, waiting for it if it must.
func (m *machine) lock(t *actor, l *simLock, then func()) {
	if l.owner == nil {
		l.owner = t
		m.compute(t, m.us(1, 10), then)
		return
	}
	w := &simWaiter{t: t, started: m.now}
	took := func() {
		if l.kernel {
			m.emit(t.cpu, trace.LockEnd, trace.Lock{Lock: l.address})
			t.notes = append(t.notes, note{Interval{w.started, m.now}, key{cause: Locked}, nil})
		}
		m.compute(t, m.us(1, 10), then)
	}
	if l.kernel {
		m.emit(t.cpu, trace.LockBegin, trace.Lock{Lock: l.address, Flags: lockMutex, OwnerTID: l.owner.tid})
	}
	hope := &reason{key: key{cause: Locked}}
	if l.kernel {
		hope = &reason{key: taskKey(Locked, l.owner), by: l.owner}
	}
	sw := inKernel(callWrite)
	if l.pi {
		sw = onFutex(trace.FutexLockPI, 2, false)
	} else if !l.kernel {
		sw = onFutex(trace.FutexWait, 2, false)
	}
	var wait func()
	wait = func() {
		l.waiters = append(l.waiters, w)
		t.hope = hope
		m.block(t, sw, func() {
			if l.owner == nil {
				l.owner = t
			}
			if l.owner != t { // another was faster
				m.compute(t, m.us(0, 2), wait)
				return
			}
			took()
		})
	}
	wait()
}

// unlock gives a lock back, or to who waits first.
func (m *machine) unlock(t *actor, l *simLock, then func()) {
	l.owner = nil
	if len(l.waiters) > 0 {
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		if l.handoff || l.pi {
			l.owner = w.t
		}
		m.wake(t.cpu, w.t, 0, reason{key: taskKey(Locked, t), by: t})
	}
	m.compute(t, m.us(1, 10), then)
}

// await waits until another task gives something.
func (m *machine) await(t *actor, then func()) {
	p := m.pipes[m.rnd.IntN(len(m.pipes))]
	if p.full > 0 || !m.mayWait(t) {
		p.full = max(0, p.full-1)
		m.compute(t, m.us(1, 30), then)
		return
	}
	m.waiting++
	p.readers = append(p.readers, t)
	sw := asleep(callRead)
	if p.kind == "condition" {
		sw = onFutex(trace.FutexWaitBitset, uint32(m.rnd.IntN(2)), false)
		t.hope = &reason{key: key{cause: Task}}
	}
	m.block(t, sw, then)
}

// give wakes one who waits, or all.
func (m *machine) give(t *actor, then func()) {
	p := m.pipes[m.rnd.IntN(len(m.pipes))]
	for range 3 {
		if len(p.readers) == 0 {
			p = m.pipes[m.rnd.IntN(len(m.pipes))]
		}
	}
	if len(p.readers) == 0 {
		p.full = min(p.full+1, 2)
		m.compute(t, m.us(1, 20), then)
		return
	}
	r := p.readers[0]
	p.readers = p.readers[1:]
	m.waiting--
	if r.state != blocked && r.given != nil {
		r.given()
	}
	why := reason{key: taskKey(Task, t), by: t}
	c := t.cpu
	switch {
	case p.kind == "socket":
		m.send(t, r, why, then)
	case p.kind == "condition" && len(p.readers) > 0 && m.rnd.IntN(2) == 0: // a broadcast
		m.wake(c, r, 0, why)
		for _, r := range p.readers {
			m.wake(c, r, 0, why)
			m.waiting--
		}
		p.readers = nil
		m.compute(t, m.us(1, 20), then)
	default:
		m.wake(c, r, 0, why)
		m.compute(t, m.us(1, 20), then)
	}
}

// send sends a packet to a task of this machine.
func (m *machine) send(t, to *actor, why reason, then func()) {
	m.serial++
	skb, c := m.serial, t.cpu
	if m.net {
		m.emit(c, trace.NetQueue, trace.Net{SKB: skb, Bytes: 100, Dev: "lo"})
	}
	m.compute(t, m.us(1, 20), then)
	if m.net && m.rnd.IntN(3) == 0 { // another CPU receives it
		o := m.anyCPU()
		m.interrupt(o, m.receive(o, "lo", skb, func() { m.wake(o, to, inRemote, why) })...)
		return
	}
	m.interrupt(c, m.receive(c, "lo", skb, func() { m.wake(c, to, inLocal, why) })...)
}

// retry waits with a time limit again and again, until another task gives way.
func (m *machine) retry(t *actor, then func()) {
	if !m.mayWait(t) {
		m.compute(t, 5000, then)
		return
	}
	p, limit := m.pipes[0], m.us(300, 800)
	m.waiting++
	p.readers = append(p.readers, t)
	mine, given := len(t.truth), false
	t.given = func() { given = true }
	var again func()
	again = func() {
		if given { // meanwhile
			m.compute(t, m.us(1, 10), then)
			return
		}
		since := m.now
		m.at(limit, func() {
			if t.state == blocked && t.since == since {
				c := m.anyCPU()
				m.interrupt(c, m.hrtimer(fnSleep, func() {
					if t.state == blocked && t.since == since {
						t.next = func() { m.compute(t, m.us(1, 10), again) }
						m.wake(c, t, inHrtimer, reason{key: key{cause: Timer}})
					}
				}))
			}
		})
		m.block(t, asleep(callPoll), func() {
			t.seriesEnds(mine)
			then()
		})
	}
	again()
}

// barrier waits until three have come.
func (m *machine) barrier(t *actor, then func()) {
	if len(m.parties) < 2 {
		if !m.mayWait(t) {
			m.compute(t, 5000, then)
			return
		}
		m.waiting++
		m.parties = append(m.parties, t)
		t.hope = &reason{key: key{cause: Task}}
		m.block(t, onFutex(trace.FutexWait, 1, false), then)
		return
	}
	for _, r := range m.parties {
		m.waiting--
		m.wake(t.cpu, r, 0, reason{key: taskKey(Task, t), by: t})
	}
	m.parties = nil
	m.compute(t, m.us(1, 20), then)
}
