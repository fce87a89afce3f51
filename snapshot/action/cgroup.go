package action

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// cgroup is the cgroup v2 of one run of an action. Unlike its descendants, which the
// supervisor finds as long as it lives itself, what is in it cannot get lost: only root can
// leave it.
type cgroup struct {
	dir  string
	file *os.File // the directory, for clone3(2) with CLONE_INTO_CGROUP (5.7)
	home *os.File // that of the supervisor's; or the same one
}

// newCgroup makes a cgroup below Options.Cgroup; nil: there is none, or it fails, and the
// supervisor alone must do.
func (r *Runner) newCgroup(b bounds) *cgroup {
	if r.opts.Cgroup == "" {
		return nil
	}
	g := &cgroup{dir: filepath.Join(r.opts.Cgroup, fmt.Sprintf("action-%d-%d", os.Getpid(), r.cgroups.Add(1)))}
	err := os.Mkdir(g.dir, 0o755) //nolint:gosec // others may see what runs, as in all cgroups
	if err == nil {
		g.file, err = os.Open(g.dir)
	}
	if err == nil {
		if g.home, err = os.Open(cmp.Or(r.opts.Home, g.dir)); err != nil {
			_ = g.file.Close()
		}
	}
	if err != nil {
		r.log.Warn("an action runs without a cgroup of its own", zap.Error(err))
		_ = os.Remove(g.dir)
		return nil
	}
	// Each is there if its controller is delegated.
	g.set("pids.max", strconv.Itoa(maxProcesses))
	if b.memory > 0 {
		g.set("memory.max", strconv.FormatInt(b.memory, 10))
		g.set("memory.oom.group", "1")
	}
	return g
}

// set writes a file of the cgroup if there is one.
func (g *cgroup) set(name, value string) {
	_ = os.WriteFile(filepath.Join(g.dir, name), []byte(value), 0) // if not, the supervisor's limits remain
}

// cgroupCPU is the CPU time of all that ran in a cgroup, which every cgroup counts.
func cgroupCPU(dir int) (time.Duration, bool) {
	fd, err := unix.Openat(dir, "cpu.stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	buf := make([]byte, 1024)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(buf[:n])) {
		if rest, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return time.Duration(us) * time.Microsecond, err == nil
		}
	}
	return 0, false
}

// within has the supervisor be in the action's cgroup while it starts the action, which then is
// there from its first instruction, as a child begins where its parent is.
func within(start func() (int, error)) (pid int, err error) {
	if err := join(cgroupFD); err != nil {
		return 0, fmt.Errorf("join the cgroup of the action: %w", err)
	}
	pid, err = start()
	// If it cannot leave, it ends with the action at the latest, which its cgroup sees to.
	_ = join(homeFD)
	return pid, err
}

// join moves this process, all threads of it, to a cgroup.
func join(dir int) error {
	fd, err := unix.Openat(dir, "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte("0"))
	return errors.Join(err, unix.Close(fd))
}

// cgroupPause is between two looks at whether a cgroup is empty.
const cgroupPause = 2 * time.Millisecond

// end kills everything in the cgroup, also in those made below it, and removes it. It
// gives up after killGrace: then a process is stuck in the kernel.
func (g *cgroup) end() error {
	defer g.file.Close()
	defer g.home.Close()
	for until := time.Now().Add(killGrace); ; time.Sleep(cgroupPause) {
		g.kill()
		err := g.remove()
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%w: %w", errUnkillable, err)
		}
	}
}

// kill needs 5.14 to be atomic; before, it takes one process after the other.
func (g *cgroup) kill() {
	if os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	procs, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for _, field := range bytes.Fields(procs) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL) // may have ended
		}
	}
}

// maxCgroups bounds the cgroups below one that are looked at each time.
const maxCgroups = 1000

// remove removes the cgroup with those below it, the deepest first. Killed processes stay in
// theirs for a moment.
func (g *cgroup) remove() error {
	var all []string
	err := filepath.WalkDir(g.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, path)
		}
		if len(all) >= maxCgroups {
			return fs.SkipAll
		}
		return nil
	})
	for _, dir := range slices.Backward(all) {
		err = unix.Rmdir(dir)
	}
	return err
}
