package explain

import (
	"fmt"
	"sort"
	"strings"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Task states in which no event is awaited.
const (
	taskUninterruptible = 0x02

	taskStopped = 0x04
	taskTraced  = 0x08
	taskDead    = 0x80
)

// blockedSegment explains blocked time. s is full clipped to the requested interval.
func (w *walker) blockedSegment(out []piece, t *task, s, full *segment) []piece {
	p := piece{from: s.from, to: s.to, task: t.tid, cpu: -1, state: "blocked"}
	if full.assumed {
		p.evidence = bySleep
	}
	w.waitSite(t, &p, full)
	wk := full.wake
	if wk != nil {
		p.waker = w.m.whoWoke(wk)
	}
	nr, name := t.callAt(full)
	if nr == trace.CallNone && len(w.stack) == 1 && w.outlier.Syscall != "" && w.outlier.Track == "syscall" {
		name = w.outlier.Syscall
	}
	if name == "" {
		name = w.m.syscall(nr)
	}
	p.why = w.m.callText(nr, name)
	lock := t.lockWaitAt(full.from)
	switch wait := t.memoryWaitAt(full.from); {
	case full.held() || wk != nil && wk.thaw:
		return w.add(out, w.stopped(t, p, full))
	case wait != nil:
		inner := w.wakePieces(nil, t, p, full, nr, name)
		p.cause, p.by, p.below = wait.cause, w.m.whoMemory(t, wait), inner
		return w.add(out, p)
	case nr == trace.CallException && lock == nil:
		inner := w.wakePieces(nil, t, p, full, nr, name)
		p.cause, p.by, p.why, p.below = PageFault, w.m.whoSelf("page"), "in a page fault", inner
		if len(inner) > 0 && inner[0].cause == Limited {
			return append(out, inner...) // the page was there
		}
		if len(inner) > 0 && inner[0].by != nil {
			last := &inner[len(inner)-1]
			p.by, p.evidence = last.by, last.evidence
		}
		if wk == nil {
			return append(out, inner...)
		}
		return w.add(out, p)
	}
	if lock != nil {
		return w.add(out, w.lockPiece(p, lock, wk))
	}
	return w.wakePieces(out, t, p, full, nr, name)
}

// held reports whether a task does not wait, but is stopped or frozen.
func (s *segment) held() bool { return s.frozen || s.bits&(taskStopped|taskTraced) != 0 }

// wakePieces explains a wait by the wake-up that ended it.
func (w *walker) wakePieces(out []piece, t *task, p piece, full *segment, nr int, name string) []piece {
	wk := full.wake
	if w.limitedBySite(t, &p) {
		return w.add(out, p)
	}
	if wk == nil {
		q, r := w.unfinishedWait(t, p, full, name)
		if r == nil {
			return w.add(out, q)
		}
		for _, q := range w.carriedOut(q, r) {
			out = w.add(out, q)
		}
		return out
	}
	if before, after := t.triesAround(full); before != nil {
		return w.triedPieces(out, p, full, before, after)
	}
	if end := w.seriesEnd(t, full); end != nil {
		return append(out, w.inSeries(t, p, full, nr, name, end)...)
	}
	if open := w.seriesOpen(t, full); open != nil {
		q := p
		if w.unfinishedFutex(&q, t, open); q.evidence == byUsual {
			q.why = withSpaceAfter(p.why) + "again and again"
			return w.add(out, q)
		}
	}
	if out = w.protocolWait(out, t, &p, full, name); p.from >= p.to {
		return out
	}
	if r := w.m.tookItsPlace(&p, wk); r != nil {
		return w.add(out, w.placePiece(p, r))
	}
	if r := wk.request; r != nil && r.complete > p.from {
		if wk.near {
			if p.evidence = byNearness; !w.m.mayWaitFor(r, t, full) {
				p.evidence = byOthersRequest
			}
		}
		return w.diskPieces(out, p, r)
	}
	kind := ""
	if wk.ctx != nil {
		kind = wk.ctx.kind
	}
	switch kind {
	case KindTimer:
		if w.limited(t, &p, full, name) {
			return w.add(out, p)
		}
		p.cause, p.by = Timer, w.m.whoContext(wk.ctx)
		p.wait = w.timerKind(t, wk, full, name)
		if p.wait == waitTimeLimit && w.inVain(&p, t, full) {
			return w.add(out, p)
		}
		switch {
		case isSleep(name):
			p.why = "sleeping in " + name
		case full.bits == 0: // it may have been a limit of the kernel
			p.evidence = byWakeAlone
		}
		return w.add(out, p)
	case KindIRQ:
		p.cause, p.by = IRQ, w.m.whoContext(wk.ctx)
		return w.add(out, p)
	case KindSoftirq:
		if full.byTimer() && w.limited(t, &p, full, name) {
			return w.add(out, p)
		}
		return w.add(out, w.softirqWake(p, full))
	}
	switch {
	case wk.work != nil:
		return w.workPieces(out, p, wk)
	case wk.tid == 0:
		p.cause, p.reason = Unexplained, "woken on an idle CPU, by an interrupt that is not recorded"
		if !w.m.eventSeen[trace.IRQEntry] && !w.m.eventSeen[trace.SoftirqEntry] && !w.m.eventSeen[trace.Interrupts] {
			p.reason = "woken by an interrupt: the recorder's event group irq is off"
		}
		p.why = p.reason
		return w.add(out, p)
	}
	return w.add(out, w.taskWake(t, p, full, name))
}

// stopped explains a task stopped by a signal, a tracer or the freezer.
func (w *walker) stopped(t *task, p piece, full *segment) piece {
	p.cause, p.why = Stopped, "stopped by a signal"
	switch {
	case full.frozen:
		p.why = "frozen with its cgroup"
	case !full.held(): // in its sleep
		p.why, p.by, p.evidence = "frozen in its sleep with its cgroup, until it was thawed", w.m.whoFreezer(t), byThaw
		if wk := full.wake; wk.ctx == nil && wk.tid != 0 {
			p.by = w.m.whoTask(wk.tid)
		}
		return p
	case full.bits&taskTraced != 0:
		p.why = "stopped by its tracer"
	}
	// A signal wakes a sleeping task before it stops: find the sender.
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].from >= full.from })
	for j := i - 1; j >= max(0, i-3); j-- {
		s := &t.segments[j]
		if s.state == runnable && s.wake != nil && s.wake.ctx == nil && s.wake.tid != 0 && full.from-s.from < earlyWakeLimit {
			p.by, p.evidence = w.m.whoTask(s.wake.tid), bySignal
			return p
		}
	}
	p.by = w.m.whoUnknown("a signal")
	if full.frozen {
		p.by = w.m.whoFreezer(t)
	}
	if wk := full.wake; wk != nil && wk.ctx == nil && wk.tid != 0 {
		p.by, p.evidence = w.m.whoTask(wk.tid), bySignal
		p.why += ", until it was continued"
	}
	return p
}

