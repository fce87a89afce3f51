package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// States of the kernel in which a task waits for no event of its own.
const (
	taskStopped = 0x04
	taskTraced  = 0x08
)

// slept is time blocked. s is cut to what is asked for, whole is not.
func (w *walker) slept(t *task, s, whole *segment) []piece {
	p := piece{from: s.from, to: s.to, task: t.tid, cpu: -1, state: "blocked"}
	wk := whole.wake
	if wk != nil && wk.at > whole.to {
		wk = nil
	}
	if wk != nil {
		p.waker = w.m.whoWoke(wk)
	}
	nr := t.inCall(whole)
	p.why = w.m.inWords(nr)
	if w.outlier.Syscall != "" && len(w.stack) == 1 && nr < 0 {
		p.why = "in " + w.outlier.Syscall
	}
	switch {
	case whole.frozen || whole.bits&(taskStopped|taskTraced) != 0:
		p.cause = Stopped
		p.by = &Who{Kind: KindUnknown, Name: "a signal, or a freezer"}
		if wk != nil && wk.ctx.kind == "" {
			p.by, p.why = w.m.whoTask(wk.tid), "until it was let go on"
		}
		return []piece{p}
	case t.lockedBy(s.from) != nil:
		return []piece{w.locked(p, t.lockedBy(s.from), wk)}
	case wk == nil:
		return []piece{w.pending(t, p, whole, nr)}
	}
	if r := wk.ctx.request; r != nil && r.complete <= wk.at && r.complete+maxCompletion > wk.at && r.complete > s.from {
		return w.faulted(nr, t, w.disk(p, r))
	}
	switch wk.ctx.kind {
	case KindWork:
		return w.worked(p, wk)
	case KindTimer:
		p.cause, p.by = Timer, w.m.whoTimer(&wk.ctx)
		return []piece{p}
	case KindIRQ:
		p.cause, p.by = IRQ, &Who{Kind: KindIRQ, Name: wk.ctx.name}
		return []piece{p}
	case KindSoftirq:
		if wk.ctx.number != softirqNetRX && wk.ctx.number != softirqNetTX {
			return []piece{w.soft(p, wk)}
		}
		if wk.ctx.fromIRQ || wk.tid == 0 {
			p.cause, p.by = Network, &Who{Kind: KindNetwork, Name: "the network"}
			return []piece{p}
		}
	}
	return w.faulted(nr, t, []piece{w.byTask(t, p, wk, nr)})
}

// maxCompletion is how long after a request's completion a wake-up in the same
// interrupt may still be due to it.
const maxCompletion = 1_000_000

// soft is a wait that another softirq than the network's ended.
func (w *walker) soft(p piece, wk *wake) piece {
	switch wk.ctx.number {
	case 1, 8:
		p.cause, p.by = Timer, &Who{Kind: KindTimer, Name: "timer"}
	case 4:
		p.cause, p.by = BlockDevice, &Who{Kind: KindSoftirq, Name: "BLOCK"}
	default:
		p.cause, p.by = Softirq, &Who{Kind: KindSoftirq, Name: wk.ctx.name}
	}
	return p
}

// locked is a wait for a lock of the kernel.
func (w *walker) locked(p piece, l *locking, wk *wake) piece {
	p.cause = Locked
	holder := l.owner
	if holder == 0 && wk != nil && wk.ctx.kind == "" {
		holder = wk.tid
	}
	if holder == 0 {
		p.by = &Who{Kind: KindUnknown, Name: "an unknown holder"}
		return p
	}
	p.by = w.m.whoTask(holder)
	p.why = "for a lock of the kernel"
	p.below = w.below(holder, p.from, p.to)
	return p
}

// below follows another task, unless the path comes from there.
func (w *walker) below(tid int, from, to uint64) []piece {
	if tid == 0 || len(w.stack) >= maxDepth || slices.Contains(w.stack, tid) {
		return nil
	}
	return w.follow(tid, from, to)
}

// byTask is a wait that another task ended.
func (w *walker) byTask(t *task, p piece, wk *wake, nr int) piece {
	p.cause, p.by = Task, w.m.whoTask(wk.tid)
	comm := p.by.Comm
	name := w.m.syscall(nr)
	switch {
	case wk.tid == 0:
		p.cause, p.by = Unexplained, nil
		p.reason = "woken on an idle CPU, by an interrupt that is not recorded"
		return p
	case strings.HasPrefix(comm, "jbd2/"):
		p.cause = Journal
	case strings.HasPrefix(comm, "kswapd"):
		p.cause = Reclaim
	case strings.HasPrefix(comm, "kcompactd"):
		p.cause = Compaction
	case t.effortAt(p.from) != "":
		p.cause = t.effortAt(p.from)
	case name == "futex":
		p.cause = Locked
		p.why = "for a futex that it woke"
	case strings.HasPrefix(comm, "kworker/"):
		p.cause = WorkQueue
	case isSleep(name):
		p.why = "out of its sleep in " + name
	}
	p.below = w.below(wk.tid, p.from, p.to)
	if slices.Contains(w.stack, wk.tid) {
		p.why += "; it had waited for this task before"
	}
	return p
}

