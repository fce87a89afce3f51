package explain

import (
	"cmp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

type causalCase struct {
	name    string
	thread  bool
	one     bool
	sockets map[int]Sockets
	last    int // who replies; 0: the server
	call    int // in which the server waits; 0: epoll_wait
	trace   func(k *talk)
	path    []string // of the parts of a depth, the largest: cause and task
	not     []int
	sure    Confidence
	says    string
}

// TestCausal: who serves many at once is followed through the messages that led to a reply, not
// through what it did for others meanwhile.
func TestCausal(t *testing.T) {
	chatter := func(k *talk, client int, from, to uint64) {
		for at := from; at < to; at += 1000 {
			k.chat(client, at, 100)
		}
	}
	// proxied has the server ask its backend, which needs a while.
	proxied := func(k *talk, us uint64) {
		k.send(us, server, backend)
		k.rest(us+10, server, sleeps(epollWait))
	}
	// housekeeping has a timer of the server expire, for which it wakes nobody.
	housekeeping := func(k *talk, us uint64) {
		k.tick(us, server)
		k.rest(us+30, server, sleeps(epollWait))
	}
	// second has bob ask first, for which the backend works, and alice something else until a time.
	second := func(k *talk, until uint64) {
		k.tick(400, bob)
		k.send(410, bob, server)
		k.rest(415, bob, sleeps(recv))
		proxied(k, 420)
		k.rest(2050, server, sleeps(epollWait))
		chatter(k, alice, 2500, until)
	}
	// between has alice send something, and bob, who talks all the time, work while the server does.
	between := func(k *talk) {
		k.rest(2050, server, sleeps(epollWait))
		chatter(k, bob, 3000, 10500)
		k.tick(10900, alice)
		k.send(10910, alice, server)
		k.rest(10915, alice, sleeps(recv))
		k.tick(10930, bob)
		k.rest(10940, bob, sleeps(recv))
	}
	for _, c := range []causalCase{
		{name: "a proxy", path: []string{"task server", "task backend", "running backend"}, not: []int{bob}, sure: Inferred, trace: func(k *talk) {
			proxied(k, 2050)
			chatter(k, bob, 3000, 10500)
			k.send(10950, backend, server)
			k.rest(10960, backend, sleeps(recv))
		}},
		{name: "in several rounds", path: []string{"task server", "running server"}, not: []int{bob}, trace: func(k *talk) {
			proxied(k, 2050)
			k.send(2500, backend, server)
			k.rest(2510, backend, sleeps(recv))
			proxied(k, 6500)
			k.chat(bob, 6600, 100)
			k.send(7000, backend, server)
			k.rest(7010, backend, sleeps(recv))
		}, sure: Seen},
		{name: "what another one sends", path: []string{"task server", "task alice", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Inferred, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			chatter(k, bob, 3000, 10500)
			k.tick(10900, alice)
			k.send(10950, alice, server)
		}},
		{name: "what another thread of its process sends", one: true, path: []string{"task server", "task alice", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Inferred, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			chatter(k, bob, 3000, 10500)
			k.tick(10900, alice)
			k.send(10950, alice, server)
		}},
		{name: "timers of its own, for nothing", path: []string{"task server", "task alice", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Inferred, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			housekeeping(k, 4000)
			housekeeping(k, 8500)
			k.tick(10900, alice)
			k.send(10950, alice, server)
		}},
		{name: "a timer, after which it asks", path: []string{"task server", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Seen, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			k.tick(8500, server)
			proxied(k, 8510)
			k.send(10950, backend, server)
		}},
		{name: "and is answered itself", path: []string{"task server", "task alice", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Guess, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			chatter(k, bob, 3000, 10500)
			k.tick(10900, alice)
			k.send(10950, alice, server)
			k.rest(10955, alice, sleeps(recv))
			k.send(10960, server, alice)
		}},
		{name: "a pool that another one has", path: []string{"task server", "task backend", "running backend"}, not: []int{alice}, sure: Guess, trace: func(k *talk) {
			second(k, 10500)
			k.send(10600, backend, server) // the reply to bob's query
			k.rest(10605, backend, sleeps(recv))
			k.send(10610, server, bob)
			k.send(10620, server, backend) // the victim's
			k.rest(10630, server, sleeps(epollWait))
			k.send(10950, backend, server)
		}},
		{name: "a queue for one that serves one at a time", path: []string{"task server", "task backend", "running backend"}, not: []int{alice}, sure: Guess, trace: func(k *talk) {
			second(k, 9500)
			for _, at := range []uint64{10500, 10530} { // the reply to bob's request, in two parts
				k.send(at, backend, server)
				k.rest(at+10, server, sleeps(epollWait))
			}
			k.list = k.list[:len(k.list)-1]
			k.rest(10540, backend, sleeps(recv))
			k.send(10545, server, bob)
			k.rest(10550, bob, sleeps(230))
			k.send(10560, server, backend) // the victim's
			k.rest(10570, server, sleeps(epollWait))
			for _, at := range []uint64{10600, 10700} {
				k.send(at, backend, server)
				k.rest(at+10, server, sleeps(epollWait))
			}
			k.list = k.list[:len(k.list)-1]
		}},
		{name: "the reply came while it worked for another one", path: []string{"task server", "task backend", "running backend"}, not: []int{bob}, sure: Guess, trace: func(k *talk) {
			proxied(k, 2050)
			chatter(k, alice, 3000, 8500)
			k.send(9000, bob, server)
			k.rest(9005, bob, sleeps(recv))
			k.rest(9500, backend, sleeps(recv)) // it has replied
			k.send(10950, server, bob)
		}},
		{name: "others were at work", path: []string{"task server"}, not: []int{bob, alice}, sure: Seen, says: "which message it went on for is not recorded", trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			chatter(k, alice, 3000, 8500)
			k.tick(8900, alice)
			k.send(9000, bob, server)
			k.rest(9005, bob, sleeps(recv))
			k.send(10950, server, bob)
		}},
		{name: "a timer, and others who are not answered", path: []string{"task server", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Guess, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			for at := uint64(3000); at < 10500; at += 1000 {
				k.tick(at, bob)
				k.send(at+50, bob, server)
				k.rest(at+60, bob, sleeps(230))
				k.rest(at+70, server, sleeps(epollWait))
			}
			k.tick(10900, server)
		}},
		{name: "a client that talks all the time", path: []string{"task server"}, not: []int{bob}, sure: Seen, says: "which message it went on for is not recorded",
			sockets: map[int]Sockets{server: {Listens: true, Accepted: 2}, bob: {Opened: 1}, victim: {Opened: 1}}, trace: func(k *talk) {
				k.rest(2050, server, sleeps(epollWait))
				chatter(k, bob, 3000, 10500)
				k.tick(10940, bob)
				k.send(10950, bob, server) // and is answered before it waits
			}},
		{name: "one that talks all the time, and waits for nothing", path: []string{"task server"}, not: []int{bob}, sure: Seen, says: "which message it went on for is not recorded", trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			for at := uint64(3000); at < 11000; at += 1000 {
				k.tick(at-60, bob)
				k.send(at-50, bob, server)
				k.rest(at-40, bob, sleeps(230))
				if at < 10000 {
					k.rest(at-30, server, sleeps(epollWait))
				}
			}
		}},
		{name: "one that says something once", path: []string{"task server", "task bob", "timer hrtimer_wakeup"}, sure: Seen, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			k.tick(10940, bob)
			k.send(10950, bob, server)
		}},
		{name: "one that is answered all the time, and so in the end", path: []string{"task server"}, not: []int{bob}, sure: Seen, says: "which message it went on for is not recorded", trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			chatter(k, bob, 3000, 10500)
			k.tick(10940, bob)
			k.send(10950, bob, server)
			k.rest(10955, bob, sleeps(recv))
			k.send(11010, server, bob)
		}},
		{name: "a client that says something for the first time", path: []string{"task server", "task bob", "timer hrtimer_wakeup"}, sure: Guess,
			sockets: map[int]Sockets{server: {Listens: true, Accepted: 2}, alice: {Opened: 1}, bob: {Opened: 1}, victim: {Opened: 1}}, trace: func(k *talk) {
				k.rest(2050, server, sleeps(epollWait))
				chatter(k, alice, 3000, 10500)
				k.tick(10940, bob)
				k.send(10950, bob, server)
			}},
		{name: "one, beside a client that always talks, and has ended since", path: []string{"task server", "task alice", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Guess,
			sockets: map[int]Sockets{server: {Listens: true, Accepted: 2}, alice: {Opened: 1}, victim: {Opened: 1}}, trace: between},
		{name: "of two that talk, one may have been asked", path: []string{"task server", "task bob"}, sure: Guess, trace: between},
		{name: "it was busy with another one", path: []string{"task server", "running server"}, sure: Seen, trace: func(k *talk) {
			chatterBefore := 10500
			k.send(uint64(chatterBefore), server, bob)
		}},
		{name: "a timer", path: []string{"task server", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Inferred, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			chatter(k, bob, 3000, 10500)
			k.tick(10900, server)
		}},
		{
			name: "a broker whose worker is a client of it", path: []string{"task server", "task alice", "running alice"}, not: []int{bob}, sure: Guess,
			sockets: map[int]Sockets{server: {Listens: true, Accepted: 3}, alice: {Opened: 1}, bob: {Opened: 1}, victim: {Opened: 1}},
			trace: func(k *talk) {
				k.instead(310, alice, 230, recv) // it waits for work
				k.send(2050, server, alice)
				k.rest(2060, server, sleeps(epollWait))
				chatter(k, bob, 3000, 10500)
				k.send(10900, alice, server) // it is done
				k.rest(10905, alice, sleeps(recv))
				k.send(10910, server, alice)
				k.rest(10920, server, sleeps(epollWait))
				k.send(10950, alice, server) // and has a result
				k.rest(10955, alice, sleeps(recv))
				k.send(10960, server, alice)
			},
		},
		{name: "a backend that does not answer in time", path: []string{"task server", "task backend", "running backend"}, not: []int{bob}, sure: Guess, trace: func(k *talk) {
			proxied(k, 2050)
			chatter(k, bob, 3000, 10500)
			k.tick(10900, server)
		}, says: "waiting until its own time limit for an answer of backend 110"},
		{name: "a backend that went on right before", path: []string{"task server", "task backend", "timer"}, not: []int{bob}, sure: Guess, trace: func(k *talk) {
			proxied(k, 2050)
			k.rest(2100, backend, sleeps(230))
			chatter(k, bob, 3000, 10500)
			k.tick(10850, backend)
			k.tick(10900, server)
			k.rest(10950, backend, sleeps(recv))
		}, says: "it was asked meanwhile and went on right before"},
		{name: "a backend whose one thread answered, and another one took what it was asked", path: []string{"task server", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Guess, trace: func(k *talk) {
			k.tick(1940, bob)
			k.send(1950, bob, server)
			k.rest(1960, bob, sleeps(recv))
			proxied(k, 2050)
			k.start(2100, backend, made)
			k.start(2120, backend, madeNext)
			k.send(2200, made, server)
			k.send(2210, server, bob)
			k.rest(2215, bob, sleeps(230))
			k.rest(2220, server, sleeps(epollWait))
			k.rest(2230, made, sleeps(230))
			k.send(2400, madeNext, server) // for room
			k.rest(2420, server, sleeps(epollWait))
			k.rest(2430, madeNext, sleeps(230))
			chatter(k, bob, 3000, 10500)
			k.tick(10900, server)
		}},
		{name: "one after the other", path: []string{"task server", "task alice", "running alice"}, not: []int{bob}, sure: Guess, trace: func(k *talk) {
			proxied(k, 2050)
			k.tick(5600, server)
			k.instead(310, alice, 230, recv) // it waits for what it is sent
			k.send(5610, server, alice)
			k.rest(5620, server, sleeps(epollWait))
			chatter(k, bob, 6000, 10500)
			k.tick(10900, server)
		}, says: "for an answer of alice 201"},
		{name: "of two that do not answer in time, none", path: []string{"task server", "timer hrtimer_wakeup"}, not: []int{bob, alice, backend}, sure: Inferred, trace: func(k *talk) {
			k.send(2050, server, backend)
			k.instead(310, alice, 230, recv) // it waits for what it is sent
			k.send(2060, server, alice)
			k.rest(2070, server, sleeps(epollWait))
			chatter(k, bob, 3000, 10500)
			k.tick(10900, server)
		}},
		{name: "a backend that was asked by others meanwhile", path: []string{"task server", "task backend", "running backend"}, not: []int{alice}, sure: Guess, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			k.chat(bob, 3000, 100)
			k.rest(3500, backend, sleeps(recv)) // of a query that nobody saw
			k.chat(bob, 4000, 100)
			k.instead(4500, backend, recv, epollWait) // it waits for many
			k.tick(4600, alice)
			k.send(4700, alice, backend)
			k.chat(bob, 5000, 100)
			k.send(10950, backend, server)
		}},
		{name: "a thread hands it to another", thread: true, last: thread, path: []string{"task worker", "task backend", "running backend"}, not: []int{bob}, sure: Inferred, says: "waiting for worker 101, whose thread server 100 spent 8.8 ms waiting for backend 110", trace: func(k *talk) {
			proxied(k, 2050)
			for at := uint64(3000); at < 10500; at += 1000 {
				k.tick(at, bob)
				k.send(at+10, bob, server)
				k.rest(at+15, bob, sleeps(recv))
				k.send(at+20, server, thread)
				k.rest(at+25, server, sleeps(epollWait))
				k.send(at+700, thread, bob)
				k.rest(at+705, thread, waitsFor(trace.FutexWait, 0, false))
				k.rest(at+710, bob, sleeps(230))
			}
			k.send(10900, backend, server)
			k.rest(10910, backend, sleeps(recv))
			k.send(10920, server, thread)
			k.rest(10930, server, sleeps(epollWait))
		}},
		{
			name: "a pool whose backend starts a thread for each", path: []string{"task server", "task made", "timer hrtimer_wakeup"},
			sockets: map[int]Sockets{server: {Listens: true, Accepted: 2, Opened: 2}, backend: {Listens: true, Accepted: 2}, bob: {Opened: 1}, victim: {Opened: 1}},
			not:     []int{alice}, sure: Guess, trace: func(k *talk) {
				k.tick(400, bob)
				k.send(410, bob, server)
				k.rest(415, bob, sleeps(recv))
				proxied(k, 420)
				k.start(430, backend, made)
				k.rest(450, made, sleeps(230))
				k.rest(455, backend, sleeps(recv))
				k.rest(2050, server, sleeps(epollWait))
				k.tick(10490, made)
				k.send(10500, made, server) // the reply to bob's query
				k.rest(10505, made, sleeps(230))
				k.send(10510, server, bob)
				k.rest(10515, bob, sleeps(230))
				k.send(10520, server, backend) // the victim's
				k.rest(10530, server, sleeps(epollWait))
				k.start(10550, backend, madeNext)
				k.rest(10570, backend, sleeps(recv))
				k.send(10900, madeNext, server)
			},
		},
		{name: "a server that waits for one at a time", call: recv, path: []string{"task server", "task bob", "timer hrtimer_wakeup"}, sure: Seen, trace: func(k *talk) {
			k.rest(2050, server, sleeps(recv))
			for at := uint64(3000); at < 10500; at += 1000 {
				k.tick(at, bob)
				k.send(at+50, bob, server)
				k.rest(at+60, bob, sleeps(230))
				k.rest(at+70, server, sleeps(recv))
			}
			k.tick(10900, alice)
			k.send(10950, alice, server)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &talk{thread: c.thread, one: c.one}
			k.begin(cmp.Or(c.call, epollWait))
			c.trace(k)
			k.end(cmp.Or(c.last, server))
			r := k.result(t, servers(c.sockets))
			largestAre(t, r, c.path, c.not...)
			assert.Check(t, strings.Contains(r.Verdict, c.says), "%s", r.Verdict)
			assert.Check(t, r.Confidence == c.sure, "%s", r.Confidence)
		})
	}
}

