package explain

import (
	"cmp"
	"slices"
	"sort"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Limits of looking for requests.
const (
	maxReplies    = 1 << 18 // of all servers
	maxStretches  = 512     // of one part
	maxBack       = 4096    // segments before and after a moment
	maxHandedOver = 4       // from thread to thread
	maxAsked      = 1 << 19 // segments and replies looked at, of one outlier
)

// collected is how long after it got a CPU a server has asked for all requests that it then
// handles together.
const collected = 100_000

// sameReplies is the time on a CPU between two replies that may answer requests which were
// handled together.
const sameReplies = 250_000

// stillAsked is how long after it woke a server a client may go on before it waits.
const stillAsked = 1_000_000

// inputCalls are the system calls in which servers wait for requests and clients for replies.
var inputCalls = map[string]bool{
	"read": true, "readv": true, "recvfrom": true, "recvmsg": true, "recvmmsg": true, "recv": true, "poll": true, "ppoll": true,
	"select": true, "pselect6": true, "epoll_wait": true, "epoll_pwait": true, "epoll_pwait2": true, "accept": true, "accept4": true,
	"io_uring_enter": true, "msgrcv": true, "mq_timedreceive": true,
}

// reply is a wake-up of a task that waits for input.
type reply struct {
	at   uint64
	tid  int
	from uint64 // of its wait
}

// stretch is an interval of a task's work between a request and the reply, or between two
// replies.
type stretch struct {
	from, to uint64
	client   int    // task that asked; 0: not known
	address  string // of the only connection
	basis    basis
}

// opening is what a stretch of work began with.
type opening struct {
	at     uint64
	tid    int  // task that woke it; 0: none that is known
	thread bool // of the same process
	packet bool // it was a packet
}

// waitsForInput reports whether a task waits for what another may send it. What it waits for
// since before the history is not known, and may be.
func (m *model) waitsForInput(t *task, s *segment) bool {
	if s.state != blocked || s.iowait || s.frozen || s.futex.Known() || s.bits&(taskUninterruptible|taskStopped|taskTraced|taskDead) != 0 {
		return false
	}
	if s.call < 0 && (s.from > m.coveredFrom || s.assumed) || s.call >= 0 && !m.isInput(int(s.call)) {
		return false
	}
	return t.lockWaitAt(s.from) == nil && t.memoryWaitAt(s.from) == nil && (s.wake == nil || s.wake.request == nil)
}

// isInput reports whether a system call waits for input.
func (m *model) isInput(nr int) bool {
	if nr >= len(m.inputs) {
		return inputCalls[m.syscall(nr)]
	}
	if m.inputs[nr] == 0 {
		m.inputs[nr] = -1
		if inputCalls[m.syscall(nr)] {
			m.inputs[nr] = 1
		}
	}
	return m.inputs[nr] > 0
}

// maxBefore is how many waits for input a task keeps from before the outliers.
const maxBefore = 4

// waited is a wait for input before the outliers.
type waited struct {
	segment
	ran uint64 // when the task first had a CPU afterwards; 0: not yet
}

// mayBeIdle reports whether a wait for a futex may be one of a thread without work.
func (s *segment) mayBeIdle() bool {
	x := s.futex
	return x.Known() && !x.Timed() && x.Op() != trace.FutexLockPI && x.Value() != 2 && x.Value() != 3
}

// keepBefore keeps a wait for input that ended before the outliers: what a task does then may
// have begun with it.
func (m *model) keepBefore(t *task, s *segment) {
	switch {
	case s.state == unknown:
		m.kept -= len(t.before)
		t.before = t.before[:0]
	case s.state != blocked || s.wake == nil || s.from == s.to || !s.mayBeIdle() && !m.waitsForInput(t, s):
	case len(t.before) == maxBefore:
		copy(t.before, t.before[1:])
		t.before[maxBefore-1] = waited{segment: *s}
	case m.reserve():
		t.before = append(t.before, waited{segment: *s})
	}
}

// sender returns the task that woke another, or sent it the packet that did; 0: nobody who is
// known.
func (m *model) sender(wk *wake) int {
	switch {
	case wk.request != nil || wk.work != nil || wk.protocol != nil:
		return 0
	case wk.ctx == nil:
		return wk.tid
	case !wk.isPacket():
		return 0
	case wk.sender != 0:
		return wk.sender
	case wk.device == "" && wk.local && !m.kernelThread(wk.tid):
		return wk.tid
	}
	return 0
}

// isPacket reports whether a softirq that receives packets woke the task.
func (wk *wake) isPacket() bool {
	return wk.ctx != nil && wk.ctx.kind == KindSoftirq && (wk.ctx.number == softirqNetRX || wk.ctx.number == softirqNetTX)
}

// repliesOf returns the wake-ups by a task of those that waited for input, in order.
func (m *model) repliesOf(tid int) []reply {
	if m.replies == nil {
		m.findReplies()
	}
	return m.replies[tid]
}

func (m *model) findReplies() {
	m.replies = map[int][]reply{}
	n := 0
	for _, t := range m.tasks {
		for i := range len(t.before) + len(t.segments) {
			s := t.kept(i)
			if s.state != blocked || s.wake == nil || !m.waitsForInput(t, s) {
				continue
			}
			by := m.sender(s.wake)
			if by == 0 || by == t.tid {
				continue
			}
			if n++; n > maxReplies {
				m.full, m.replies = true, map[int][]reply{} // some would be missing
				return
			}
			m.replies[by] = append(m.replies[by], reply{s.wake.at, t.tid, s.from})
		}
	}
	for _, list := range m.replies {
		slices.SortFunc(list, func(a, b reply) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.tid, b.tid)) })
	}
}

