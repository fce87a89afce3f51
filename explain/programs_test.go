package explain

import (
	"fmt"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// System calls and functions of the simulated machine.
const (
	callRead, callWrite, callPoll, callConnect, callWait, callFsync, callSleep = 0, 1, 7, 42, 61, 74, 230

	fnFlush = 70 + iota
	fnEvent
)

var machineNames = func() Names {
	n := timerNames
	calls, functions := n.Syscall, n.Function
	n.Syscall = func(nr int) string {
		if name := (map[int]string{callWait: "wait4", callFsync: "fsync", callSleep: "clock_nanosleep", callEpoll: "epoll_wait"})[nr]; name != "" {
			return name
		}
		return calls(nr)
	}
	n.Function = func(a uint64) string {
		if name := (map[uint64]string{fnFlush: "flush_fn", fnEvent: "event_fn"})[a]; name != "" {
			return name
		}
		return functions(a)
	}
	n.Device = func(dev uint32) string { return fmt.Sprintf("disk%d", dev) }
	n.Task = nil
	return n
}()

// names is what is known of a machine at the end.
func (m *machine) names() Names {
	n := machineNames
	n.Task = func(tid int) (TaskInfo, bool) {
		t := m.alive[tid]
		if t == nil {
			return TaskInfo{}, false
		}
		return TaskInfo{PID: t.tid, Comm: t.names[len(t.names)-1], Cgroup: t.cgroup, Kernel: t.kernel}, true
	}
	return n
}

// disk serves requests: one after the other, or all at once.
type disk struct {
	dev    uint32
	serial bool
	depth  int // of what may be in it at once; 0: all
	irq    int
	free   uint64 // serial: when it has nothing more to do
	inside []*simIO
	queue  []*simIO
	all    []*simIO
}

// simIO is a request.
type simIO struct {
	rq, sector                      uint64
	by                              *actor // nil: an interrupt's
	bytes                           uint32
	flags                           uint32
	queued, issued, served, answers uint64
	done                            func(c *simCPU, context uint32)
	requeue                         bool
}

// kworker is a thread of the kernel that does what others have queued.
type kworker struct {
	t      *actor
	queue  []simWork
	idle   bool
	log    []note // what it has done
	wakers []note
}

type simWork struct {
	address, function uint64
	queued            uint64
	by                *actor
	run               func(w *kworker, then func())
	done              func(w *kworker)
}

// furnish gives a machine its devices, locks and threads of the kernel.
func (m *machine) furnish() {
	for i := range 1 + m.rnd.IntN(3) {
		m.disks = append(m.disks, &disk{dev: uint32(i + 1), serial: m.rnd.IntN(2) == 0, depth: []int{0, 0, 2}[m.rnd.IntN(3)], irq: 24 + i%2})
	}
	for i := range 4 {
		m.locks = append(m.locks, &simLock{kernel: i%2 == 1, pi: i == 2, handoff: m.rnd.IntN(2) == 0, address: 0x5000 + uint64(i)})
	}
	for i := range 6 {
		m.pipes = append(m.pipes, &pipe{kind: []string{"pipe", "condition", "socket"}[i%3]})
	}
	for i := range 3 {
		name := fmt.Sprintf("kworker/%d:1", i)
		if i == 2 {
			name = "jbd2/disk1-8"
		}
		w := &kworker{t: m.newActor(name, 121)}
		m.workers = append(m.workers, w)
		m.at(m.us(0, 5), func() {
			w.t.cpu, w.t.left, w.t.next = m.anyCPU(), 1000, func() { m.serve(w) }
			m.start(m.anyCPU(), w.t)
		})
	}
	m.journal = m.workers[2]
	m.workers = m.workers[:2]
}

// asleep is how a task leaves its CPU to wait in a system call.
func asleep(call int) trace.Switch { return trace.Switch{PrevState: 1, Call: call} }

// inKernel is the same for waits that no signal ends.
func inKernel(call int) trace.Switch { return trace.Switch{PrevState: taskUninterruptible, Call: call} }

// onFutex is how a task leaves its CPU to wait for a futex of its own.
func onFutex(op int, value uint32, timed bool) trace.Switch {
	return trace.Switch{PrevState: 1, Call: trace.CallFutex, Futex: trace.MakeFutex(op, value, false, timed)}
}

// live is what an ordinary program does, for ever.
func (m *machine) live(t *actor) {
	m.compute(t, m.us(5, 800), func() { m.act(t, 2, func() { m.live(t) }) })
}

// act does one thing; depth bounds what is done meanwhile.
func (m *machine) act(t *actor, depth int, then func()) {
	if depth == 0 {
		m.compute(t, m.us(5, 1500), then)
		return
	}
	do := []func(*actor, func()){
		m.sleep, m.sleep, m.readDisk, m.readDisk, m.readDisk, m.writeAside, m.await, m.await, m.give, m.give, m.give, m.remote, m.overTCP, m.flush, m.fsync,
		m.fork, m.dirty, m.ioMax, m.ioCost, m.memoryHigh, m.pageFault, m.reclaim, m.console, m.event, m.retry, m.barrier, m.rename, m.again,
	}
	if m.front != nil {
		for range 4 {
			do = append(do, m.request)
		}
	}
	if n := m.rnd.IntN(len(do) + 8); n < len(do) {
		do[n](t, then)
		return
	}
	l := m.locks[m.rnd.IntN(len(m.locks))]
	if l.owner == t || m.holds(t) {
		m.compute(t, m.us(5, 500), then)
		return
	}
	m.lock(t, l, func() { m.act(t, depth-1, func() { m.unlock(t, l, then) }) })
}

func (m *machine) holds(t *actor) bool {
	for _, l := range m.locks {
		if l.owner == t {
			return true
		}
	}
	return false
}

// mayWait reports whether enough others are left that do not wait for tasks.
func (m *machine) mayWait(t *actor) bool { return m.waiting*2 < len(m.alive) && !m.holds(t) }

// until wakes a task by a frame on top of any CPU.
func (m *machine) until(t *actor, in uint64, frame func(c *simCPU, do func()) []simFrame, context uint32, why reason) {
	m.at(in, func() {
		c := m.anyCPU()
		m.interrupt(c, frame(c, func() { m.wake(c, t, context, why) })...)
	})
}

func (m *machine) byHrtimer(function uint64) func(*simCPU, func()) []simFrame {
	return func(_ *simCPU, do func()) []simFrame { return []simFrame{m.hrtimer(function, do)} }
}

func (m *machine) byTimer(function uint64, tcp trace.TCPTimer) func(*simCPU, func()) []simFrame {
	return func(_ *simCPU, do func()) []simFrame { return []simFrame{m.timer(function, tcp, do)} }
}

func (m *machine) sleep(t *actor, then func()) {
	t.hope = &reason{key: key{cause: Timer}}
	m.until(t, m.us(50, 4000), m.byHrtimer(fnSleep), inHrtimer, *t.hope)
	m.block(t, asleep(callSleep), then)
}

// receive is a softirq on a CPU, after the interrupt of a device or without.
func (m *machine) receive(c *simCPU, device string, skb uint64, do func()) []simFrame {
	soft := m.softirq(softirqNetRX, func() {
		if m.net {
			m.emit(c, trace.NetReceive, trace.Net{SKB: skb, Bytes: 100, Dev: device})
		}
		do()
	})
	if device == "lo" || m.rnd.IntN(2) == 0 {
		return []simFrame{soft}
	}
	soft.body = trace.Softirq{Vec: softirqNetRX, AfterIRQ: true, IRQ: 30}
	return []simFrame{m.irq(30, nil), soft}
}

// remote waits for an answer from another machine.
func (m *machine) remote(t *actor, then func()) {
	m.serial++
	skb := m.serial
	m.until(t, m.us(100, 5000), func(c *simCPU, do func()) []simFrame { return m.receive(c, "eth0", skb, do) }, inRemote, reason{key: key{cause: Network}})
	m.block(t, asleep(callRead), then)
}

// overTCP waits for an answer that TCP has to ask for again.
func (m *machine) overTCP(t *actor, then func()) {
	sent, answer := m.us(200, 4000), m.us(20, 150)
	tcp := trace.TCPTimer{Kind: trace.TCPRetransmit, State: 1, Waiter: t.tid, Peer: [4]byte{10, 0, 0, 7}, Port: 80}
	timed := m.now
	m.at(sent, func() {
		f := m.timer(fnWrite, tcp, nil)
		f.within[0].begun = func() { timed = m.now }
		m.interrupt(m.anyCPU(), f)
	})
	m.at(sent+answer+100_000, func() {
		c := m.anyCPU()
		m.interrupt(c, m.receive(c, "eth0", m.serial, func() {
			m.wake(c, t, inRemote, reason{key: key{cause: Network}, before: []share{{to: timed, key: key{cause: ProtocolTimer}}}})
		})...)
	})
	m.block(t, asleep(callRead), then)
}

// console waits for a device that has no more than an interrupt.
func (m *machine) console(t *actor, then func()) {
	m.until(t, m.us(100, 3000), func(_ *simCPU, do func()) []simFrame { return []simFrame{m.irq(4, do)} }, abi.WakerIrq|4, reason{key: key{cause: IRQ, name: irqNames[4]}})
	m.block(t, asleep(callRead), then)
}

// rename gives the task another name.
func (m *machine) rename(t *actor, then func()) {
	t.names = append(t.names, m.name())
	if m.rnd.IntN(2) == 0 {
		m.emit(t.cpu, trace.ProcessExec, trace.Exec{Comm: t.comm(), PID: t.tid, OldTID: t.tid, Prio: t.prio})
	}
	m.compute(t, m.us(5, 200), then)
}

// again does the same as other tasks on purpose: reads from one disk, in one burst.
func (m *machine) again(t *actor, then func()) {
	for range 1 + m.rnd.IntN(4) {
		m.submit(t, m.disks[0], 256<<10, 1, nil)
	}
	m.compute(t, m.us(5, 50), then)
}

// fork starts a program, and waits for its end.
func (m *machine) fork(t *actor, then func()) {
	if m.children >= 4 || !m.mayWait(t) {
		m.compute(t, 5000, then)
		return
	}
	m.children++
	child := m.newActor(t.names[len(t.names)-1], t.prio)
	child.born, child.cgroup = t, t.cgroup
	m.emit(t.cpu, trace.ProcessFork, trace.Fork{ParentComm: t.comm(), ChildComm: child.comm(), ParentPID: t.tid, ChildTID: child.tid, ChildPID: child.tid, Prio: child.prio})
	m.compute(t, m.us(5, 30), func() {
		child.cpu, child.left = t.cpu, m.us(5, 100)
		child.next = func() {
			m.rename(child, func() { m.act(child, 1, func() { m.act(child, 1, func() { m.exit(child) }) }) })
		}
		m.start(t.cpu, child)
		ended := false
		child.parent = func() {
			ended = true
			if t.state == blocked && t.waitsFor == child {
				m.waiting--
				m.wake(child.cpu, t, 0, reason{key: taskKey(Task, child), by: child})
			}
		}
		m.compute(t, m.us(5, 100), func() {
			if ended {
				m.compute(t, 1000, then)
				return
			}
			m.waiting++
			t.waitsFor = child
			m.block(t, asleep(callWait), then)
		})
	})
}

// exit ends a task.
func (m *machine) exit(t *actor) {
	m.emit(t.cpu, trace.ProcessExit, trace.Exit{Comm: t.comm(), PID: t.tid, Prio: t.prio})
	t.parent()
	m.compute(t, m.us(5, 50), func() {
		m.children--
		t.dies = m.now
		delete(m.alive, t.tid)
		m.freed = append(m.freed, t.tid)
		m.swap(t.cpu, trace.Switch{PrevState: taskDead, Call: trace.CallNone})
	})
}