// softirqWake explains a wait ended by a softirq that completed no request.
func (w *walker) softirqWake(p piece, full *segment) piece {
	wk := full.wake
	p.by = w.m.whoContext(wk.ctx)
	switch wk.ctx.number {
	case softirqTimer, softirqHrtimer:
		p.cause = Timer
	case softirqBlock:
		p.cause = BlockDevice
	case softirqNetRX, softirqNetTX:
		if p = w.networkWake(p, full); p.cause == Network {
			p.wait = wk.letOut
		}
		return p
	default:
		p.cause = Softirq
	}
	return p
}

// networkWake explains a wait for a packet. The task that the softirq has interrupted is its
// sender only if it was sending.
func (w *walker) networkWake(p piece, full *segment) piece {
	wk := full.wake
	sender := wk.sender
	switch {
	case wk.guessed:
		p.evidence = byUsualSender
	case sender != 0:
		p.evidence = byPacket
	case wk.device != "":
	case wk.local && !w.m.kernelThread(wk.tid):
		sender, p.evidence = wk.tid, bySystemCall
	default:
		p.evidence = bySoftirq
	}
	if sender == 0 || wk.device != "" && wk.device != "lo" {
		p.cause, p.by = Network, w.m.whoNetwork(wk.device, sender)
	} else {
		p.cause, p.by = Task, w.m.whoTask(sender)
	}
	w.descendCauses(&p, full, sender)
	return p
}

// lockPiece explains a wait for a kernel lock.
func (w *walker) lockPiece(p piece, l *lockWait, wk *wake) piece {
	p.cause, p.wait = Locked, lockKind(l.flags)
	holder := l.owner
	p.evidence = byOwner
	if wk != nil && wk.ctx == nil && wk.tid != 0 {
		if p.evidence = byUnlock; holder == wk.tid {
			p.evidence = byRecords
		}
		holder = wk.tid
	}
	if p.why != "" {
		p.why += ", "
	}
	p.why += "for a kernel lock"
	if holder == 0 || holder == p.task {
		p.by, p.evidence = w.m.whoUnknown("an unknown holder"), byRecords
		return p
	}
	p.by = w.m.whoTask(holder)
	w.descend(&p, holder)
	return p
}

// taskWake explains a wait ended by another task.
func (w *walker) taskWake(t *task, p piece, full *segment, name string) piece {
	waker := full.wake.tid
	p.cause, p.by = Task, w.m.whoTask(waker)
	switch {
	case waker == t.tid:
		p.cause, p.by, p.reason = Unexplained, nil, "apparently woken by itself"
		return p
	case w.m.kernelThread(waker):
		w.kernelWake(&p, waker, t.tid)
	case full.wake.signal && !(isChildWait(name) && w.m.ended(waker, full.wake.at)): // of a child, that is its end
		p.wait = waitSignal
	case isFileLock(name):
		p.cause, p.wait, p.evidence = Locked, waitFileLock, byUnlock
	case isFutex(name) || full.futex.Known():
		w.futexWake(&p, full, name)
	}
	if p.cause == Task {
		w.descendCauses(&p, full, waker)
	} else {
		w.descend(&p, waker)
	}
	return p
}

