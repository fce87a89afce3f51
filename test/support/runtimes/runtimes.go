// Package runtimes runs real container runtimes for tests, private and short-lived: each
// sees cgroup v2 alone, whatever the machine mounts, and all that it has is in one cgroup
// and one directory of the test.
package runtimes

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/cleanup"
	"github.com/tailcam/tailcam/test/support/provoke"
)

//go:embed src/nap.c
var napSource string

// patience is how long a runtime may take for anything.
const patience = time.Minute

// Nap is a static program: nap MICROSECONDS sleeps for so long, again and again.
func Nap(t *testing.T, dir string) string {
	t.Helper()
	source, path := filepath.Join(dir, "nap.c"), filepath.Join(dir, "nap")
	assert.NilError(t, os.WriteFile(source, []byte(napSource), 0o600))
	child.Compile(t, "gcc", "-O2", "-static", "-o", path, source)
	assert.NilError(t, os.Chmod(path, 0o755))
	return path
}

// place is where a runtime runs.
type place struct {
	t     *testing.T
	dir   string
	group string // directory of its cgroup
}

// newPlace makes a directory and a cgroup. What runs in it is killed at the end of the test.
func newPlace(t *testing.T, name string) *place {
	t.Helper()
	root := provoke.NeedHierarchy(t)
	// Podman takes 50 characters at most, and a daemon in a service has a /tmp of its own.
	dir, err := os.MkdirTemp("/var/lib", "tailcam-"+name+"-")
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	p := &place{t: t, dir: dir, group: filepath.Join(root, fmt.Sprintf("tailcam-%s-%d", name, os.Getpid()))}
	assert.NilError(t, os.Mkdir(p.group, 0o755))
	cleanup.KillCgroup(t, p.group)
	return p
}

// adopt removes a cgroup that the runtime will make beside its own, at the end of the test.
func (p *place) adopt(name string) {
	p.t.Helper()
	dir := filepath.Join(filepath.Dir(p.group), name)
	if _, err := os.Stat(dir); err == nil {
		return // another's
	}
	cleanup.RemoveCgroup(p.t, dir)
}

// command is a command in the cgroup, with mounts of its own that have cgroup v2 only.
func (p *place) command(args ...string) *exec.Cmd {
	p.t.Helper()
	const script = `umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, "sh"}, args...)...)
	cmd.Dir = p.dir
	group, err := os.Open(p.group)
	assert.NilError(p.t, err)
	p.t.Cleanup(func() { group.Close() })
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	return cmd
}

// serve runs a service until the end of the test, and waits for its socket.
func (p *place) serve(socket string, args ...string) {
	p.t.Helper()
	log, err := os.Create(filepath.Join(p.dir, "log"))
	assert.NilError(p.t, err)
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = log, log
	assert.NilError(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // as it was told to
		_ = log.Close()
		if p.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			p.t.Logf("the log of %s:\n%s", args[0], text[max(0, len(text)-8<<10):])
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return
		}
		assert.Assert(p.t, time.Now().Before(end), "%s has no socket", args[0])
	}
}

// run runs a command to its end and returns what it prints.
func (p *place) run(args ...string) string {
	p.t.Helper()
	cmd := p.command(args...)
	var diagnostics strings.Builder
	cmd.Stderr = &diagnostics
	out, err := cmd.Output()
	assert.NilError(p.t, err, "%s\n%s", strings.Join(args, " "), &diagnostics)
	return strings.TrimSpace(string(out))
}

func tool(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s (apt install %s)", name, pkg)
	}
	return path
}