// opens reports whether a task that was blocked began to work on something else afterwards,
// and what that began with. Waits for its own servers, helpers, disks and locks are part of
// its work.
func (w *walker) opens(t *task, s *segment) (opening, bool) {
	if s.state != blocked {
		return opening{}, false
	}
	o := opening{at: s.to}
	own := w.m.pidOf(t.tid)
	if s.futex.Known() {
		k, _ := w.futexKind(t, s)
		if s.wake == nil || !s.mayBeIdle() || k.isLock() {
			return o, false
		}
		o.tid, o.thread = w.m.sender(s.wake), true
		return o, o.tid != 0 && w.m.pidOf(o.tid) == own
	}
	if !w.m.waitsForInput(t, s) {
		return o, false
	}
	if s.wake == nil {
		return o, true
	}
	by := w.m.sender(s.wake)
	switch pid := w.m.pidOf(by); {
	case by == 0 && s.byTimer():
		sockets, ok := w.m.sockets(own)
		return o, !ok || !sockets.dedicated()
	case by == 0:
		o.packet = s.wake.isPacket()
	case pid == own:
		o.tid, o.thread = by, true
	case w.m.kernelThread(by):
	case w.m.roleOf(pid, own) == roleOther:
		return o, false
	default:
		o.tid = by
	}
	return o, true
}

// work is the time of a task around a moment in which it did not wait for requests.
type workTime struct {
	opening
	to    uint64
	known bool // how it began
	busy  bool // it had not ended when the history did
}

// kept returns a segment, counted from the first of those kept from before the outliers.
func (t *task) kept(i int) *segment {
	if i < len(t.before) {
		return &t.before[i].segment
	}
	return &t.segments[i-len(t.before)]
}

// workAt finds it; ok is false if the task waited for requests then, or what it did is not
// known.
func (w *walker) workAt(t *task, at uint64) (x workTime, ok bool) {
	i := t.segmentAt(at)
	if i >= len(t.segments) || t.segments[i].from > at || t.segments[i].state == unknown {
		return workTime{to: forever}, false
	}
	x.to = t.segments[i].to
	if _, idle := w.opens(t, &t.segments[i]); idle {
		return x, false
	}
	for j := i + len(t.before) - 1; ; j-- {
		w.asked++
		if j < 0 || i+len(t.before)-j > maxBack || t.kept(j).state == unknown {
			x.at = t.kept(j + 1).from
			break
		}
		if o, opened := w.opens(t, t.kept(j)); opened {
			x.opening, x.known = o, true
			break
		}
	}
	for j := i + 1; ; j++ {
		if w.asked++; j >= len(t.segments) {
			x.busy = true
			return x, true
		}
		if _, idle := w.opens(t, &t.segments[j]); idle || j-i > maxBack || t.segments[j].state == unknown {
			return x, true
		}
		x.to = t.segments[j].to
	}
}

// stretchAt finds out what a task worked on at a moment, and for whom.
func (w *walker) stretchAt(t *task, at uint64) stretch {
	x, ok := w.workAt(t, at)
	if !ok {
		return stretch{from: at, to: x.to}
	}
	pid := w.m.pidOf(t.tid)
	s := stretch{from: x.at, to: x.to}
	to, first := w.between(t, pid, &x, &s, at)
	switch {
	case len(to) > 1:
	case len(to) == 1 && first:
		w.answered(&s, &x, to[0], pid)
	case len(to) == 1:
		if w.m.roleOf(w.m.pidOf(to[0]), pid) == roleClient {
			s.client, s.basis = to[0], byReplyAlone
		}
	case first && x.known:
		w.unanswered(&s, &x, pid)
	}
	if s.client == 0 && len(to) == 0 {
		w.onlyConnection(&s, &x, pid)
	}
	return s
}

