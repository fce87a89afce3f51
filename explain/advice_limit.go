package explain

import (
	"fmt"
	"strings"
)

// adviseLimit names the limit that put the task to sleep.
func (w *walker) adviseLimit(a *advised) string {
	switch waitOf(a.Wait) {
	case waitDirtyPages:
		return fmt.Sprintf("More was written than %s takes: write less or more evenly, or raise vm.dirty_bytes%s or vm.dirty_ratio%s; more dirty pages make later fsyncs longer.",
			a.By.Name, w.m.now("vm.dirty_bytes"), w.m.now("vm.dirty_ratio"))
	case waitIOLimit, waitIODelay:
		return w.adviseIOLimit(a)
	case waitMemoryHigh:
		return w.raiseMemory(a, "memory.high", "memory.high")
	case waitMemoryMax:
		return w.raiseMemory(a, "memory.max", "memory.max", "memory.limit_in_bytes")
	case waitDLRuntime:
		return fmt.Sprintf("Check sched_runtime and sched_period of %s (chrt -p %d): it wants more than its runtime of each period.", a.who.Name, a.who.TID)
	case waitDelay:
		return "The kernel let it sleep for a time that it chose: the stack of that wait says where and why (the group wait in recorder.events, or stacks of the rule)."
	case waitRTRuntime:
		return fmt.Sprintf("Real-time tasks used up kernel.sched_rt_runtime_us%s of each kernel.sched_rt_period_us%s: check which of them runs that long.",
			w.m.now("kernel.sched_rt_runtime_us"), w.m.now("kernel.sched_rt_period_us"))
	}
	return ""
}

// adviseIOLimit: of version 1 of cgroups, the limit is not known.
func (w *walker) adviseIOLimit(a *advised) string {
	if waitOf(a.Wait) == waitIODelay {
		if a.By.Cgroup == "" {
			return ""
		}
		return fmt.Sprintf("Check io.latency%s and io.weight%s of cgroup %s, and io.cost.qos.",
			w.m.own(a.By.Cgroup, "io.latency").now(), w.m.own(a.By.Cgroup, "io.weight").now(), a.By.Cgroup)
	}
	if k, ok := w.m.lowest(a.By.Cgroup, "io.max"); ok {
		return fmt.Sprintf("Raise io.max of cgroup %s (now %s).", k.cgroup, k.value)
	}
	return fmt.Sprintf("Raise io.max of %s, or blkio.throttle.* of cgroup v1.", describe(a.By))
}

// adviseProtocol: only what the task's own machine can change, and what was seen.
func (w *walker) adviseProtocol(a *advised) string {
	if !a.own {
		return ""
	}
	switch waitOf(a.Wait) {
	case waitSYN:
		if strings.Contains(w.longestWhy, "accept queue") {
			return fmt.Sprintf("The listener accepts too slowly: let it accept sooner, or give it a longer queue (the backlog of listen, at most net.core.somaxconn%s).",
				w.m.now("net.core.somaxconn"))
		}
		return "The SYN was lost or not answered: check the listener's accept queue (ss -ltn) and filters on the way."
	case waitDataAgain:
		return "What was sent was not acknowledged in time: see the connection with ss -ti, and losses with nstat -az TcpRetransSegs."
	case waitDelayedACK:
		return "Whoever writes small pieces on this connection should write a request at once (one writev), or set TCP_NODELAY."
	case waitSYNACK:
		return "The end of the handshake was lost, or dropped as the listener's accept queue was full: compare Recv-Q with Send-Q in ss -ltn, and see nstat -az TcpExtListenOverflows."
	case waitKeepAlive:
		return "Nothing came until TCP asked whether the peer is still there: check the peer, or set TCP_KEEPIDLE or TCP_USER_TIMEOUT to notice sooner (net.ipv4.tcp_keepalive_time)."
	case waitWindowProbe:
		return "The peer does not read: its receive buffer was full."
	}
	return ""
}
