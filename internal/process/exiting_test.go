package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestCgroupsOfWhoExits: who was seen alive keeps the cgroups of v1 that an exiting task has
// left, however long ago that was, and once it is gone.
func TestCgroupsOfWhoExits(t *testing.T) {
	proc := t.TempDir()
	dir := filepath.Join(proc, "7")
	put := func(state, flags, cgroup string) {
		stat := "7 (x) " + state + " 1 0 0 0 0 " + flags + strings.Repeat(" 0", 12) + " 100" + strings.Repeat(" 0", 21) + "\n"
		for name, text := range map[string]string{"stat": stat, "status": "Tgid:\t7\n", "cgroup": cgroup, "cmdline": "x\x00"} {
			assert.NilError(t, os.MkdirAll(dir, 0o755))
			assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	table := New(&Options{Proc: proc, TTL: time.Nanosecond, Timeout: time.Minute})
	put("S", "0", "2:memory:/svc/m\n1:cpu,cpuacct:/svc/c\n0::/\n")
	see := func(when string) {
		list := table.Tasks([]int{7}, time.Minute)
		assert.Check(t, len(list) == 1 && list[0].CPUCgroup == "/svc/c" && list[0].MemoryCgroup == "/svc/m", "%s: %+v", when, list)
	}
	see("alive")
	put("Z", "4", "2:memory:/\n1:cpu,cpuacct:/\n0::/\n")
	see("exiting")
	assert.NilError(t, os.RemoveAll(dir))
	see("gone")
}
