package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// talk is a trace of tasks that send each other messages, each on a CPU of its own.
type talk struct {
	list   events
	thread bool // the tasks server and thread are one process
}

// Threads that the backend makes.
const (
	made = 111 + iota
	madeNext
)

// clock is a thread of the server that looks after the others.
const clock = 120

var talkCPUs = map[int]int{victim: 0, server: 1, thread: 2, backend: 3, alice: 4, bob: 5, made: 6, madeNext: 7, clock: 8}

func (k *talk) add(us uint64, kind trace.Type, cpu, tid int, body any) {
	k.list = append(k.list, trace.Event{Time: us * 1000, CPU: cpu, Type: kind, TID: tid, Body: body})
}

func (k *talk) pid(tid int) int {
	switch tid {
	case thread, clock:
		return server
	case made, madeNext:
		return backend
	}
	return tid
}

// start has a task start a thread, which gets its CPU.
func (k *talk) start(us uint64, by, tid int) {
	k.add(us, trace.ProcessFork, talkCPUs[by], by, trace.Fork{ParentPID: k.pid(by), ChildTID: tid, ChildPID: k.pid(tid), ChildComm: trace.MakeComm("made")})
	k.add(us+10, trace.SchedWakeupNew, talkCPUs[by], by, trace.Wake{TID: tid, PID: k.pid(tid), Prio: 120, TargetCPU: talkCPUs[tid]})
	k.run(us+15, tid)
}

// run gives a task its CPU.
func (k *talk) run(us uint64, tid int) {
	k.add(us, trace.SchedSwitch, talkCPUs[tid], 0, trace.Switch{NextTID: tid, NextPID: k.pid(tid), PrevPrio: 120, NextPrio: 120, Call: trace.CallNone})
}

// rest has a task wait.
func (k *talk) rest(us uint64, tid int, sw trace.Switch) {
	sw.PrevPrio, sw.NextPrio = 120, 120
	k.add(us, trace.SchedSwitch, talkCPUs[tid], tid, sw)
}

// send has one task wake another, which gets its CPU.
func (k *talk) send(us uint64, by, tid int) {
	k.add(us, trace.SchedWaking, talkCPUs[by], by, trace.Wake{TID: tid, PID: k.pid(tid), Prio: 120, TargetCPU: talkCPUs[tid]})
	k.run(us+1, tid)
}

// tick has a timer wake a task.
func (k *talk) tick(us uint64, tid int) {
	n := talkCPUs[tid]
	k.add(us, trace.HrtimerEntry, n, 0, trace.Hrtimer{Hrtimer: 1, Function: 9})
	k.add(us, trace.SchedWaking, n, 0, trace.Wake{TID: tid, PID: k.pid(tid), Prio: 120, TargetCPU: n})
	k.add(us, trace.HrtimerExit, n, 0, trace.Hrtimer{Hrtimer: 1})
	k.run(us+1, tid)
}

// chat has a client that slept ask the server, which answers after a while, and waits again.
func (k *talk) chat(client int, us, takes uint64) {
	k.tick(us-10, client)
	k.send(us, client, server)
	k.rest(us+5, client, sleeps(recv))
	k.send(us+takes, server, client)
	k.rest(us+takes+3, server, sleeps(epollWait))
	k.rest(us+takes+8, client, sleeps(230))
}

// begin has all wait that serve or chat, the victim ask the server at 2 ms, and wait for the reply.
func (k *talk) begin(call int) {
	for _, tid := range []int{victim, server, backend, alice, bob} {
		k.run(200, tid)
	}
	if k.thread {
		k.run(200, thread)
		k.rest(250, thread, waitsFor(trace.FutexWait, 0, false))
	}
	k.rest(300, server, sleeps(call))
	k.rest(300, backend, sleeps(recv))
	k.rest(300, alice, sleeps(230))
	k.rest(300, bob, sleeps(230))
	k.send(1990, victim, server)
	k.rest(2000, victim, sleeps(recv))
}

// end is the server's reply.
func (k *talk) end(by int) { k.send(11000, by, victim) }

// result explains the victim's wait.
func (k *talk) result(t *testing.T, names Names) *Result {
	t.Helper()
	slices.SortStableFunc(k.list, func(a, b trace.Event) int { return cmp.Compare(a.Time, b.Time) })
	o := Outlier{Rule: "r", Track: "offcpu", Syscall: "recvfrom", TID: victim, PID: victim, Comm: "victim", Start: 2_000_000, End: 11_000_000}
	r := explained(t, &k.list, []Outlier{o}, names).Outliers[0]
	t.Log(r.Verdict)
	return &r
}

// largestAre checks the largest parts of a path, by depth, and that tasks are not named.
func largestAre(t *testing.T, r *Result, path []string, not ...int) {
	t.Helper()
	for depth, want := range path {
		assert.Check(t, strings.HasPrefix(largestAt(r, depth), want), "depth %d: %s, want %s", depth, largestAt(r, depth), want)
	}
	for tid := range namedTasks(t, r) {
		assert.Check(t, !slices.Contains(not, tid), "%d took no part\n%+v", tid, r.Path)
	}
}

