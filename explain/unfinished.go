package explain

import (
	"cmp"
	"fmt"
	"slices"
)

// unfinishedWait explains a wait without a recorded end: it continues, or its wake-up
// is missing. The request is what it waits for; nil: something else.
func (w *walker) unfinishedWait(t *task, p piece, full *segment, name string) (_ piece, r *request) {
	if full.to >= w.m.to-lateEvents && (full.iowait || full.bits&taskUninterruptible != 0) {
		r = w.m.openRequest(t.tid, p.from)
	}
	switch {
	case full.bits&taskDead != 0:
		p.cause, p.reason = Unexplained, "the task has ended"
	case full.to < w.m.to-lateEvents:
		p.cause, p.reason = Unexplained, "no wake-up was recorded"
		if w.m.recordsMissing(p.from) || w.m.recordsMissing(p.to) {
			p.reason = reasonOverwritten
		}
	case r != nil:
		p.cause, p.by, p.evidence = BlockDevice, w.m.whoDevice(r), byOpenRequest
		p.why = "its " + w.m.requestText(r) + " has not completed"
	case isFutex(name) || full.futex.Known():
		w.unfinishedFutex(&p, t, full)
	case isSleep(name):
		p.cause, p.by = Timer, w.m.whoTimer("")
		p.why = "sleeping in " + name
	case isFileLock(name):
		w.unfinishedFileLock(&p, t, full)
	case isChildWait(name):
		w.unfinishedChild(&p, t, name)
	default:
		w.expect(&p, t, full)
	}
	if p.cause == Unexplained && p.reason == "" {
		p.reason = "still waiting, no wake-up yet"
		if name != "" {
			p.reason = "still waiting in " + name + ", no wake-up yet"
		}
	}
	if p.reason != "" {
		p.why = p.reason
	}
	if p.cause != BlockDevice {
		r = nil
	}
	return p, r
}

// unfinishedFutex explains a wait for a futex that has not ended.
func (w *walker) unfinishedFutex(p *piece, t *task, full *segment) {
	var kind evidence
	p.wait, kind = w.futexKind(t, full)
	if w.expect(p, t, full); p.cause != Unexplained {
		if p.wait.isLock() {
			p.cause = Locked
		} else {
			p.wait = waitAny // which has words for what has ended
		}
		return
	}
	p.cause, p.by, p.evidence = Task, w.m.whoUnknown("a task that has not woken it yet"), kind
	p.why = "for a futex that has not been woken yet"
	if p.wait.isLock() {
		p.cause, p.by = Locked, w.m.whoUnknown("an unknown holder")
	}
}

// unfinishedFileLock explains a wait for a lock of a file that has not ended.
func (w *walker) unfinishedFileLock(p *piece, t *task, full *segment) {
	p.cause = Unexplained
	x := t.askedBefore(full)
	if x == nil {
		return
	}
	if tid, _ := w.m.holder(x); tid != 0 {
		p.cause, p.wait, p.by, p.evidence = Locked, waitFileLock, w.m.whoTask(tid), byOwner
		w.descendHolder(p, x, tid)
	}
}

// unfinishedChild explains a wait for a child that has not ended.
func (w *walker) unfinishedChild(p *piece, t *task, name string) {
	p.cause = Unexplained
	children := w.m.children(cmp.Or(t.pid, t.tid))
	switch len(children) {
	case 0:
	case 1:
		p.cause, p.wait, p.by, p.evidence = Task, waitJoin, w.m.whoTask(children[0]), byOnlyChild
		w.descend(p, children[0])
	default:
		p.reason = fmt.Sprintf("still waiting in %s for one of %d children to end", name, len(children))
	}
}

// children returns the processes that a process has made and that have not ended, as far as they
// are known.
func (m *model) children(pid int) []int {
	if m.names.Tasks == nil {
		return nil // those that slept all the time would be missing
	}
	found := map[int]bool{}
	for _, tid := range m.names.Tasks() {
		if f, ok := m.taskInfo(tid); ok && f.PPID == pid && f.PID == tid && !f.Exited {
			found[tid] = true
		}
	}
	for tid, t := range m.tasks {
		if t.parent == pid && t.pid == tid {
			found[tid] = true
		}
	}
	var out []int
	for tid := range found {
		if t := m.tasks[tid]; t == nil || !t.ended() {
			out = append(out, tid)
		}
	}
	slices.Sort(out)
	return out
}

// ended reports whether a task's last event is its end.
func (t *task) ended() bool {
	n := len(t.segments)
	return n > 0 && t.segments[n-1].bits&taskDead != 0
}

// usualEnd is who has ended the last waits of a task of one kind.
type usualEnd struct {
	call  int16
	futex int16 // operation; -1: it is none
	by    int
	count int

	process   int // of by
	ofProcess int // as count, of any of its threads
}

const (
	maxUsual   = 4 // kinds of waits of a task
	leastUsual = 3 // waits that one task has ended in a row, to be expected to end the next one
)

func usualKind(s *segment) usualEnd {
	x := usualEnd{call: s.call, futex: -1}
	if s.futex.Known() {
		x.futex = int16(s.futex.Op())
	}
	return x
}

