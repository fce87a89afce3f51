package explain

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Processes of these cases. The server serves alice, bob and the victim.
const (
	server  = 100
	thread  = 101 // of the server
	backend = 110 // which the server asks
	alice   = 201
	bob     = 202
)

// System calls that wait for input.
const (
	epollWait = 232
	recv      = 45
)

// servers is what is known of them: who has connected to whom.
func servers(known map[int]Sockets) Names {
	comms := map[int]string{server: "server", thread: "worker", backend: "backend", made: "made", madeNext: "made", alice: "alice", bob: "bob", victim: "victim"}
	calls := map[int]string{recv: "recvfrom", epollWait: "epoll_wait", 202: "futex", 230: "clock_nanosleep", 1: "write"}
	return Names{
		Syscall:  func(nr int) string { return calls[nr] },
		Function: func(uint64) string { return "hrtimer_wakeup" },
		Task: func(tid int) (TaskInfo, bool) {
			f := TaskInfo{PID: tid, PPID: 1, Comm: comms[tid]}
			switch tid {
			case thread:
				f.PID = server
			case made, madeNext:
				f.PID = backend
			}
			_, there := known[tid]
			f.Exited = known != nil && tid == alice && !there
			if s, ok := known[tid]; ok && s.Partial && s.Accepted < 0 {
				f.PPID = -s.Accepted
			}
			return f, comms[tid] != ""
		},
		Sockets: func(pid int) (Sockets, bool) {
			s, ok := known[pid]
			return s, ok && s.Accepted >= 0
		},
	}
}

// childOf is a process without sockets that another has started.
func childOf(parent int) Sockets { return Sockets{Accepted: -parent, Partial: true} }

// usual: alice, bob and the victim are clients of the server.
func usual() map[int]Sockets {
	return map[int]Sockets{
		server: {Listens: true, Accepted: 3}, backend: {Listens: true, Accepted: 1},
		alice: {Opened: 1}, bob: {Opened: 1}, victim: {Opened: 1},
	}
}

// from is a wake-up by a packet that was received within a system call of the waker.
func (s *script) packet(us uint64, cpu, by, tid, target int, flags uint32) *script {
	return s.add(us, trace.SchedWaking, cpu, by, trace.Wake{TID: tid, PID: tid, Prio: 120, TargetCPU: target, Context: abi.WakerSoftirq | softirqNetRX | flags})
}

// request: the server on CPU 1 waits, alice on CPU 2 asks it at 1 ms and waits; the victim waits
// from 2 ms on.
func (s *script) request(call int, victims ...trace.Switch) *script {
	return s.idle(call, victims...).wake(1000, 2, alice, server, 1).swap(1001, 1, 0, server, sleeps(0)).swap(1010, 2, alice, 0, sleeps(recv))
}

// idle: all but the server run, and the victim waits from 2 ms on.
func (s *script) idle(call int, victims ...trace.Switch) *script {
	waits := append(victims, sleeps(recv))[0]
	return s.swap(200, 0, 0, victim, sleeps(0)).swap(200, 1, 0, server, sleeps(0)).swap(210, 2, 0, alice, sleeps(0)).
		swap(210, 3, 0, bob, sleeps(0)).swap(300, 1, server, 0, sleeps(call)).swap(301, 0, victim, 0, waits)
}

