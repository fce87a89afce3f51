package explain

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// protocolTimer is a timer of TCP that expired, and made its socket send.
type protocolTimer struct {
	at       uint64
	kind     wait // waitAny: what for is not known
	function uint64
	info     trace.TCPTimer
}

// protocolTimers are the functions of such timers, and what they are for where the trace
// does not say.
var protocolTimers = map[string]wait{
	"tcp_write_timer":     waitProtocol,
	"tcp_delack_timer":    waitDelayedACK,
	"tcp_keepalive_timer": waitKeepAlive,
	"reqsk_timer_handler": waitSYNACK,
}

// protocolKind returns what a timer of TCP is for; waitAny: it is none of TCP's, or it
// expired and nothing was due.
func (m *model) protocolKind(b *trace.Timer) wait {
	kind, known := m.protocols[b.Function]
	if !known {
		kind = protocolTimers[m.timerFunction(b.Function)]
		if len(m.protocols) < maxOpen {
			m.protocols[b.Function] = kind
		}
	}
	m.socketsKnown = m.socketsKnown || b.TCP.Kind != 0
	switch b.TCP.Kind {
	case trace.TCPRetransmit:
		if b.TCP.State == trace.TCPSynSent {
			return waitSYN
		}
		return waitDataAgain
	case trace.TCPLossProbe, trace.TCPReorder:
		return waitDataAgain
	case trace.TCPDelayedACK:
		return waitDelayedACK
	case trace.TCPProbe:
		return waitWindowProbe
	case trace.TCPCork:
		return waitCorked
	case trace.TCPKeepAlive:
		return waitKeepAlive
	}
	if kind != waitSYNACK && m.socketsKnown {
		return waitAny
	}
	return kind
}

// ingestProtocolTimer notes a timer of TCP at its CPU and at the task that waits for its
// socket.
func (m *model) ingestProtocolTimer(ev *trace.Event, c *cpu, b *trace.Timer) {
	kind := m.protocolKind(b)
	if kind == waitAny {
		return
	}
	x := protocolTimer{at: ev.Time, kind: kind, function: b.Function, info: b.TCP}
	c.protocol = x
	if b.TCP.Waiter > 0 && m.reserve() {
		t := m.task(b.TCP.Waiter)
		t.protocol = append(t.protocol, x)
	}
}

// sameSoftirq is how long after a timer what it sent on this machine is received at most:
// on its CPU, before the softirqs are over, or since ksoftirqd has gone on with them.
const sameSoftirq = 300_000

// isSoftirqd reports whether a task is the thread that does what a CPU's softirqs have left.
func isSoftirqd(c trace.Comm) bool { return bytes.HasPrefix(c[:], []byte("ksoftirqd/")) }

// sameSoftirqs reports whether the softirqs of a time on a CPU are those that a timer has caused.
// A switch in between has cleared that timer, but for those to a ksoftirqd that has still to go on.
func (c *cpu) sameSoftirqs(timer, at uint64) bool {
	return timer != 0 && at-max(timer, c.softirqsBegan) <= sameSoftirq
}

// afterProtocol returns the timer of TCP that probably sent what wakes a task, or nil. A
// device that has raised the softirq has cleared it.
func (c *cpu) afterProtocol(w *wake) *protocolTimer {
	if w.ctx == nil || !c.sameSoftirqs(c.protocol.at, w.at) {
		return nil
	}
	if w.ctx.kind == KindTimer && w.ctx.function == c.protocol.function || w.ctx.kind == KindSoftirq && w.ctx.number == softirqNetRX {
		x := c.protocol
		return &x
	}
	return nil
}

// letOutTimers are the functions of timers with which the kernel sends packets that it has held
// back: of a queueing discipline (net/sched/sch_api.c), and TCP's pacing.
var letOutTimers = map[string]wait{"qdisc_watchdog": waitQdisc, "tcp_pace_kick": waitPacing}

// letOut is a timer that sends packets which the kernel has held back.
type letOut struct {
	at     uint64 // 0: none
	before uint64 // when it did so the last time before; 0: not known
	by     wait   // what had held them back
}

// ingestLetOut notes that packets are sent that had been held back. For how long is not recorded.
func (m *model) ingestLetOut(ev *trace.Event, c *cpu, b *trace.Hrtimer) {
	by, known := m.letOuts[b.Function]
	if !known {
		by = letOutTimers[m.timerFunction(b.Function)]
		if len(m.letOuts) < maxOpen {
			m.letOuts[b.Function] = by
		}
	}
	if by == waitAny {
		return
	}
	before := m.letOutAt[b.Hrtimer]
	c.letOut = letOut{at: ev.Time, before: before, by: by}
	if before != 0 || len(m.letOutAt) < maxOpen {
		m.letOutAt[b.Hrtimer] = ev.Time
	}
}

