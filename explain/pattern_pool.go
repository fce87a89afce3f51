package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/linux"
)

// maxSiblings bounds the threads of a process that are looked at.
const maxSiblings = 4096

// siblings returns the other threads of a task's process that the history has, by number.
func (l *look) siblings(t *task) []*task {
	var out []*task
	if t.pid <= 0 {
		return nil
	}
	for _, o := range l.m.tasks {
		if o.pid == t.pid && o != t && len(out) < maxSiblings {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *task) int { return cmp.Compare(a.tid, b.tid) })
	return out
}

// pool returns the threads of a server's process that have its name, and processes beside it:
// of the same parent, name, title and role. idle: one of them has no event, and slept.
func (l *look) pool(server, slow *task) (pool map[int]*task, idle bool) {
	pool = map[int]*task{server.tid: server}
	family := linux.Family(server.comm.String())
	for _, o := range l.siblings(server) {
		if o != slow && linux.Family(o.comm.String()) == family {
			pool[o.tid] = o
		}
	}
	own, ok := l.m.taskInfo(server.tid)
	beside := func(pid int) bool {
		return ok && pid != server.pid && threadID(server.tid) == server.pid && l.beside(&own, server.pid, pid)
	}
	for _, o := range l.m.tasks {
		if len(pool) < maxSiblings && o != slow && threadID(o.tid) == o.pid && l.spend() && linux.Family(o.comm.String()) == family && beside(o.pid) {
			pool[o.tid] = o
		}
	}
	if l.m.names.Tasks == nil {
		return pool, false
	}
	for _, tid := range l.m.names.Tasks() {
		if l.m.tasks[tid] != nil || !l.spend() {
			continue
		}
		f, ok := l.m.taskInfo(tid)
		if ok && !f.Exited && linux.Family(f.Comm) == family && (f.PID == server.pid || f.PID == tid && beside(tid)) {
			return pool, true
		}
	}
	return pool, false
}

// beside reports whether a process serves the same as another one, as those that a server forks
// beforehand: each may take the next request.
func (l *look) beside(own *TaskInfo, server, pid int) bool {
	f, ok := l.m.taskInfo(pid)
	if !ok || own.PPID <= 1 || f.PPID != own.PPID || linux.Family(f.Comm) != linux.Family(own.Comm) || withoutDigits(f.Title) != withoutDigits(own.Title) {
		return false
	}
	mine, _ := l.m.sockets(server)
	theirs, _ := l.m.sockets(pid)
	return mine.Listens == theirs.Listens && !mine.dedicated() && !theirs.dedicated()
}

func withoutDigits(title string) string {
	if linux.Redacted(title) {
		return title
	}
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, title)
}

// exhaustedPool: it waited for a thread or process of a pool, all of which were at work all the
// time, and the one that served it has served somebody else before. Or it waited for a thread
// that has such a pool do the work.
func (l *look) exhaustedPool() *finding {
	b := &l.r.Blame
	slow := l.slow()
	if slow == nil || b.Cause != Task || b.By.Kind != KindTask || !l.most(uint64(b.NS)) {
		return nil
	}
	switch waitOf(b.Wait) {
	case waitJoin, waitBarrier, waitSafepoint:
		return nil
	}
	server := l.m.tasks[b.By.TID]
	if server == nil || server.comm.String() == "" || server == slow {
		return nil
	}
	p := longest(l.pieces, b)
	if f := l.poolOf(server, slow, p, l.servedBefore); f != nil {
		return f
	}
	for i := len(p.below) - 1; i >= 0; i-- {
		q := &p.below[i]
		if q.task != server.tid || q.cause != Task || q.by.Kind != KindTask {
			continue
		}
		if o := l.m.tasks[q.by.TID]; o != nil && o != server && o.pid == server.pid && server.pid > 0 {
			return l.poolOf(o, server, &piece{from: p.from, to: q.to}, func(pool map[int]*task, o, giver *task, q *piece) (uint64, int) {
				return l.handedBefore(pool, o, giver, q, p.to)
			})
		}
		return nil
	}
	return nil
}

