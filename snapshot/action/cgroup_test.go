package action

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/cleanup"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// delegated makes a cgroup for actions.
func delegated(t *testing.T) string {
	t.Helper()
	needRoot(t)
	root := provoke.NeedHierarchy(t)
	dir := filepath.Join(root, fmt.Sprintf("tailcam-actions-%d", os.Getpid()))
	assert.NilError(t, os.Mkdir(dir, 0o755))
	cleanup.RemoveCgroup(t, dir)
	return dir
}

// TestOwnCgroup: what an action leaves running ends with it even if it has killed its
// supervisor, whose descendants nobody would find then; and so do those that hide in
// cgroups below.
func TestOwnCgroup(t *testing.T) {
	base := delegated(t)
	for name, script := range map[string]string{
		"ends":                   `setsid sleep "$1" & sleep 0.1`,
		"kills its supervisor":   `setsid sh -c 'trap "" TERM HUP; while :; do sleep "$1"; done' sh "$1" & sleep 0.1; kill -9 $PPID; sleep "$1"`,
		"makes cgroups":          `c=$2$(sed -n 's/^0:://p' /proc/self/cgroup | sed 's/.*\(\/action-\)/\1/'); mkdir -p "$c/a/b" && (echo 0 >"$c/a/b/cgroup.procs"; exec sleep "$1") & sleep 0.2`,
		"is over its time limit": `setsid sleep "$1" & sleep "$1"`,
	} {
		t.Run(name, func(t *testing.T) {
			mark := strconv.Itoa(300000+os.Getpid()) + "." + strconv.Itoa(len(name))
			res := runJob(t, Options{Grace: 50 * time.Millisecond, Cgroup: base}, Job{Dir: t.TempDir(), Items: []Item{item(2*time.Second, sh(script, mark, base)...)}})[0]
			assert.Check(t, res.Started, "%+v", res)
			assert.Check(t, len(marked(t, mark)) == 0, "left: %v", marked(t, mark))
			assert.Check(t, !strings.HasPrefix(name, "kills") || !res.OK(), "%+v", res)
			left, err := filepath.Glob(filepath.Join(base, "action-*"))
			assert.Check(t, err == nil && len(left) == 0, "%v, %q", err, left)
		})
	}
}

// TestHiddenCPU: the cgroup counts the CPU time of children that nobody waits for.
func TestHiddenCPU(t *testing.T) {
	base := delegated(t)
	script := `trap "" CHLD; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
	timeout 0.3 sh -c 'while :; do :; done' & wait $!; done`
	it := item(long, sh(script)...)
	it.Action.MaxCPU = 1200 * time.Millisecond
	res := runJob(t, Options{Cgroup: base}, Job{Dir: t.TempDir(), Items: []Item{it}})[0]
	assert.Check(t, res.Over == "CPU time" && res.CPU >= it.Action.MaxCPU, "%+v", res)
}

// TestNoCgroup: where none can be made, actions run without.
func TestNoCgroup(t *testing.T) {
	res := runJob(t, Options{Cgroup: filepath.Join(t.TempDir(), "none")}, Job{Dir: t.TempDir(), Items: []Item{item(long, "true")}})[0]
	assert.Check(t, res.OK(), "%+v", res)
}