func TestBehalf(t *testing.T) {
	const forAlice = "(at work for the client alice 201"
	gone := usual()
	delete(gone, alice)
	reversed := usual() // the server asks alice
	reversed[alice] = Sockets{Listens: true, Accepted: 1, Connections: []Connection{{"a:1", "s:7", true}}}
	reversed[server] = Sockets{Listens: true, Accepted: 2, Opened: 1, Connections: []Connection{{"s:7", "a:1", false}}}
	connected := usual()
	connected[alice] = Sockets{Listens: true, Opened: 1, Connections: []Connection{{"10.0.0.1:7", "10.0.0.2:1", false}}}
	connected[server] = Sockets{Listens: true, Accepted: 2, Connections: []Connection{{"10.0.0.2:1", "10.0.0.1:7", true}, {"10.0.0.2:1", "10.0.0.9:7", true}}}
	only := map[int]Sockets{server: {Accepted: 1, Connections: []Connection{{"10.0.0.2:1", "10.0.0.9:7", true}}}, victim: {Opened: 1}}
	started := map[int]Sockets{server: childOf(alice)}
	starts := map[int]Sockets{alice: childOf(server)}
	mutex := waitsFor(trace.FutexWait, 2, true)
	tick := func(s *script, us uint64, tid int) *script {
		return s.add(us, trace.HrtimerEntry, 1, 0, trace.Hrtimer{Hrtimer: 1, Function: 9}).wake(us, 1, 0, tid, 1).
			add(us, trace.HrtimerExit, 1, 0, trace.Hrtimer{Hrtimer: 1}).swap(us+1, 1, 0, tid, sleeps(0))
	}
	for _, c := range []struct {
		name    string
		sockets map[int]Sockets
		trace   func(s *script)
		says    string // "": nobody is named
		sure    Confidence
		ns      int64
	}{
		{name: "a socket of UNIX", sockets: usual(), says: forAlice, sure: Inferred, ns: 8_000_000, trace: func(s *script) {
			s.request(epollWait).wake(10000, 1, server, alice, 2)
		}},
		{name: "packets of this machine", sockets: usual(), says: forAlice, sure: Inferred, trace: func(s *script) {
			s.idle(epollWait).packet(1000, 2, alice, server, 1, abi.WakerLocal).swap(1001, 1, 0, server, sleeps(0)).swap(1010, 2, alice, 0, sleeps(recv)).
				packet(10000, 1, server, alice, 2, abi.WakerLocal)
		}},
		{name: "both serve, and one has connected to the other", sockets: connected, says: forAlice, sure: Inferred, trace: func(s *script) {
			s.request(epollWait).wake(10000, 1, server, alice, 2)
		}},
		{name: "the server waits for a disk, a lock and a sleep of its own meanwhile", sockets: usual(), says: forAlice, sure: Inferred, trace: func(s *script) {
			s.request(epollWait).swap(3000, 1, server, 0, trace.Switch{PrevState: 1, Call: 230})
			tick(s, 5000, server).swap(6000, 1, server, 0, waitsFor(trace.FutexWait, 2, false)).wake(7000, 3, bob, server, 1).
				swap(7001, 1, 0, server, sleeps(0)).wake(10000, 1, server, alice, 2)
		}},
		{name: "the server asks its backend meanwhile", sockets: usual(), says: "", trace: func(s *script) {
			// Its connection to the backend is not known: it may as well be that one's server.
			s.request(epollWait).wake(3000, 1, server, backend, 3).swap(3001, 1, server, 0, sleeps(epollWait)).wake(6000, 3, backend, server, 1).
				swap(6001, 1, 0, server, sleeps(0)).wake(10000, 1, server, alice, 2)
		}},
		{name: "its client has ended", sockets: gone, sure: Inferred, says: "(at work for the client alice 201", trace: func(s *script) {
			s.request(epollWait).wake(10000, 1, server, alice, 2)
		}},
		{name: "its client started it, and they share pipes", sockets: started, says: "(perhaps at work for the client alice 201", sure: Guess, trace: func(s *script) {
			s.request(recv).wake(10000, 1, server, alice, 2)
		}},
		{name: "no reply yet", sockets: usual(), says: "(perhaps at work for the client alice 201", sure: Guess, trace: func(s *script) {
			s.request(epollWait, mutex)
		}},
		{name: "a reply before, and one at the end", sockets: usual(), says: "(perhaps " + forAlice[1:], trace: func(s *script) {
			s.idle(epollWait).wake(1000, 3, bob, server, 1).swap(1001, 1, 0, server, sleeps(0)).swap(1005, 3, bob, 0, sleeps(recv)).
				swap(1010, 2, alice, 0, sleeps(recv)).wake(2000, 1, server, bob, 3).wake(10000, 1, server, alice, 2)
		}, sure: Guess},
		{name: "a packet over the only connection of a server", sockets: only, says: "(at work for the client at 10.0.0.9:7", sure: Inferred, trace: func(s *script) {
			s.idle(epollWait, mutex).packet(1000, 2, bob, server, 1, abi.WakerRemote).swap(1001, 1, 0, server, sleeps(0))
		}},
		{name: "a thread hands the request over to another", sockets: usual(), says: forAlice, sure: Inferred, trace: func(s *script) {
			w := trace.Switch{NextComm: trace.MakeComm("worker")}
			s.swap(150, 1, 0, thread, w).swap(160, 1, thread, 0, waitsFor(trace.FutexWait, 0, false)).request(epollWait).
				wake(1500, 1, server, thread, 1).swap(1600, 1, server, thread, sleeps(epollWait)).wake(10000, 1, thread, alice, 2)
		}},

		{name: "a timer woke the server", sockets: usual(), trace: func(s *script) {
			tick(s.idle(epollWait).swap(1010, 2, alice, 0, sleeps(recv)), 1100, server)
		}},
		{name: "a timer woke the server, which then told alice", sockets: usual(), trace: func(s *script) {
			tick(s.idle(epollWait).swap(1010, 2, alice, 0, sleeps(recv)), 1100, server).wake(10000, 1, server, alice, 2)
		}},
		{name: "woken by one, answered another", sockets: usual(), trace: func(s *script) {
			s.idle(epollWait).swap(1010, 2, alice, 0, sleeps(recv)).wake(1100, 3, bob, server, 1).swap(1101, 1, 0, server, sleeps(0)).
				swap(1110, 3, bob, 0, sleeps(recv)).wake(10000, 1, server, alice, 2)
		}},
		{name: "two are answered together", sockets: usual(), trace: func(s *script) {
			s.request(epollWait).swap(1110, 3, bob, 0, sleeps(recv)).wake(10000, 1, server, bob, 3).wake(10100, 1, server, alice, 2)
		}},
		{name: "two are answered together, the server being preempted in between", sockets: usual(), trace: func(s *script) {
			s.request(epollWait).swap(1110, 3, bob, 0, sleeps(recv)).wake(9000, 1, server, bob, 3).swap(9001, 1, server, backend, trace.Switch{}).
				swap(10500, 1, backend, server, sleeps(0)).wake(10501, 1, server, alice, 2)
		}},
		{name: "the server asks alice, and she answers", sockets: reversed, trace: func(s *script) {
			s.request(epollWait).wake(10000, 1, server, alice, 2)
		}},
		{name: "the server has started alice", sockets: starts, trace: func(s *script) {
			s.request(recv).wake(10000, 1, server, alice, 2)
		}},
		{name: "which of the two asks is not known", sockets: map[int]Sockets{}, trace: func(s *script) {
			s.request(recv).wake(10000, 1, server, alice, 2)
		}},
		{name: "it did not wait for the reply", sockets: usual(), trace: func(s *script) {
			s.idle(epollWait).wake(1000, 2, alice, server, 1).swap(1001, 1, 0, server, sleeps(0))
		}},
		{name: "it waits for something else", sockets: usual(), trace: func(s *script) {
			s.idle(epollWait).wake(1000, 2, alice, server, 1).swap(1001, 1, 0, server, sleeps(0)).swap(5000, 2, alice, 0, sleeps(recv))
		}},
		{name: "interrupted by a packet from outside, on top of alice", sockets: usual(), trace: func(s *script) {
			s.idle(epollWait).packet(1000, 2, alice, server, 1, abi.WakerRemote).swap(1001, 1, 0, server, sleeps(0)).swap(1010, 2, alice, 0, sleeps(recv))
		}},
		{name: "several connections, and a packet of one of them", sockets: connected, trace: func(s *script) {
			s.idle(epollWait).packet(1000, 2, bob, server, 1, abi.WakerRemote).swap(1001, 1, 0, server, sleeps(0))
		}},
		{name: "a lock was released for the server", sockets: usual(), trace: func(s *script) {
			s.swap(200, 0, 0, victim, sleeps(0)).swap(200, 1, 0, server, sleeps(0)).swap(210, 2, 0, alice, sleeps(0)).
				swap(300, 1, server, 0, waitsFor(trace.FutexWait, 2, true)).swap(301, 0, victim, 0, sleeps(recv)).
				wake(1000, 2, alice, server, 1).swap(1001, 1, 0, server, sleeps(0)).swap(1010, 2, alice, 0, sleeps(recv))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{}
			c.trace(s)
			last := server
			if strings.Contains(c.name, "thread") {
				last = thread
			}
			s.wake(11000, 1, last, victim, 0)
			for i, e := range s.list { // its threads
				if b, ok := e.Body.(trace.Switch); ok && b.NextTID == thread {
					b.NextPID = server
					s.list[i].Body = b
				}
				if b, ok := e.Body.(trace.Wake); ok && b.TID == thread {
					b.PID = server
					s.list[i].Body = b
				}
			}
			names := servers(c.sockets)
			o := Outlier{Rule: "r", Track: "offcpu", Syscall: "recvfrom", TID: victim, PID: victim, Comm: "victim", Start: 2_000_000, End: 11_000_000}
			r := explained(t, &s.list, []Outlier{o}, names).Outliers[0]
			t.Log(r.Verdict)
			assert.Check(t, (r.Parts[0].Cause == Task || r.Parts[0].Cause == Locked) && r.Parts[0].By.TID == last, "%+v", r.Parts)
			assert.Check(t, r.Behalf == nil, "the victim's own: %+v", r.Behalf)
			b := r.Blame.Behalf
			if c.says == "" {
				assert.Check(t, b == nil && r.Parts[0].Behalf == nil && !strings.Contains(r.Verdict, "work for"), "%+v: %s", b, r.Verdict)
				return
			}
			assert.Assert(t, b != nil && r.Parts[0].Behalf != nil, "%s", r.Verdict)
			assert.Check(t, strings.Contains(r.Verdict, c.says), "%s", r.Verdict)
			assert.Check(t, b.Confidence == c.sure && (c.ns == 0 || b.NS == c.ns) && b.Evidence != "", "%+v", b)
		})
	}
}

