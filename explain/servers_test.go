package explain

import (
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

const callEpoll = 232

// simServer does what others ask it for: the one in the front all kinds of things for many at
// once, the one in the back one after the other.
type simServer struct {
	t     *actor
	call  int
	idle  bool
	inbox []func(then func())
	kept  []*simAsked // until somebody publishes something
}

// simAsked is what a client waits for. It was with each of who, in turn.
type simAsked struct {
	client  *actor
	legs    []leg
	waits   bool
	replied bool
}

// leg is the time in which a request was with somebody; nil: until a timer.
type leg struct {
	to uint64
	by *actor
}

// handedOn ends a leg.
func (r *simAsked) handedOn(at uint64, by *actor) { r.legs = append(r.legs, leg{at, by}) }

// clip returns the legs within a time.
func clip(legs []leg, from, to uint64) (out []known) {
	for _, l := range legs {
		if end := min(l.to, to); end > from {
			out = append(out, known{Interval: Interval{from, end}, key: key{cause: Timer}, below: l.by})
			from = end
		}
	}
	return out
}

// serveMany gives a machine its servers, and clients that talk to them all the time.
func (m *machine) serveMany() {
	start := func(name string, call int) *simServer {
		s := &simServer{t: m.newActor(name, 120), call: call}
		m.at(m.us(0, 5), func() {
			s.t.cpu, s.t.left, s.t.next = m.anyCPU(), 1000, func() { m.serveNext(s) }
			m.start(m.anyCPU(), s.t)
		})
		return s
	}
	m.front = start("proxy", callEpoll)
	m.back = start("backend", []int{callEpoll, callRead}[m.rnd.IntN(2)])
	for range m.rnd.IntN(4) {
		t := m.newActor("chatter", 120)
		m.at(m.us(1, 500), func() {
			t.cpu, t.left, t.next = m.anyCPU(), m.us(5, 100), func() { m.chatter(t) }
			m.start(t.cpu, t)
		})
	}
}

// serveNext is the life of a server.
func (m *machine) serveNext(s *simServer) {
	if len(s.inbox) == 0 {
		s.idle = true
		m.block(s.t, asleep(s.call), func() { m.serveNext(s) })
		return
	}
	do := s.inbox[0]
	s.inbox = s.inbox[1:]
	do(func() { m.serveNext(s) })
}

// message is received by a server, which is woken if it waits for one.
func (m *machine) message(c *simCPU, context uint32, s *simServer, why reason, do func(then func())) {
	s.inbox = append(s.inbox, do)
	if s.idle && s.t.state == blocked {
		s.idle = false
		m.wake(c, s.t, context, why)
	}
}

// tell sends a message, by a socket of UNIX or as a packet.
func (m *machine) tell(t *actor, do func(c *simCPU, context uint32), then func()) {
	if m.rnd.IntN(2) == 0 {
		do(t.cpu, 0)
		m.compute(t, m.us(1, 10), then)
		return
	}
	m.serial++
	skb, c := m.serial, t.cpu
	if m.net {
		m.emit(c, trace.NetQueue, trace.Net{SKB: skb, Bytes: 100, Dev: "lo"})
	}
	m.compute(t, m.us(1, 10), then)
	m.interrupt(c, m.receive(c, "lo", skb, func() { do(c, inLocal) })...)
}

func (m *machine) chatter(t *actor) {
	m.sleep(t, func() {
		m.ask(t, m.front, m.quickly, func() { m.chatter(t) })
	})
}

// request asks for something that may take long.
func (m *machine) request(t *actor, then func()) {
	if m.front == nil || m.holds(t) {
		m.compute(t, m.us(5, 100), then)
		return
	}
	kinds := []func(*simAsked, func()){m.forward, m.forward, m.forward, m.rounds, m.delay, m.hold, m.publish, m.slowly}
	if m.rnd.IntN(5) == 0 {
		m.ask(t, m.back, m.inBack, then)
		return
	}
	m.ask(t, m.front, kinds[m.rnd.IntN(len(kinds))], then)
}

// ask sends a request to a server, and waits for the reply.
func (m *machine) ask(t *actor, s *simServer, kind func(*simAsked, func()), then func()) {
	r := &simAsked{client: t}
	why := reason{key: taskKey(Task, t), by: t}
	m.tell(t, func(c *simCPU, context uint32) {
		m.message(c, context, s, why, func(next func()) { m.compute(s.t, m.us(1, 20), func() { kind(r, next) }) })
	}, func() {
		if r.replied {
			m.compute(t, m.us(1, 10), then)
			return
		}
		r.waits = true
		m.block(t, asleep(callRead), then)
	})
}

// reply ends a request.
func (m *machine) reply(s *simServer, r *simAsked, next func()) {
	m.tell(s.t, func(c *simCPU, context uint32) {
		if r.replied = true; r.waits {
			r.handedOn(forever, s.t)
			m.wake(c, r.client, context, reason{key: taskKey(Task, s.t), by: s.t, legs: r.legs})
		}
	}, next)
}

// What servers do with a request.

func (m *machine) quickly(r *simAsked, next func()) {
	m.compute(m.front.t, m.us(5, 150), func() { m.reply(m.front, r, next) })
}

func (m *machine) slowly(r *simAsked, next func()) {
	m.compute(m.front.t, m.us(100, 3000), func() { m.reply(m.front, r, next) })
}

func (m *machine) inBack(r *simAsked, next func()) {
	m.compute(m.back.t, m.us(20, 2500), func() { m.reply(m.back, r, next) })
}

// forward has the one in the back do something.
func (m *machine) forward(r *simAsked, next func()) {
	m.askBack(r, func(next func()) { m.compute(m.front.t, m.us(5, 100), func() { m.reply(m.front, r, next) }) }, next)
}

// rounds asks it several times, and works in between.
func (m *machine) rounds(r *simAsked, next func()) {
	left := 1 + m.rnd.IntN(3)
	var again func(next func())
	again = func(next func()) {
		left--
		m.compute(m.front.t, m.us(20, 800), func() {
			if left == 0 {
				m.reply(m.front, r, next)
				return
			}
			m.askBack(r, again, next)
		})
	}
	m.askBack(r, again, next)
}

func (m *machine) askBack(r *simAsked, answered func(next func()), next func()) {
	f, b := m.front, m.back
	answer := func(next func()) {
		m.compute(b.t, m.us(20, 2500), func() {
			m.tell(b.t, func(c *simCPU, context uint32) {
				r.handedOn(m.now, b.t)
				m.message(c, context, f, reason{key: taskKey(Task, b.t), by: b.t}, answered)
			}, next)
		})
	}
	m.tell(f.t, func(c *simCPU, context uint32) {
		r.handedOn(m.now, f.t)
		m.message(c, context, b, reason{key: taskKey(Task, f.t), by: f.t}, answer)
	}, next)
}

// delay replies later, on purpose.
func (m *machine) delay(r *simAsked, next func()) {
	f := m.front
	r.handedOn(m.now, f.t)
	m.at(m.us(200, 5000), func() {
		c := m.anyCPU()
		m.interrupt(c, m.hrtimer(fnSleep, func() {
			r.handedOn(m.now, nil)
			m.message(c, inHrtimer, f, reason{key: key{cause: Timer}}, func(next func()) { m.reply(f, r, next) })
		}))
	})
	m.compute(f.t, m.us(1, 5), next)
}

// hold replies when somebody publishes something.
func (m *machine) hold(r *simAsked, next func()) {
	r.handedOn(m.now, m.front.t)
	m.front.kept = append(m.front.kept, r)
	m.compute(m.front.t, m.us(1, 5), next)
}

// publish replies to all who wait for that, and to who did.
func (m *machine) publish(r *simAsked, next func()) {
	f := m.front
	kept := f.kept
	f.kept = nil
	if len(kept) > 0 && len(r.legs) == 0 { // it was under way until now
		r.handedOn(m.now, f.t)
	}
	var tell func(next func())
	tell = func(next func()) {
		if len(kept) == 0 {
			m.reply(f, r, next)
			return
		}
		o := kept[0]
		kept = kept[1:]
		o.handedOn(m.now, r.client)
		m.reply(f, o, func() { tell(next) })
	}
	tell(next)
}

// onBehalf is whether a wait was for a server that serves many.
func onBehalf(told []known) bool {
	return slices.ContainsFunc(told, func(k known) bool { return k.legs != nil && k.To-k.From >= 100_000 })
}
