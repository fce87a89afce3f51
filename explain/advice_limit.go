package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// adviseLimit names the limit that put the task to sleep.
func (w *walker) adviseLimit(a *advised) string {
	switch waitOf(a.Wait) {
	case waitDirtyPages:
		return w.adviseDirtyPages(a)
	case waitIOLimit:
		return raise(a.By, "io.max, or blkio.throttle.* of cgroup v1,") + "."
	case waitIODelay:
		return w.adviseIOWeight(a)
	case waitMemoryHigh:
		return w.adviseMemory(a.By, "memory.high")
	case waitMemoryMax:
		return w.adviseMemory(a.By, "memory.max")
	case waitDLRuntime:
		return fmt.Sprintf("Check sched_runtime and sched_period of %s (chrt -p %d): it wants more than its runtime of each period.", a.who.Name, a.who.TID)
	case waitDelay:
		return "The kernel let it sleep for a time that it chose: the stack of that wait says where and why (the group wait in recorder.events, or stacks of the rule)."
	case waitRTRuntime:
		// The fair server: 5f6bd380c7bd ("sched/rt: Remove default bandwidth control"), unless
		// CONFIG_RT_GROUP_SCHED is set.
		return fmt.Sprintf("Real-time tasks used up kernel.sched_rt_runtime_us%s of each kernel.sched_rt_period_us%s, or, since Linux 6.12, what its fair server leaves them (/sys/kernel/debug/sched/fair_server): check which of them runs that long.",
			w.m.now("kernel.sched_rt_runtime_us"), w.m.now("kernel.sched_rt_period_us"))
	}
	return ""
}

// adviseDirtyPages: what may be dirty is a share of the machine's memory, or of that of a cgroup.
func (w *walker) adviseDirtyPages(a *advised) string {
	of := ""
	if f, _ := w.m.taskInfo(a.who.TID); f.MemoryCgroup == "" { // those of version 1 have no share
		if k, ok := w.m.memoryLimit(f.Cgroup, "memory.high", "memory.max"); ok {
			of = fmt.Sprintf("; of the memory of cgroup %s (%s now %s) the same share may be dirty", k.cgroup, k.name, k.value)
		}
	}
	disk := a.By.Name
	if a.By.Kind != KindDevice {
		disk = "the disk"
	}
	return fmt.Sprintf("More was written than %s takes: write less or more evenly, or raise vm.dirty_bytes%s or vm.dirty_ratio%s%s; more dirty pages make later fsyncs longer.",
		disk, w.m.now("vm.dirty_bytes"), w.m.now("vm.dirty_ratio"), of)
}

// adviseIOWeight advises on the controllers that share out a disk: io.cost by weights, where it
// is enabled, or io.latency.
func (w *walker) adviseIOWeight(a *advised) string {
	qos := w.m.limit("/", "io.cost.qos")
	switch {
	case a.By.Cgroup == "":
		return ""
	case strings.Contains(qos, "enable=1"):
		return fmt.Sprintf("%s, or relax io.cost.qos (now %s).", raise(a.By, "io.weight"), qos)
	}
	return fmt.Sprintf("Check io.latency of the cgroups that use the disk%s, io.weight of %s, and io.cost.qos.", w.m.latencyTargets(), describe(a.By))
}

// maxTargets is how many cgroups with a target advice names.
const maxTargets = 3

// latencyTargets names the cgroups of tasks of the trace that have an io.latency: " (now …)".
func (m *model) latencyTargets() string {
	found := map[string]string{}
	for tid := range m.tasks {
		f, _ := m.taskInfo(tid)
		for _, at := range m.path(f.Cgroup) {
			if v := m.limit(at, "io.latency"); v != "" {
				found[at] = v
			}
		}
	}
	var list []string
	for _, at := range slices.Sorted(maps.Keys(found)) {
		if len(list) == maxTargets {
			list = append(list, "…")
			break
		}
		list = append(list, found[at]+" of "+at)
	}
	if len(list) == 0 {
		return ""
	}
	return " (now " + strings.Join(list, ", ") + ")"
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
	case waitCorked:
		return "What was written last was held back, as more was to come: end it with a write without MSG_MORE, or clear TCP_CORK (tcp_nopush)."
	case waitWindowProbe:
		return "The peer does not read: its receive buffer was full."
	}
	return ""
}
