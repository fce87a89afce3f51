package provoke

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
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
	return NewNamedCgroup(t, controller, CgroupName(controller))
}

// NewNamedCgroup is NewCgroup for one that the test has beside others of this controller.
func NewNamedCgroup(t *testing.T, controller, name string) *Cgroup {
	t.Helper()
	g, err := newCgroup(controller, name)
	if err != nil {
		t.Skipf("needs a cgroup with the controller %s: %v", controller, err)
	}
	cleanup.RemoveCgroup(t, g.Dir)
	return g
}

// CgroupName is the last part of the path of the group that has a controller.
func CgroupName(controller string) string {
	return fmt.Sprintf("tailcam-recorded-%d-%s", os.Getpid(), controller)
}

func newCgroup(controller, name string) (*Cgroup, error) {
	if root := Hierarchy(controller); root != "" {
		g := &Cgroup{Dir: filepath.Join(root, name)}
		return g, mkdir(g.Dir)
	}
	second := Hierarchy("")
	if second == "" {
		return nil, fmt.Errorf("no hierarchy of it is mounted")
	}
	if controller != "freezer" { // every group but the root has that one
		if err := os.WriteFile(filepath.Join(second, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return nil, err
		}
	}
	g := &Cgroup{Dir: filepath.Join(second, name), V2: true}
	return g, mkdir(g.Dir)
}

// mkdir makes a group, unless this test has it from an attempt before.
func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Hierarchy is where the hierarchy of version 1 that has a controller, or that of
// version 2 for "", is mounted as a whole; "" if it is not.
func Hierarchy(controller string) (at string) {
	_ = linux.MountsOf("/proc/self/mountinfo", func(m *linux.Mount) { // no proc, no mounts
		if at == "" && m.Root == "/" && (controller == "" && m.Type == "cgroup2" ||
			m.Type == "cgroup" && slices.Contains(strings.Split(m.Options, ","), controller)) {
			at = m.Point
		}
	})
	return at
}

// NeedHierarchy is Hierarchy for version 2, without which the test is skipped.
func NeedHierarchy(t *testing.T) string {
	t.Helper()
	root := Hierarchy("")
	if root == "" {
		t.Skip("needs cgroup v2 mounted whole (mount -t cgroup2 none /sys/fs/cgroup/unified)")
	}
	return root
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
