package provoke

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Throttle proves the group throttle: a cgroup uses up its CPU quota. It needs
// a kernel that lets functions be traced.
func Throttle(t *testing.T, history *History) {
	history = history.with(t)
	g := NewCgroup(t, "cpu")
	Quota(t, g, 50*time.Millisecond)
	var st unix.Stat_t
	assert.NilError(t, unix.Stat(g.Dir, &st))
	for _, site := range []string{"fexit:throttle_cfs_rq", "fexit:unthrottle_cfs_rq"} {
		assert.Check(t, history.Kernel.Unrecorded()[site], "%s", site)
	}
	g.Add(t, StartSpinner(t))
	mine := func(ev trace.Event, b trace.Throttle) bool { return b.Cgroup == st.Ino && b.CPU >= 0 }
	history.Until(func() { time.Sleep(200 * time.Millisecond) }, map[string]func(trace.Event) bool{
		"a cgroup without quota": body(trace.CgroupThrottle, mine),
		"quota for it":           body(trace.CgroupUnthrottle, mine),
	})
}

// GroupReclaim proves reclaim for a memory cgroup: a process in a small one
// reads more from a disk than it may keep.
func GroupReclaim(t *testing.T, history *History, disk string) {
	history = history.with(t)
	g := NewCgroup(t, "memory")
	g.Set(t, "memory.limit_in_bytes", "memory.max", fmt.Sprint(8<<20))
	history.Until(func() {
		RunReader(t, disk, 24<<20, func(pid int) { g.Add(t, pid) })
	}, map[string]func(trace.Event) bool{
		"reclaim for a cgroup": body(trace.ReclaimBegin, func(_ trace.Event, r trace.Reclaim) bool { return r.Memcg }),
		"its end":              body(trace.ReclaimEnd, func(_ trace.Event, r trace.Reclaim) bool { return r.Memcg && r.Reclaimed > 0 }),
	})
}

// Reclaim proves reclaim for the machine itself, and compaction, by asking for
// more huge pages than there is memory. It disturbs whatever else runs.
func Reclaim(t *testing.T, history *History) {
	history = history.with(t)
	const file = "/proc/sys/vm/nr_hugepages"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("needs huge pages: %v", err)
	}
	set := func(n string) {
		assert.NilError(t, os.WriteFile(file, []byte(n), 0o644))
	}
	defer set(strings.TrimSpace(string(before)))
	history.Until(func() {
		set("100000")
		set("0")
		assert.NilError(t, os.WriteFile("/proc/sys/vm/compact_memory", []byte("1"), 0o200))
	}, map[string]func(trace.Event) bool{
		"reclaim":    body(trace.ReclaimBegin, func(_ trace.Event, r trace.Reclaim) bool { return !r.Memcg && r.Order > 0 }),
		"its end":    body(trace.ReclaimEnd, func(_ trace.Event, r trace.Reclaim) bool { return !r.Memcg }),
		"compaction": body(trace.CompactionBegin, func(trace.Event, trace.Compaction) bool { return true }),
		"its result": body(trace.CompactionEnd, func(_ trace.Event, c trace.Compaction) bool { return c.Status > 0 }),
	})
}