// noteEnd keeps who has ended a wait of a task. Time limits and signals end none, and a guess does
// not confirm the next one.
func (m *model) noteEnd(t *task, s *segment, wk *wake) {
	if wk.signal || wk.guessed || s.byTimer() || s.iowait {
		return
	}
	x := usualKind(s)
	x.by, x.count, x.ofProcess = m.sender(wk), 1, 1
	if x.by != 0 {
		x.process = m.pidOf(x.by)
	}
	if o := t.usualAt(s); o != nil {
		if o.by == x.by {
			x.count += o.count
		}
		if o.process == x.process {
			x.ofProcess += o.ofProcess
		}
		*o = x
		return
	}
	if len(t.usual) == maxUsual {
		t.usual = t.usual[:copy(t.usual, t.usual[1:])]
	}
	t.usual = append(t.usual, x)
}

// guessSender finds who sent the packet that has ended a wait where an interrupt came while a task
// sent it, so that the kernel received it for that: the task below, if those of its process have
// ended the last waits of this kind.
func (m *model) guessSender(t *task, s *segment, wk *wake) {
	if wk.tid == 0 || !wk.isPacket() || wk.device != "" || wk.protocol != nil || wk.letOut != waitAny || m.sender(wk) != 0 {
		return
	}
	if m.usuallyBy(t, s, wk.tid) {
		wk.sender, wk.guessed = wk.tid, true
	}
}

// usuallyBy reports whether another process, that of a thread, has ended the last waits of a task
// that were of the kind of one.
func (m *model) usuallyBy(t *task, s *segment, tid int) bool {
	usual, process := t.usualAt(s), m.pidOf(tid)
	return usual != nil && usual.ofProcess >= leastUsual && process != 0 && usual.process == process && process != t.pid
}

// expect explains a wait that has not ended by whom the task has asked, or by who has ended the
// last ones of its kind, if that was one task: a guess. Unexplained: nobody is expected.
func (w *walker) expect(p *piece, t *task, full *segment) {
	p.cause = Unexplained
	if full.bits&taskUninterruptible != 0 {
		return // the kernel's
	}
	usual := t.usualAt(full)
	tid, e := w.askedFor(t, full), byAsked
	switch {
	case tid != 0 && (usual == nil || usual.by == tid || slices.Contains(w.stack, usual.by)):
	case len(w.stack) > 1 && !p.wait.isLock(), usual == nil, usual.count < leastUsual:
		return // a thread that serves others is idle as well
	default:
		tid, e = usual.by, byUsual
	}
	if x := w.m.tasks[tid]; x == nil || tid == t.tid || x.ended() || x.waitsLikewise(full) || w.m.kernelThread(tid) {
		return
	}
	p.cause, p.by, p.evidence = Task, w.m.whoTask(tid), e
	w.descend(p, tid)
}

// usualAt returns who has ended the last waits of a task that were of the kind of one; nil: there
// were none.
func (t *task) usualAt(s *segment) *usualEnd {
	kind := usualKind(s)
	for i := range t.usual {
		if o := &t.usual[i]; o.call == kind.call && o.futex == kind.futex {
			return o
		}
	}
	return nil
}

// waitsLikewise reports whether a task is in a wait that has not ended, for the same kind of futex
// as another one: it will not end that.
func (t *task) waitsLikewise(s *segment) bool {
	n := len(t.segments)
	if n == 0 || !s.futex.Known() {
		return false
	}
	last := &t.segments[n-1]
	return last.state == blocked && last.wake == nil && last.futex.Known() && last.futex.Op() == s.futex.Op()
}

// maxGoneOn bounds the waits that ended for nothing.
const maxGoneOn = 8

// outputCalls wait for room, which those make that read.
var outputCalls = map[string]bool{
	"write": true, "writev": true, "sendto": true, "sendmsg": true, "sendmmsg": true, "sendfile": true, "splice": true,
}

// askedFor returns the one task that another one has woken from a wait for input since its own last
// wait, before it waited itself; if it waits for room to write, the last one that it has woken so.
// A wait that ended for nothing, and was gone on with, is none: who reads from a UNIX socket wakes
// whoever waits to read from its other end. Of a task that others wait for, only what it was woken
// for by those counts. Its parent, which has ended no such wait, it has told something. 0: nobody,
// or several.
func (w *walker) askedFor(t *task, full *segment) (tid int) {
	if full.futex.Known() {
		return 0
	}
	room, usual := outputCalls[w.m.syscall(int(full.call))], t.usualAt(full)
	told := func(tid int) bool {
		return w.m.parentOf(w.process(tid), w.process(t.tid)) && (usual == nil || usual.by != tid)
	}
	replies := w.m.repliesOf(t.tid)
	i := len(t.before) + t.segmentAt(full.from)
	to := full.from
	for range maxGoneOn {
		for i--; i >= 0 && t.kept(i).state != blocked; i-- {
		}
		since := uint64(0)
		if i >= 0 {
			since = t.kept(i).to
		}
		for _, r := range replies {
			switch {
			case r.at > to || r.at < since && !room || slices.Contains(w.stack, r.tid) || !room && told(r.tid):
			case room || tid == 0 || tid == r.tid:
				tid = r.tid
			default:
				return 0
			}
		}
		switch n := len(w.stack); {
		case tid == 0 && (i < 0 || usualKind(t.kept(i)) != usualKind(full)):
			return 0
		case tid == 0:
		case n > 1 && (i < 0 || t.kept(i).wake == nil || w.m.sender(t.kept(i).wake) != w.stack[n-2]):
			return 0
		default:
			return tid
		}
		to = since
	}
	return 0
}

// isChildWait reports whether a system call waits for children.
func isChildWait(name string) bool { return name == "wait4" || name == "waitid" }