// TestBehalfOfSlowTask: a server that is slow itself.
func TestBehalfOfSlowTask(t *testing.T) {
	s := &script{}
	s.request(epollWait).swap(3000, 1, server, 0, trace.Switch{PrevState: 2, Call: 74}).wake(9000, 3, bob, server, 1).swap(9001, 1, 0, server, sleeps(0))
	o := Outlier{Rule: "r", Track: "offcpu", TID: server, PID: server, Comm: "server", Start: 3_000_000, End: 9_000_000}
	sockets := usual()
	sockets[server] = Sockets{Accepted: 1}
	r := explained(t, &s.list, []Outlier{o}, servers(sockets)).Outliers[0]
	assert.Check(t, strings.HasPrefix(r.Verdict, "server 100 was off the CPU for 6.0 ms (at work for the client alice 201): "), "%s", r.Verdict)
	assert.Check(t, r.Behalf.Confidence == Inferred && r.Behalf.NS == 6_000_000 && r.Behalf.Client.TID == alice, "%+v", r.Behalf)
}

// TestBehalfBehind: a server that has the CPU for which another waits.
func TestBehalfBehind(t *testing.T) {
	s := &script{}
	s.request(epollWait).wake(2000, 3, bob, victim, 1).wake(10000, 1, server, alice, 2).swap(11000, 1, server, victim, sleeps(epollWait))
	o := Outlier{Rule: "r", Track: "wakeup", TID: victim, PID: victim, Comm: "victim", Start: 2_000_000, End: 11_000_000}
	r := explained(t, &s.list, []Outlier{o}, servers(usual())).Outliers[0]
	assert.Check(t, strings.Contains(r.Verdict, "behind server 100") && strings.Contains(r.Verdict, "(at work for the client alice 201, 8.0 ms of it)"), "%s", r.Verdict)
	assert.Check(t, r.Roots[0].Behalf != nil && r.Roots[0].Behalf == r.Parts[0].Behalf, "%+v", r.Roots[0])
}