// poolOf: a task waited for what a server of a pool did last. before counts what the pool did
// until then for others, and when the server ended the last of that.
func (l *look) poolOf(server, slow *task, p *piece, before func(pool map[int]*task, server, slow *task, p *piece) (uint64, int)) *finding {
	pool, idle := l.pool(server, slow)
	if idle || len(pool) < 2 || !l.most(p.ns()) {
		return nil
	}
	for _, o := range pool {
		if l.idleIn(o, p.from, p.to)*10 > p.ns() {
			return nil
		}
	}
	last, served := before(pool, server, slow, p)
	if served == 0 || (last-p.from)*2 < p.ns() {
		return nil
	}
	what, names := "threads", map[string]bool{}
	for _, o := range pool {
		if names[o.comm.String()] = true; o.pid != server.pid {
			what = "processes"
		}
	}
	did := fmt.Sprintf("they served %s before it", plural(served, "other task"))
	if slow != l.slow() {
		did = fmt.Sprintf("they did %s before its own", plural(served, "other job"))
	}
	return &finding{
		confidence: Inferred, by: l.m.whoTask(server.tid), what: what + " named " + commonName(names),
		why: fmt.Sprintf("none of the %d %s named %s was idle, and %s", len(pool), what, commonName(names), did),
	}
}

// handedBefore counts what a pool has handed to the thread that gives it work, in a wait of that
// for the last of it, and when the server ended the last but one: it took the next from their
// queue then, and was not woken for it. Of several that were handed over at once, those for others
// are known by the thread's replies until end.
func (l *look) handedBefore(pool map[int]*task, server, giver *task, p *piece, end uint64) (last uint64, handed int) {
	l.segmentsIn(giver, p.from, p.to, func(s *segment, _, _ uint64) {
		if s.state != blocked || s.wake == nil || s.wake.ctx != nil || pool[s.wake.tid] == nil || s.to >= p.to {
			return
		}
		if handed++; s.wake.tid == server.tid {
			last = s.to
		}
	})
	since := last
	if handed == 0 {
		for _, r := range l.m.repliesOf(giver.tid) {
			if o := l.m.tasks[r.tid]; r.at >= p.to && r.at < end && o != nil && o.pid != giver.pid && r.tid != l.outlier.TID {
				handed++
				last = p.to
			}
		}
	}
	l.segmentsIn(server, p.from, p.to, func(s *segment, _, _ uint64) {
		if s.state == blocked && s.to > since && s.wake != nil && s.wake.ctx == nil && s.wake.tid == giver.tid {
			last = p.from // it was idle, and told
		}
	})
	return max(last, p.from), handed
}

// idleIn returns how long a thread had nothing to do, as far as can be told: it was blocked
// for something that a request could be.
func (l *look) idleIn(t *task, from, to uint64) (ns uint64) {
	known := false
	l.segmentsIn(t, from, to, func(s *segment, lo, hi uint64) {
		known = true
		if s.state != blocked {
			return
		}
		if wk := s.wake; wk != nil && (wk.request != nil || wk.ctx != nil && isTimer(wk.ctx) && !l.timed(s)) {
			return // its request's disk, or its own time
		}
		if nr, name := t.callAt(s); isSleep(name) || isSleep(l.m.syscall(nr)) {
			return // and it sleeps on
		}
		k, _ := l.futexKind(t, s)
		if s.futex.Known() && k.isLock() || s.iowait || t.lockWaitAt(s.from) != nil || t.memoryWaitAt(s.from) != nil {
			return
		}
		ns += hi - lo
	})
	if !known {
		return to - from
	}
	return ns
}

// servedBefore counts the other tasks that a pool has woken in a wait, and when the server
// woke the last of its own.
func (l *look) servedBefore(pool map[int]*task, server, slow *task, p *piece) (last uint64, served int) {
	for _, o := range l.m.tasks {
		if pool[o.tid] != nil || o == slow || !l.spend() {
			continue
		}
		once := false
		l.segmentsIn(o, p.from, p.to, func(s *segment, _, _ uint64) {
			wk := s.wake
			if s.state != blocked || wk == nil || wk.at <= p.from || wk.at >= p.to {
				return
			}
			by := cmp.Or(wk.sender, wk.tid)
			if wk.ctx != nil && wk.sender == 0 && !wk.local || pool[by] == nil {
				return
			}
			once = true
			if by == server.tid {
				last = max(last, wk.at)
			}
		})
		if once {
			served++
		}
	}
	return max(last, p.from), served
}
