package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
)

// stubDir has the units that every unit wants, and drop-ins of the test.
const stubDir = "/run/test-units"

// startSystem moves into the Debian in $1, in a mount namespace of its own, and becomes its
// manager.
const startSystem = `dir=$1; shift
for group; do echo $$ >"$group/cgroup.procs" || exit; done
mount --bind "$dir" "$dir" && cd "$dir" || exit
for name in proc sys dev; do mount --rbind "/$name" "$name" || exit; done
mount -t tmpfs -o mode=755 tailcam-unit run && mount -t tmpfs -o mode=1777 tailcam-unit tmp || exit
mount -t bpf -o mode=700 bpf sys/fs/bpf || exit
[ -d sys/kernel/tracing/events ] || mount -t tracefs nodev sys/kernel/tracing || exit
mkdir -p run/systemd/system run/systemd/inaccessible/dir && : >run/systemd/inaccessible/reg && chmod 0 run/systemd/inaccessible/* || exit
mv root/test-units run/ && pivot_root . mnt && umount -l mnt || exit
exec ` + manager + ` --user --unit=` + started

// System is a Debian in a directory in which services run. Its methods may be called from any
// goroutine.
//
// Its manager is the one that Start uses, with the paths of a system's: it reads the units
// of the Debian, and systemctl --system, which the scripts of packages call, reaches it. So
// packages start, restart and stop their services, in the PID namespace of the machine.
type System struct {
	t       testing.TB
	dir     string
	manager int // pid
}

// Boot starts the manager of a Debian, which must have systemd. It runs until the end of the
// test; then what was mounted and started is gone. Drop-ins of services are by service and
// end with them. Nothing starts by itself but what packages start.
func Boot(t testing.TB, dir string, dropIns map[string]string) *System {
	t.Helper()
	s := &System{t: t, dir: dir}
	write := func(path, text string) {
		path = filepath.Join(dir, "root/test-units", path)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for name, text := range stubs {
		write(name, text)
	}
	for name, text := range dropIns {
		write(name+".d/test.conf", text)
	}
	// Where a user's manager has states and what is enabled, a system has its own.
	assert.NilError(t, os.MkdirAll(filepath.Join(dir, "var/lib/systemd"), 0o755))
	assert.NilError(t, os.Symlink("/etc/systemd/system", filepath.Join(dir, "var/lib/systemd/user")))

	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", startSystem, "sh", dir}, cgroups(t, "")...)...)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_UNIT_PATH=" + stubDir + ":/var/lib/systemd/user:/lib/systemd/system",
		"XDG_RUNTIME_DIR=/run", "XDG_CONFIG_HOME=/var/lib", "HOME=/root", "SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_COLOR=0",
	}
	said := &child.Output{}
	cmd.Stdout, cmd.Stderr = said, said
	ended := startDaemon(t, cmd)
	s.manager = cmd.Process.Pid
	for deadline := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
		if _, err := s.Try("systemctl", "show", "--property", "Version"); err == nil {
			return s
		}
		select {
		case <-ended:
			t.Fatalf("systemd ended: %v\n%s", cmd.ProcessState, said)
		default:
		}
		assert.Assert(t, !time.Now().After(deadline), "systemd does not answer:\n%s", said)
	}
}

// Do runs a command in it, which must succeed, and returns what it prints.
func (s *System) Do(argv ...string) string {
	s.t.Helper()
	out, err := s.Try(argv...)
	assert.NilError(s.t, err, "%s\n%s", strings.Join(argv, " "), out)
	return out
}

// Try runs a command in it.
func (s *System) Try(argv ...string) (string, error) {
	out, err := s.Command(argv...).CombinedOutput()
	return string(out), err
}

// Command is one that runs in it.
func (s *System) Command(argv ...string) *exec.Cmd {
	in := "/proc/" + strconv.Itoa(s.manager)
	cmd := exec.CommandContext(s.t.Context(), "nsenter", append([]string{"--mount=" + in + "/ns/mnt", "--root=" + in + "/root", "--wd=" + in + "/root", "--"}, argv...)...)
	// The root of the first process is another one: for systemctl, this is a chroot.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_IGNORE_CHROOT=1"}
	return cmd
}

// MainPID of a service; 0 if it does not run.
func (s *System) MainPID(service string) int {
	s.t.Helper()
	text := s.Do("systemctl", "show", "--property", "MainPID", "--value", service)
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	assert.NilError(s.t, err)
	return pid
}
