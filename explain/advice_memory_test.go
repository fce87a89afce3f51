package explain

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestMemoryUsers: named is who has much of what is short, each process once.
func TestMemoryUsers(t *testing.T) {
	const mib = 1 << 20
	app := &Who{Kind: KindCgroup, Name: "/app", Cgroup: "/app", Limit: "memory.high 1048576000"}
	machine := &Who{Kind: KindMemory, Name: "the machine's memory"}
	unlimited := &Who{Kind: KindCgroup, Name: "/app", Cgroup: "/app"}
	const raise = "Raise memory.high of cgroup /app (now 1048576000), or check what uses it"
	for _, c := range []struct {
		name  string
		by    *Who
		tasks map[int]TaskInfo
		want  string
	}{
		{"one", app, map[int]TaskInfo{2: {PID: 2, Comm: "java", Cgroup: "/app/a", Anonymous: 500 * mib}}, raise + ": java 2 has 500 MiB of anonymous memory."},
		{"its threads", app, map[int]TaskInfo{
			2: {PID: 2, Comm: "java", Cgroup: "/app", Anonymous: 500 * mib}, 3: {PID: 2, Comm: "gc", Cgroup: "/app", Anonymous: 500 * mib},
		}, raise + ": java 2 has 500 MiB of anonymous memory."},
		{"two", app, map[int]TaskInfo{
			2: {PID: 2, Comm: "java", Cgroup: "/app", Anonymous: 300 * mib}, 3: {PID: 3, Comm: "side", Cgroup: "/", MemoryCgroup: "/app", Anonymous: 400 * mib},
		}, raise + ": side 3 has 400 MiB of anonymous memory, and java 2 has 300 MiB."},
		{"one that is small beside the other", app, map[int]TaskInfo{
			2: {PID: 2, Comm: "java", Cgroup: "/app", Anonymous: 600 * mib}, 3: {PID: 3, Comm: "side", Cgroup: "/app", Anonymous: 200 * mib},
		}, raise + ": java 2 has 600 MiB of anonymous memory."},
		{"of another cgroup", app, map[int]TaskInfo{2: {PID: 2, Comm: "java", Cgroup: "/apps", Anonymous: 900 * mib}}, raise + "."},
		{"a twentieth of the limit", app, map[int]TaskInfo{2: {PID: 2, Comm: "java", Cgroup: "/app", Anonymous: 50 * mib}}, raise + "."},
		{"no limit is known", unlimited, map[int]TaskInfo{2: {PID: 2, Comm: "java", Cgroup: "/app", Anonymous: 64 * mib}},
			"Raise memory.high or memory.max of cgroup /app, or check what uses it: java 2 has 64 MiB of anonymous memory."},
		{"no limit is known, and little", unlimited, map[int]TaskInfo{2: {PID: 2, Comm: "java", Cgroup: "/app", Anonymous: 63 * mib}},
			"Raise memory.high or memory.max of cgroup /app, or check what uses it."},
		{"of the machine", machine, map[int]TaskInfo{2: {PID: 2, Comm: "java", Cgroup: "/app", Anonymous: 20480 * mib}},
			"The machine is short of memory: check what uses it (memory.current of its cgroups: java 2 has 20 GiB of anonymous memory); " +
				"vm.watermark_scale_factor has kswapd begin earlier."},
	} {
		t.Run(c.name, func(t *testing.T) {
			names := Names{Task: func(tid int) (TaskInfo, bool) { f, ok := c.tasks[tid]; return f, ok }}
			names.Tasks = func() (list []int) {
				for tid := range 4 {
					if _, ok := c.tasks[tid]; ok {
						list = append(list, tid)
					}
				}
				return list
			}
			w := &walker{m: newModel(nil, names)}
			got := w.adviseReclaim(&advised{Part: &Part{Cause: Reclaim, By: c.by}})
			assert.Check(t, got == c.want, "got  %s\nwant %s", got, c.want)
		})
	}
}
