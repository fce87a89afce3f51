package explain

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TestRuntime: of a process whose threads take turns, as Go's do, that thread counts which was at
// work meanwhile, or whom the process had asked; what others waited for before says nothing.
func TestRuntime(t *testing.T) {
	parked := waitsFor(trace.FutexWait, 0, false)
	// turns has both threads wait for many, and to be handed something.
	turns := func(k *talk) {
		k.run(50, server)
		k.run(50, thread)
		k.rest(60, server, parked)
		k.send(70, thread, server)
		k.rest(80, thread, sleeps(epollWait))
		k.tick(90, thread)
	}
	// ticks has timers of others expire in the thread that replies, once a millisecond.
	ticks := func(k *talk, to uint64) {
		k.rest(2050, server, sleeps(epollWait))
		for at := uint64(3000); at < to; at += 1000 {
			k.tick(at, server)
			k.rest(at+20, server, sleeps(epollWait))
		}
	}
	// locked has the other thread wait for a lock that alice has.
	locked := func(k *talk) {
		k.send(2040, server, thread)
		k.rest(2100, thread, trace.Switch{PrevState: 2, Call: 74})
		k.tick(10700, alice)
		k.send(10800, alice, thread)
		ticks(k, 10900)
	}
	asks := func(k *talk, answer uint64) {
		k.send(2040, server, thread)
		k.send(2100, thread, backend)
		k.rest(2110, thread, parked)
		ticks(k, 10000)
		k.send(answer, backend, server)
		k.rest(answer+5, server, sleeps(epollWait))
		k.rest(answer+5, backend, sleeps(recv))
		k.tick(10900, server)
	}
	// unheard has the thread ask some that sleep until a time, when all that they may wake are awake.
	unheard := func(k *talk, until uint64, asked ...int) {
		k.send(2040, server, thread)
		for i, tid := range asked {
			us, wake := uint64(2100+10*i), until-uint64(100*i)
			k.send(us, thread, tid)
			k.rest(us+40, tid, sleeps(230))
			k.tick(wake, tid)
			k.rest(wake+50, tid, sleeps(recv))
		}
		k.rest(2160, thread, parked)
		ticks(k, 10500)
		k.tick(10900, server)
	}
	for _, c := range []struct {
		name  string
		turns bool
		trace func(k *talk)
		path  []string
		not   []int
		sure  Confidence
		says  string
	}{
		{name: "a thread was at work meanwhile", turns: true, path: []string{"task server", "task alice"}, sure: Guess, trace: locked,
			says: "whose thread worker 101 spent 8.7 ms waiting for alice"},
		{name: "one that naps now and then", turns: true, path: []string{"task server", "task alice"}, sure: Guess, trace: func(k *talk) {
			k.run(1000, clock)
			k.rest(1010, clock, parked)
			k.send(1100, server, clock)
			k.rest(1110, clock, sleeps(230))
			k.tick(1120, clock)
			k.rest(1130, clock, parked)
			k.send(2040, server, clock)
			k.rest(2100, clock, trace.Switch{PrevState: 2, Call: 74})
			k.tick(10700, alice)
			k.send(10800, alice, clock)
			ticks(k, 10900)
		}, says: "waiting for alice"},
		{name: "its threads do not take turns", path: []string{"task server", "timer hrtimer_wakeup"}, not: []int{alice}, sure: Seen, trace: locked},
		{name: "it was at work for a part of it", turns: true, path: []string{"task server", "timer hrtimer_wakeup"}, not: []int{alice}, sure: Inferred, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			k.tick(7000, thread)
			k.rest(7100, thread, trace.Switch{PrevState: 2, Call: 74})
			k.tick(8900, alice)
			k.send(9000, alice, thread)
			k.rest(9100, thread, parked)
			k.tick(10900, server)
		}},
		{name: "whom it had asked", turns: true, path: []string{"task server", "task backend", "running backend"}, sure: Guess,
			trace: func(k *talk) { asks(k, 10800) }, says: "it was asked meanwhile and answered at the end"},
		{name: "that had answered long before", turns: true, path: []string{"task server"}, not: []int{backend}, sure: Seen,
			trace: func(k *talk) { asks(k, 6500) }, says: "which message it went on for is not recorded"},
		{name: "whom it had asked, and who woke nobody by the answer", turns: true, path: []string{"task server", "task backend", "timer"}, sure: Guess,
			trace: func(k *talk) { unheard(k, 10800, backend) }, says: "it was asked meanwhile and went on right before"},
		{name: "that had gone on long before", turns: true, path: []string{"task server"}, not: []int{backend}, sure: Seen,
			trace: func(k *talk) { unheard(k, 8000, backend) }, says: "which message it went on for is not recorded"},
		{name: "of two of them", turns: true, path: []string{"task server"}, not: []int{backend, alice}, sure: Seen, trace: func(k *talk) {
			k.instead(300, alice, 230, recv)
			unheard(k, 10800, backend, alice)
		}, says: "which message it went on for is not recorded"},
		{name: "the thread that looks after the others", turns: true, path: []string{"task server"}, sure: Seen, trace: func(k *talk) {
			k.run(1000, clock)
			k.rest(2040, clock, sleeps(230))
			k.rest(2050, server, parked)
			k.tick(10890, clock)
			k.send(10900, clock, server)
		}, says: "which message it went on for is not recorded"},
		{name: "it, and a timer after that", turns: true, path: []string{"task server"}, sure: Seen, trace: func(k *talk) {
			k.run(1000, clock)
			k.rest(2040, clock, sleeps(230))
			k.rest(2050, server, parked)
			k.tick(8890, clock)
			k.send(8900, clock, server)
			k.rest(8910, server, sleeps(epollWait))
			k.tick(10900, server)
		}, says: "which message it went on for is not recorded"},
		{name: "its own timer", turns: true, path: []string{"task server", "timer hrtimer_wakeup"}, sure: Inferred, trace: func(k *talk) {
			k.rest(2050, server, sleeps(epollWait))
			k.tick(10900, server)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &talk{thread: true}
			if c.turns {
				turns(k)
			}
			k.begin(epollWait)
			c.trace(k)
			k.end(server)
			r := k.result(t, servers(nil))
			largestAre(t, r, c.path, c.not...)
			assert.Check(t, strings.Contains(r.Verdict, c.says), "%s", r.Verdict)
			assert.Check(t, r.Confidence == c.sure, "%s", r.Confidence)
		})
	}
}