// TestLabels: a pair tells its labels, and those of the thread that another waits for.
func TestLabels(t *testing.T) {
	long := strings.Repeat("x", 200)
	s := &script{}
	s.request(epollWait).wake(10000, 1, server, alice, 2).wake(11000, 1, server, victim, 0)
	pair := Outlier{Rule: "query", Track: "pair", TID: server, PID: server, Start: 1_500_000, End: 10_900_000, Labels: map[string]string{"query": "select\n" + long}}
	o := Outlier{Rule: "r", Track: "offcpu", TID: victim, PID: victim, Comm: "victim", Start: 2_000_000, End: 11_000_000}
	for _, c := range []struct {
		pair  func(p *Outlier)
		names Names
		says  string
	}{
		{func(*Outlier) {}, servers(usual()), `(at work for the client alice 201, query "select xxx`},
		{func(*Outlier) {}, servers(nil), `(at work on query "select xxx`},
		{func(p *Outlier) { p.Loose = true }, servers(nil), `(perhaps at work on query "select xxx`},
		{func(p *Outlier) { p.End = 3_000_000 }, servers(nil), ""},
		{func(p *Outlier) { p.Key = map[string]uint64{"rq": 1} }, servers(nil), ""},
		{func(p *Outlier) { p.TID = bob }, servers(nil), ""},
	} {
		p, src := pair, s.list
		c.pair(&p)
		r := explained(t, &src, []Outlier{p, o}, c.names)
		assert.Check(t, c.says == "" && r.Outliers[1].Blame.Behalf == nil || c.says != "" && strings.Contains(r.Outliers[1].Verdict, c.says), "%s", r.Outliers[1].Verdict)
		own := r.Outliers[0].Verdict
		assert.Check(t, strings.Contains(own, ` (query "select xxx`) && strings.Contains(own, `xx…"`) && !strings.Contains(own, long), "%s", own)
		b := r.Outliers[0].Behalf
		assert.Check(t, b == nil || b.Labels == nil, "the pair was at work for itself: %+v", b)
	}
}