// afterLetOut returns what held back a packet that ends a wait since from, if it was probably one
// of these, which the task that had the CPU did not send; waitAny: it was not. What a socket is to
// send is held back by its pacing no longer than since that last sent some: most of a wait was
// something else where it did so right before its end.
func (c *cpu) afterLetOut(w *wake, from uint64) wait {
	o := &c.letOut
	if !c.sameSoftirqs(o.at, w.at) {
		return waitAny
	}
	if o.by == waitPacing && o.before > from && (w.at-o.before)*2 < w.at-from {
		return waitAny
	}
	return o.by
}

// heldWords says what held back a packet, in parentheses.
func heldWords(k wait) string {
	if k == waitQdisc || k == waitPacing {
		return " (held back by " + waits[k].words + ")"
	}
	return ""
}

// protocolWait explains the part of a wait before a timer of TCP expired that led to its
// end, and moves p behind it. The answer to what was sent again may wait for a timer as well.
func (w *walker) protocolWait(out []piece, t *task, p *piece, full *segment, call string) []piece {
	x, crowded, e := t.protocolTimer(full)
	if x == nil {
		return out
	}
	out = w.untilProtocol(out, p, x, crowded, e, call)
	if last := full.wake.protocol; last != nil && last.at > x.at {
		out = w.untilProtocol(out, p, last, nil, byTimerBefore, call)
	}
	return out
}

// untilProtocol explains the part of a wait before a timer of TCP, and moves p behind it.
func (w *walker) untilProtocol(out []piece, p *piece, x, crowded *protocolTimer, e evidence, call string) []piece {
	if x.at <= p.from {
		return out
	}
	q := *p
	q.to, q.cause, q.wait, q.evidence = min(x.at, p.to), ProtocolTimer, x.kind, e
	if x.kind == waitProtocol && call == "connect" {
		q.wait = waitSYN
	}
	q.by = w.m.whoProtocol(x)
	if crowded != nil {
		queue := crowded.info.AcceptQueue
		q.why = strings.TrimPrefix(q.why+", ", ", ") +
			fmt.Sprintf("as the accept queue %s was full, %d of %d", w.m.whoListens(crowded), queue[0], uint64(queue[1])+1)
	}
	p.from = q.to
	return w.add(out, q)
}

// whoListens tells whose the accept queue is to which a task has sent a SYN.
func (m *model) whoListens(x *protocolTimer) string {
	if m.names.Listener != nil {
		if pid := m.names.Listener(x.info.Waiter, x.info.Port); pid > 0 {
			return "of " + m.whoTask(pid).Name
		}
	}
	return "there"
}

// protocolTimer returns the timer of TCP that led to the end of a wait, or nil, and the last
// one in it that found the peer's accept queue full, or nil. What is sent again was not
// answered before; other timers must have expired just before the end.
func (t *task) protocolTimer(full *segment) (x, crowded *protocolTimer, e evidence) {
	wk := full.wake
	for i := len(t.protocol) - 1; i >= 0 && t.protocol[i].at > full.from; i-- {
		o := &t.protocol[i]
		if o.at > wk.at {
			continue
		}
		again := o.kind == waitSYN || o.kind == waitDataAgain
		if x == nil && (again || (wk.at-o.at)*8 <= o.at-full.from) {
			x, e = o, byWaiter
		}
		if crowded == nil && o.info.Full() {
			crowded = o
		}
	}
	if x == nil && wk.protocol != nil && wk.protocol.at > full.from {
		x, e = wk.protocol, byTimerBefore
	}
	return x, crowded, e
}

// whoProtocol returns TCP, with the peer's address if it is known.
func (m *model) whoProtocol(x *protocolTimer) *Who {
	name := "TCP"
	if x.info.Peer != [4]byte{} {
		name += " to " + netip.AddrPortFrom(netip.AddrFrom4(x.info.Peer), uint16(x.info.Port)).String()
	}
	function := m.function(x.function)
	return m.who(whoKey{kind: KindTimer, name: name + function}, func(w *Who) { w.Name, w.Function = name, function })
}

// protocolWords describes what a timer of TCP did.
func protocolWords(k wait, name string) string {
	return waits[k].words + strings.TrimPrefix(name, "TCP")
}
