package explain

// timerKind returns what a timer that ended a wait was for. A program that waits for
// something, and not only for the time, has given a limit to the call that it waits in.
func (w *walker) timerKind(t *task, wk *wake, full *segment, call string) wait {
	switch w.m.function(wk.ctx.function) {
	case "it_real_fn", "posix_timer_fn": // setitimer, timer_create
		return waitAlarm
	case "timerfd_tmrproc", "timerfd_alarmproc":
		return waitTimerFD
	case "hrtimer_wakeup", "process_timeout":
		if !isSleep(call) && !w.m.kernelThread(t.tid) && (w.timed(full) || socketCalls[call] && w.limitedInside(full)) {
			return waitTimeLimit
		}
	}
	return waitAny
}

// socketCalls wait no longer than their socket allows: SO_RCVTIMEO, SO_SNDTIMEO.
var socketCalls = map[string]bool{
	"read": true, "readv": true, "recvfrom": true, "recvmsg": true, "recvmmsg": true, "accept": true, "accept4": true,
	"write": true, "writev": true, "sendto": true, "sendmsg": true, "sendmmsg": true, "connect": true,
}

// inVain explains a wait that its time limit ended by the one task that the slow one had woken
// before, and that did not wake it: a guess, unless it did later. It reports whether there is one.
func (w *walker) inVain(p *piece, t *task, full *segment) bool {
	tid := w.askedFor(t, full)
	if x := w.m.tasks[tid]; x == nil || tid == t.tid || x.ended() || w.m.kernelThread(tid) || w.answeredTo(t, tid, full) {
		return false
	}
	p.cause, p.wait, p.by, p.evidence = Task, waitNoAnswer, w.m.whoTask(tid), byNoAnswer
	if w.answersLater(tid, t.tid, full.to) {
		p.wait, p.evidence = waitAny, byLaterAnswer // the time limit was for something else
	}
	if w.descend(p, tid); mostlyUnknown(p.below) {
		p.below = nil // another one of its process has it
	}
	return true
}

// mostlyUnknown reports whether most of the time is unexplained.
func mostlyUnknown(pieces []piece) bool {
	var all, unknown uint64
	for i := range pieces {
		p := &pieces[i]
		if all += p.to - p.from; p.cause == Unexplained {
			unknown += p.to - p.from
		}
	}
	return unknown*2 > all
}

// answersLater reports whether a task woke another one between a time and the outlier's end.
func (w *walker) answersLater(tid, asker int, from uint64) bool {
	for _, r := range w.m.repliesOf(tid) {
		if r.tid == asker && r.at > from && r.at <= w.outlier.End {
			return true
		}
	}
	return false
}

// answeredTo reports whether what a task woke another one for, before a wait, was an answer: the
// other one had ended its last wait, or is its client. One beside it, of the same server, is told of
// work and owes none, as PostgreSQL's background writer.
func (w *walker) answeredTo(t *task, tid int, full *segment) bool {
	m, own, asker := w.m, w.process(t.tid), w.process(tid)
	if m.roleOf(asker, own) == roleClient || m.besides(asker, own) {
		return true
	}
	for i := len(t.before) + t.segmentAt(full.from) - 1; i >= 0; i-- {
		if s := t.kept(i); s.state == blocked {
			by := 0
			if s.wake != nil {
				by = m.sender(s.wake)
			}
			return by != 0 && w.process(by) == asker
		}
	}
	return false
}

// timerWords describes a wait that a timer ended; why is the system call.
func timerWords(k wait, why string) string {
	switch k {
	case waitTimeLimit:
		return " asleep until a timer, its own time limit" + withSpace(why) + ": what it waited for did not come"
	case waitAlarm:
		return " waiting" + withSpace(why) + " until a timer of its process sent a signal"
	case waitTimerFD:
		return " waiting" + withSpace(why) + " until the timer of a timerfd"
	}
	return " asleep until a timer" + inParens(why)
}
