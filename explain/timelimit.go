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