func isSleep(call string) bool { return call == "nanosleep" || call == "clock_nanosleep" }

// worked is a wait that a work queue's work ended.
func (w *walker) worked(p piece, wk *wake) []piece {
	x := wk.ctx.work
	mine := &Who{Kind: KindWork, Name: w.m.workName(x.function), Function: w.m.function(x.function), TID: wk.tid}
	if t := w.m.tasks[wk.tid]; t != nil {
		mine.Comm = t.comm.String()
	}
	var out []piece
	p.cause, p.by = WorkQueue, mine
	if x.queued > 0 && x.start > p.from {
		q := p
		q.from, q.to = max(p.from, min(x.queued, p.to)), min(x.start, p.to)
		if q.from > p.from {
			before := p
			before.to, before.why = q.from, "before its work was queued"
			out = append(out, before)
		}
		if q.from < q.to {
			q.why = "queued behind other work"
			if x.queue != "" {
				q.why = "queued in " + x.queue + " behind other work"
			}
			if by := w.m.ahead(wk.tid, q.from, q.to); by != nil {
				q.by = by
			}
			q.below = w.below(wk.tid, q.from, q.to)
			out = append(out, q)
		}
		p.from = max(q.to, q.from)
	}
	if p.from < p.to {
		p.why = "while its work ran"
		p.below = w.below(wk.tid, p.from, p.to)
		out = append(out, p)
	}
	return out
}

// ahead is the work that a worker executed longest in a stretch.
func (m *model) ahead(worker int, from, to uint64) *Who {
	t := m.tasks[worker]
	if t == nil {
		return nil
	}
	sums := map[uint64]uint64{}
	var best uint64
	for _, x := range t.works {
		lo, hi := max(x.start, from), min(x.end, to)
		if lo < hi {
			sums[x.function] += hi - lo
			if best == 0 || sums[x.function] > sums[best] {
				best = x.function
			}
		}
	}
	if best == 0 {
		return nil
	}
	return &Who{Kind: KindWork, Name: m.workName(best), Function: m.function(best), TID: worker, Comm: t.comm.String()}
}

func (m *model) workName(function uint64) string {
	if name := m.function(function); name != "" {
		return name
	}
	return fmt.Sprintf("work %#x", function)
}

// pending is a wait whose end the trace does not have: it goes on, or its
// wake-up is lost.
func (w *walker) pending(t *task, p piece, whole *segment, nr int) piece {
	name := w.m.syscall(nr)
	switch r := w.m.openRequest(t.tid, p.from); {
	case whole.to < w.m.to:
		p.cause, p.reason = Unexplained, "no wake-up was recorded"
	case r != nil:
		p.cause, p.by = BlockDevice, w.m.whoDevice(r)
		p.why = "its request has not completed"
	case name == "futex":
		p.cause, p.by = Locked, &Who{Kind: KindUnknown, Name: "a futex that nobody has woken"}
	case isSleep(name):
		p.cause, p.by = Timer, &Who{Kind: KindTimer, Name: "timer"}
	default:
		p.cause, p.reason = Unexplained, "it still waits: nobody has woken it"
		if name != "" {
			p.reason += ", in " + name
		}
	}
	return p
}

// faulted says that a wait was for a page.
func (w *walker) faulted(nr int, t *task, pieces []piece) []piece {
	cause := Cause("")
	if nr == trace.CallException {
		cause = PageFault
	}
	for i := range pieces {
		p := &pieces[i]
		if e := t.effortAt(p.from); e != "" {
			cause = e
		}
		if cause == "" || p.cause != BlockQueue && p.cause != BlockDevice {
			continue
		}
		inner := *p
		p.below = []piece{inner}
		p.cause = cause
		if cause == PageFault {
			p.why = "for a page that was not in memory"
		}
	}
	return pieces
}

// inWords names what a task was in when it blocked.
func (m *model) inWords(nr int) string {
	switch {
	case nr == trace.CallException:
		return "in a page fault"
	case nr < 0:
		return ""
	}
	if name := m.syscall(nr); name != "" {
		return "in " + name
	}
	return fmt.Sprintf("in system call %d", nr)
}

// whoWoke names a waker.
func (m *model) whoWoke(wk *wake) *Who {
	x := &wk.ctx
	switch x.kind {
	case KindIRQ:
		return &Who{Kind: KindIRQ, Name: x.name}
	case KindSoftirq:
		if x.number == softirqNetRX && !x.fromIRQ && wk.tid != 0 {
			return m.whoTask(wk.tid)
		}
		return &Who{Kind: KindSoftirq, Name: x.name}
	case KindTimer:
		return m.whoTimer(x)
	case KindWork:
		w := m.whoTask(wk.tid)
		w.Function = m.function(x.function)
		return w
	}
	if wk.tid == 0 {
		return &Who{Kind: KindUnknown, Name: "an interrupt that is not recorded"}
	}
	return m.whoTask(wk.tid)
}

func (m *model) whoTimer(x *context) *Who {
	w := &Who{Kind: KindTimer, Name: "timer", Function: m.function(x.function)}
	if w.Function != "" {
		w.Name = w.Function
	}
	return w
}