// kernelWake explains a wait ended by a kernel thread, by what those of its name do.
func (w *walker) kernelWake(p *piece, waker, slow int) {
	comm := p.by.Comm
	cause := kernelWait(comm)
	if cause == "" && strings.HasPrefix(comm, "kworker/") {
		cause = WorkQueue
	}
	if cause == "" {
		return
	}
	if p.cause = cause; cause == Journal || cause == WorkQueue {
		p.by = w.m.whoKernel(waker, slow, p.from)
	}
	p.evidence = byKernelThread
}

// kernelWait returns what those wait for whom a thread of the kernel wakes that has this name
// and does I/O of its own; "": it has another one.
func kernelWait(comm string) Cause {
	switch {
	case strings.HasPrefix(comm, "jbd2/"), strings.HasPrefix(comm, "xfs-cil"), strings.HasPrefix(comm, "txg_"), strings.HasPrefix(comm, "btrfs-transac"):
		return Journal
	case strings.HasPrefix(comm, "kswapd"):
		return Reclaim
	case strings.HasPrefix(comm, "kcompactd"):
		return Compaction
	}
	return ""
}

func isSleep(call string) bool { return call == "nanosleep" || call == "clock_nanosleep" }

// workPieces explains a wait ended by a work item.
func (w *walker) workPieces(out []piece, p piece, wk *wake) []piece {
	x := wk.work
	if f := w.m.flushed(x, p.task); f != nil {
		x = f
	}
	p.cause, p.by, p.item = WorkQueue, w.m.whoWork(x), x
	start := min(max(x.start, p.from), p.to)
	queued := start
	if x.queued > 0 {
		queued = min(max(x.queued, p.from), start)
	}
	if queued > p.from && x.queued > 0 {
		out = w.beforeQueued(out, p, x, queued)
	}
	if from := p.from; x.queued > 0 && queued < start || x.queued == 0 && start > from {
		q := p
		q.from, q.to, q.why = queued, start, "its work waited in the queue"
		if x.queued == 0 {
			q.from = from
		}
		if ahead := w.m.runningAhead(x, q.from, q.to); ahead != nil {
			q.by, q.item = w.m.whoWork(ahead), ahead
			q.why, q.evidence = "its work "+w.m.workName(x.function)+" waited in the queue behind other work", byQueueOrder
		}
		w.descend(&q, wk.tid)
		out = w.add(out, q)
	}
	if start < p.to {
		p.from, p.why = start, "while its work ran"
		w.descend(&p, wk.tid)
		out = w.add(out, p)
	}
	return out
}

// flushed returns the work item that a task has waited for if the one that woke it only says that
// this is over: the same worker runs it right afterwards (kernel/workqueue.c,
// insert_wq_barrier()).
func (m *model) flushed(x *work, waiter int) *work {
	t := m.tasks[x.worker]
	if x.queued != 0 || t == nil || m.function(x.function) != "wq_barrier_func" {
		return nil
	}
	i := sort.Search(len(t.works), func(i int) bool { return t.works[i].end > x.start })
	if i == 0 || t.works[i-1].queuer != waiter || t.works[i-1].queued == 0 {
		return nil
	}
	return t.works[i-1]
}

// beforeQueued explains the part of a wait before its work item was queued, by what
// queued it.
func (w *walker) beforeQueued(out []piece, p piece, x *work, queued uint64) []piece {
	p.to, p.why = queued, "before the work "+w.m.workName(x.function)+" was queued"
	t := w.m.tasks[p.task]
	if x.by.tid == p.task || t == nil || w.nested >= maxDepth {
		return w.add(out, p)
	}
	w.nested++
	defer func() { w.nested-- }()
	return w.wakePieces(out, t, p, &segment{from: p.from, to: queued, wake: x.by}, trace.CallNone, "")
}

// maxAhead bounds the work items of a queue that are looked at for one that waited.
const maxAhead = 1 << 12

// runningAhead returns the work item of the same queue or worker that ran longest in an
// interval.
func (m *model) runningAhead(x *work, from, to uint64) *work {
	var list []*work
	if x.queue != "" {
		list = m.queues[x.queue]
	}
	t := m.tasks[x.worker]
	best, most := (*work)(nil), uint64(0)
	scan := func(list []*work) {
		i := sort.Search(len(list), func(i int) bool { return list[i].end > from })
		for _, o := range list[i:min(len(list), i+maxAhead)] { // in order of their ends: one that began before may follow
			if lo, hi := max(o.start, from), min(o.end, to); o != x && hi > lo && hi-lo > most {
				best, most = o, hi-lo
			}
		}
	}
	if scan(list); best == nil && t != nil {
		scan(t.works)
	}
	return best
}

func (m *model) workName(function uint64) string {
	if name := m.function(function); name != "" {
		return name
	}
	return fmt.Sprintf("at %#x", function)
}

// callText describes where a task blocked.
func (m *model) callText(nr int, name string) string {
	if nr == trace.CallException {
		return "in a page fault"
	}
	if name == "" {
		name = m.syscall(nr)
	}
	switch {
	case nr == trace.CallFutex:
		return "in futex"
	case name != "":
		return "in " + name
	case nr >= 0:
		return fmt.Sprintf("in system call %d", nr)
	}
	return ""
}
