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
	one    bool // so are the clients
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
	case alice, bob:
		if k.one {
			return victim
		}
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

// instead has a task wait in another call, from then on.
func (k *talk) instead(us uint64, tid, of, call int) {
	k.list = slices.DeleteFunc(k.list, func(e trace.Event) bool {
		b, ok := e.Body.(trace.Switch)
		return ok && e.TID == tid && b.Call == of
	})
	k.rest(us, tid, sleeps(call))
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

// largestAt is what took most of a path's time at a depth.
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
