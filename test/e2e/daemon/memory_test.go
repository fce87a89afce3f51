package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	cgroups "github.com/tailcam/tailcam/test/support/provoke"
)

// TestOutOfMemory: the memory of the daemon's cgroup runs out while it works, and the
// kernel kills helpers or the daemon itself. Nothing of what was killed stays, no
// snapshot is half there, and the next daemon takes over.
func TestOutOfMemory(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "the cgroup is the unit's")
	group := cgroups.NewCgroup(t, "memory")
	uid := newUID()
	h := newHome(t, rulesFile(napRule("nap", uid, "stacks: [kernel, user]", "snapshot: {after: 5ms, every: 1ms, burst: 100}")))
	d := h.exec(t, append([]string{"sh", "-c", `echo $$ >"$1/cgroup.procs" && shift && exec "$@"`, "sh", group.Dir}, h.command()...))
	byHand(d, "before")
	held := heldBy(t, d.pid())
	limit := memoryUsed(t, group)
	for round := 0; !d.ended() && round < 40 && oomKills(t, group) < 3; round++ {
		// A little less than it has: what can be reclaimed is, and the next page is one too many.
		if used := memoryUsed(t, group); used < limit {
			limit = used
		}
		setMemory(group, limit)
		limit -= limit / 50
		for _, pid := range children(t, d.pid()) {
			if n, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL) // a new helper needs new memory
			}
		}
		naps(t, uid, 40, 2*time.Millisecond, 4)
	}
	kills := oomKills(t, group)
	t.Logf("%d processes were killed for memory; the daemon has ended: %t", kills, d.ended())
	assert.Check(t, kills > 0, "nothing was killed for memory: this test proves nothing")
	setMemory(group, 4<<30)
	eventually(t, "one more is taken after what the shortage delayed, or the daemon was killed in the end", func() bool {
		if d.ended() {
			return true
		}
		a := d.verb("snapshot", "--reason", "with memory again")
		if a.code != 0 {
			t.Log(a.err)
		}
		return a.code == 0
	})
	if d.ended() {
		held.gone(t)
		unlocked(t, d.socket+".lock")
		unlocked(t, filepath.Join(d.snaps, ".lock"))
	} else {
		d.stop(syscall.SIGTERM)
	}
	complete(t, h.snaps)
	next := h.start(t)
	checkSnapshot(t, byHand(next, "the next one"))
	only(t, h.snaps, len(next.list()))
}

func memoryUsed(t *testing.T, g *cgroups.Cgroup) int {
	t.Helper()
	file := "memory.usage_in_bytes"
	if g.V2 {
		file = "memory.current"
	}
	n, err := strconv.Atoi(strings.TrimSpace(readText(t, g.Dir, file)))
	assert.NilError(t, err)
	return n
}

// setMemory limits a group. Below what cannot be reclaimed, version 1 refuses, and 2 kills.
func setMemory(g *cgroups.Cgroup, limit int) {
	file := "memory.limit_in_bytes"
	if g.V2 {
		file = "memory.max"
	}
	_ = os.WriteFile(filepath.Join(g.Dir, file), []byte(strconv.Itoa(limit)), 0) // EBUSY: the limit stays as it was
}

// oomKills counts what was killed in a group.
func oomKills(t *testing.T, g *cgroups.Cgroup) int {
	t.Helper()
	file := "memory.oom_control"
	if g.V2 {
		file = "memory.events"
	}
	for line := range strings.Lines(readText(t, g.Dir, file)) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			assert.NilError(t, err)
			return n
		}
	}
	t.Fatalf("%s has no oom_kill", file)
	return 0
}
