package provoke

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/cleanup"
)

// Cgroup is a control group of one controller, of either version, that goes
// with the test.
type Cgroup struct {
	Dir string
	V2  bool
}

// NewCgroup makes one that has the controller: cpu, memory or freezer. It is
// removed at the end of the test. A machine that has none skips the test.
func NewCgroup(t *testing.T, controller string) *Cgroup {
	t.Helper()
	g, err := newCgroup(controller)
	if err != nil {
		t.Skipf("needs a cgroup with the controller %s: %v", controller, err)
	}
	cleanup.RemoveCgroup(t, g.Dir)
	return g
}

func newCgroup(controller string) (*Cgroup, error) {
	name := fmt.Sprintf("tailcam-recorded-%d-%s", os.Getpid(), controller)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var second string
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		at, what := strings.Fields(before), strings.Fields(after)
		if len(at) < 5 || len(what) < 3 || at[3] != "/" {
			continue
		}
		switch {
		case what[0] == "cgroup" && slices.Contains(strings.Split(what[2], ","), controller):
			g := &Cgroup{Dir: filepath.Join(at[4], name)}
			return g, os.Mkdir(g.Dir, 0o755)
		case what[0] == "cgroup2":
			second = at[4]
		}
	}
	if second == "" {
		return nil, fmt.Errorf("no hierarchy of it is mounted")
	}
	if controller != "freezer" { // every group but the root has that one
		if err := os.WriteFile(filepath.Join(second, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return nil, err
		}
	}
	g := &Cgroup{Dir: filepath.Join(second, name), V2: true}
	return g, os.Mkdir(g.Dir, 0o755)
}

// Set writes one of the group's files, which have other names in each version.
func (g *Cgroup) Set(t *testing.T, v1, v2, value string) {
	t.Helper()
	file := v1
	if g.V2 {
		file = v2
	}
	assert.NilError(t, os.WriteFile(filepath.Join(g.Dir, file), []byte(value), 0o644))
}

// Add moves a process into the group.
func (g *Cgroup) Add(t *testing.T, pid int) {
	t.Helper()
	g.Set(t, "cgroup.procs", "cgroup.procs", fmt.Sprint(pid))
}

// Freeze stops or lets go on what is in the group.
func (g *Cgroup) Freeze(t *testing.T, stop bool) {
	t.Helper()
	v1, v2 := "THAWED", "0"
	if stop {
		v1, v2 = "FROZEN", "1"
	}
	value := v1
	if g.V2 {
		value = v2
	}
	g.Set(t, "freezer.state", "cgroup.freeze", value)
}

// MountCgroups mounts cgroup v2 where the machine has none, as in a guest.
func MountCgroups(t *testing.T) {
	t.Helper()
	const at = "/sys/fs/cgroup"
	if err := unix.Mount("cgroup2", at, "cgroup2", 0, ""); err != nil && err != unix.EBUSY {
		t.Skipf("mount cgroup v2 on %s: %v", at, err)
	}
}