type causalCase struct {
	name    string
	thread  bool
	sockets map[int]Sockets
	last    int // who replies; 0: the server
	call    int // in which the server waits; 0: epoll_wait
	trace   func(k *talk)
	path    []string // of the parts of a depth, the largest: cause and task
	not     []int
	sure    Confidence
	says    string
}

// at is what took most of a path's time at a depth.
func largestAt(r *Result, depth int) string {
	sums := map[string]uint64{}
	for i := range r.Path {
		if s := &r.Path[i]; s.Depth == depth && s.By != nil {
			sums[fmt.Sprintf("%s %s", sameCause(s.Cause, s.By), s.By.Name)] += s.ToMonoNS - s.FromMonoNS
		}
	}
	best := ""
	for k, ns := range sums {
		if best == "" || cmp.Or(cmp.Compare(ns, sums[best]), cmp.Compare(best, k)) > 0 {
			best = k
		}
	}
	return best
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
		{name: "and is answered itself", path: []string{"task server", "task alice", "timer hrtimer_wakeup"}, not: []int{bob}, sure: Guess, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			chatter(k, bob, 3000, 10500)
			k.tick(10900, alice)
			k.send(10950, alice, server)
			k.rest(10955, alice, sleeps(recv))
			k.send(10960, server, alice)
		}},
		{name: "a pool that another one has", path: []string{"task server", "task backend", "running backend"}, not: []int{alice}, sure: Guess, trace: func(k *talk) {
			k.tick(400, bob)
			k.send(410, bob, server)
			k.rest(415, bob, sleeps(recv))
			proxied(k, 420)
			k.rest(2050, server, sleeps(epollWait))
			chatter(k, alice, 2500, 10500)
			k.send(10600, backend, server) // the reply to bob's query
			k.rest(10605, backend, sleeps(recv))
			k.send(10610, server, bob)
			k.send(10620, server, backend) // the victim's
			k.rest(10630, server, sleeps(epollWait))
			k.send(10950, backend, server)
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
				k.list = slices.DeleteFunc(k.list, func(e trace.Event) bool { // it waits for work
					b, ok := e.Body.(trace.Switch)
					return ok && e.TID == alice && b.Call == 230
				})
				k.rest(310, alice, sleeps(recv))
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
		{name: "one after the other", path: []string{"task server", "task alice", "running alice"}, not: []int{bob}, sure: Guess, trace: func(k *talk) {
			proxied(k, 2050)
			k.tick(5600, server)
			k.list = slices.DeleteFunc(k.list, func(e trace.Event) bool { // it waits for what it is sent
				b, ok := e.Body.(trace.Switch)
				return ok && e.TID == alice && b.Call == 230
			})
			k.rest(310, alice, sleeps(recv))
			k.send(5610, server, alice)
			k.rest(5620, server, sleeps(epollWait))
			chatter(k, bob, 6000, 10500)
			k.tick(10900, server)
		}, says: "for an answer of alice 201"},
		{name: "of two that do not answer in time, none", path: []string{"task server", "timer hrtimer_wakeup"}, not: []int{bob, alice, backend}, sure: Inferred, trace: func(k *talk) {
			k.send(2050, server, backend)
			k.list = slices.DeleteFunc(k.list, func(e trace.Event) bool { // it waits for what it is sent
				b, ok := e.Body.(trace.Switch)
				return ok && e.TID == alice && b.Call == 230
			})
			k.rest(310, alice, sleeps(recv))
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
			k.list = slices.DeleteFunc(k.list, func(e trace.Event) bool { // it waits for many
				b, ok := e.Body.(trace.Switch)
				return ok && e.TID == backend && b.Call == recv
			})
			k.rest(4500, backend, sleeps(epollWait))
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
			k := &talk{thread: c.thread}
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

// made has the server's parent make a process, for a session.
func (k *talk) made(us uint64, tid int) {
	const parent = 900
	k.add(us, trace.ProcessFork, 0, parent, trace.Fork{ParentPID: parent, ChildTID: tid, ChildPID: tid, ChildComm: trace.MakeComm("session")})
}

// sessions calls tasks so, of which procfs says nothing.
func (k *talk) sessions(tids ...int) Names {
	for i := range k.list {
		if b, ok := k.list[i].Body.(trace.Switch); ok && slices.Contains(tids, b.NextTID) {
			b.NextComm = trace.MakeComm("session")
			k.list[i].Body = b
		}
	}
	names := servers(nil)
	known := names.Task
	names.Task = func(tid int) (TaskInfo, bool) {
		if slices.Contains(tids, tid) {
			return TaskInfo{}, false
		}
		return known(tid)
	}
	return names
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
			k.rest(2050, server, sleeps(epollWait))                       // for a lock that alice has
			k.list = slices.DeleteFunc(k.list, func(e trace.Event) bool { // whose client is bob
				b, ok := e.Body.(trace.Switch)
				return ok && e.TID == alice && b.Call == 230
			})
			k.rest(310, alice, sleeps(epollWait))
			k.tick(1000, server) // it wakes another one beside it
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