// TestPublish: wherever a report names a thread, it has the kernel's id, also of one that had it
// after another.
func TestPublish(t *testing.T) {
	const second = 1<<lifeShift | 7
	who := func() *Who { return &Who{Kind: KindTask, TID: second, For: &Who{Kind: KindTask, TID: second}} }
	part := func() Part { return Part{By: who(), Behalf: &Behalf{Client: who()}} }
	r := &Report{Outliers: []Result{{
		Task: *who(), Behalf: &Behalf{Client: who()}, Without: &Without{By: *who()},
		Before: &Before{Changes: []Change{{Part: part()}}},
		Blame:  part(), Chain: []Part{part()}, Parts: []Part{part()}, Roots: []Part{part()},
		Path: []Step{{Task: *who(), By: who(), Waker: who()}},
	}}}
	m := newModel(nil, Names{})
	m.lives[7] = &lives{list: []life{{id: 7}, {id: second}}}
	m.publish(r)
	text, err := json.Marshal(r)
	assert.Check(t, err == nil && strings.Count(string(text), `"tid":7,`)+strings.Count(string(text), `"tid":7}`) == 32 &&
		!strings.Contains(string(text), strconv.Itoa(second)), "%s", text)
}

// TestBasesAreDocumented: as evidence is.
func TestBasesAreDocumented(t *testing.T) {
	docs := strings.Join(strings.Fields(readDocs(t)), " ")
	for i, b := range bases {
		assert.Check(t, b.confidence != "" && (b.words == "") == (b.confidence == Seen), "%d: %+v", i, b)
		assert.Check(t, strings.Contains(docs, fmt.Sprintf("| %s | %s |", b.confidence, b.words)) || b.words == "", "docs/explain.md does not have %q", b.words)
	}
}