// TestBeside: one beside a task, of the same server, that was told of work owes no answer, as
// PostgreSQL's background writer.
func TestBeside(t *testing.T) {
	for _, beside := range []bool{true, false} {
		k := &talk{}
		if beside {
			k.made(100, server)
			k.made(100, backend)
		}
		k.begin(epollWait)
		k.send(2050, server, backend)
		k.rest(2060, server, sleeps(epollWait))
		k.tick(10900, server)
		k.end(server)
		r := k.result(t, k.sessions(server, backend))
		assert.Check(t, strings.Contains(r.Verdict, "its own time limit for an answer of session 110") == !beside, "%v: %s", beside, r.Verdict)
	}
}

// TestDedicated: what a process does that serves one other alone is in order, as far as it and
// those beside it are known by who made them. It need not live any more.
func TestDedicated(t *testing.T) {
	for _, c := range []struct {
		name string
		made []int // by that parent
		path []string
		says string
	}{
		{name: "of one client", made: []int{server, alice, backend}, path: []string{"task session 100", "task session 201", "task bob", "timer"}},
		{name: "of two", made: []int{server, alice}, path: []string{"task session 100"}, says: "which message it went on for is not recorded"},
		{name: "not known", made: []int{alice, backend}, path: []string{"task session 100"}, says: "which message it went on for is not recorded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &talk{}
			for _, tid := range c.made {
				k.made(100, tid)
			}
			k.begin(epollWait)
			k.rest(2050, server, sleeps(epollWait)) // for a lock that alice has
			k.instead(310, alice, 230, epollWait)   // whose client is bob
			k.tick(1000, server)                    // it wakes another one beside it
			k.send(1010, server, backend)
			k.rest(1015, server, sleeps(epollWait))
			k.rest(1020, backend, sleeps(recv))
			k.tick(10850, backend) // which is at work in the end
			k.tick(10800, bob)
			k.send(10810, bob, alice)
			k.rest(10815, bob, sleeps(recv))
			k.send(10900, alice, server)
			k.send(10910, alice, bob)
			k.end(server)
			r := k.result(t, k.sessions(server, alice, backend))
			largestAre(t, r, c.path)
			assert.Check(t, strings.Contains(r.Verdict, c.says), "%s", r.Verdict)
			assert.Check(t, r.Confidence == Seen, "%s", r.Confidence)
		})
	}
}