// between cuts the time to that between the replies before and after a moment. It returns the
// tasks that were answered at its end, one for each process, and whether no reply came before.
func (w *walker) between(t *task, pid int, x *workTime, s *stretch, at uint64) (to []int, first bool) {
	list := w.m.repliesOf(t.tid)
	i := sort.Search(len(list), func(i int) bool { return list[i].at > x.at })
	first = true
	var last uint64 // reply of the group
	began := w.m.firstRan(t, x.at)
	for ; i < len(list) && list[i].at <= x.to; i++ {
		w.asked++
		r := list[i]
		p := w.m.pidOf(r.tid)
		if w.m.kernelThread(r.tid) || w.m.roleOf(p, pid) == roleOther {
			continue
		}
		if len(to) > 0 && (w.m.ranFor(t, last, r.at, sameReplies) || w.m.cameLater(&r, began+collected)) {
			if last > at {
				break
			}
			to, first, s.from, began = nil, false, last, last
		}
		if last = r.at; !slices.ContainsFunc(to, func(tid int) bool { return w.m.pidOf(tid) == p }) {
			to = append(to, r.tid)
		}
	}
	if last <= at && len(to) > 0 {
		to, first, s.from = nil, false, last
	}
	if len(to) > 0 {
		s.to = last
	}
	return to, first
}

// firstRan returns when a task that was woken first had a CPU.
func (m *model) firstRan(t *task, from uint64) uint64 {
	for i := range t.before {
		if b := &t.before[i]; b.to == from && b.ran != 0 {
			return b.ran
		}
	}
	for i := t.segmentAt(from); i < len(t.segments); i++ {
		if s := &t.segments[i]; s.state == running {
			return max(s.from, from)
		}
	}
	return from
}

// cameLater reports whether a task that got a reply had not begun to ask by some time: it was
// blocked, and not for that reply.
func (m *model) cameLater(r *reply, by uint64) bool {
	t := m.tasks[r.tid]
	i := t.segmentAt(r.from)
	if i >= len(t.segments) || t.segments[i].from != r.from {
		return false
	}
	for i--; i >= 0; i-- {
		switch s := &t.segments[i]; {
		case s.state == blocked:
			return s.to > by
		case s.state == runnable && s.wake != nil:
			return s.from > by // it was blocked until then
		case s.state == unknown:
			return false
		}
	}
	return false
}

// ranFor reports whether a task had a CPU for so long in an interval.
func (m *model) ranFor(t *task, from, to, least uint64) bool {
	if to-from < least {
		return false
	}
	var ran uint64
	if len(t.segments) > 0 && from < t.segments[0].from {
		ran = min(to, t.segments[0].from) - from // as far as is known
	}
	for i := t.segmentAt(from); i < len(t.segments) && t.segments[i].from < to; i++ {
		if s := &t.segments[i]; s.state == running {
			ran += min(s.to, to) - max(s.from, from)
		}
		if ran >= least {
			return true
		}
	}
	return false
}

// answered judges a stretch that ended with one reply.
func (w *walker) answered(s *stretch, x *workTime, to, pid int) {
	client := w.m.pidOf(to)
	asked := w.asker(&x.opening, 0)
	r := w.m.roleOf(client, pid)
	server, _ := w.m.sockets(pid)
	switch {
	case asked != 0 && w.m.pidOf(asked) == client:
		s.client = asked
		switch {
		case r == roleClient:
			s.basis = byConversation
		case w.m.parentOf(client, pid):
			s.basis = byParent
		case server.serves() && w.clientGone(client):
			s.basis = byEndedClient
		default:
			s.client = 0 // which of the two asked is not known
		}
	case asked == 0 && (x.packet || !x.known) && r == roleClient:
		s.client, s.basis = to, byReplyAlone
	}
}

// clientGone reports whether nothing is known of a process's sockets.
func (w *walker) clientGone(pid int) bool {
	_, known := w.m.sockets(pid)
	f, alive := w.m.taskInfo(pid)
	return !known && (!alive || f.Exited)
}

// asker returns the task of another process that a stretch began with: the one for which the
// thread worked that handed it over; 0: not known.
func (w *walker) asker(o *opening, depth int) int {
	if o.tid == 0 || !o.thread {
		return o.tid
	}
	t := w.m.tasks[o.tid]
	if t == nil || depth >= maxHandedOver || o.at == 0 {
		return 0
	}
	x, ok := w.workAt(t, o.at-1)
	if !ok || !x.known {
		return 0
	}
	return w.asker(&x.opening, depth+1)
}

// unanswered judges a stretch that began with a request to which no reply came: the client
// must still wait for it.
func (w *walker) unanswered(s *stretch, x *workTime, pid int) {
	if x.tid == 0 || x.thread || w.m.roleOf(w.m.pidOf(x.tid), pid) != roleClient {
		return
	}
	t := w.m.tasks[x.tid]
	if t == nil {
		return
	}
	i := t.segmentAt(max(s.to, 1) - 1)
	if i >= len(t.segments) || !w.m.waitsForInput(t, &t.segments[i]) || t.segments[i].from > x.at+stillAsked {
		return
	}
	s.client, s.basis = x.tid, byRequestAlone
	if sockets, _ := w.m.sockets(pid); sockets.dedicated() {
		s.basis = byOnlyConnection
	}
}

// onlyConnection names the client by the only connection of a server that a packet woke, or
// that has worked since before the history.
func (w *walker) onlyConnection(s *stretch, x *workTime, pid int) {
	if x.known && !x.packet {
		return
	}
	if s.address = w.m.address(0, pid); s.address != "" {
		s.basis = byOnlyConnection
	}
}
