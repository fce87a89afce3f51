package systemd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/cleanup"
	"github.com/tailcam/tailcam/test/support/provoke"
)

const (
	service = "tailcam.service"
	started = "test.target"
	manager = "/lib/systemd/systemd"
	console = "console" // the file of its messages
	// hang is how long a step may take on a loaded machine.
	hang = 60 * time.Second
)

// Options say what is run, and how. Dir, Argv, Unit, and Log or Journal are needed.
type Options struct {
	Dir      string   // of the manager; not below /tmp, which PrivateTmp hides; as short as possible
	Unit     string   // contents of the unit file
	DropIns  []string // files like those of `systemctl edit`
	Pre      []string // instead of ExecStartPre
	Argv     []string // instead of ExecStart
	Writable []string // paths that the service may write to beyond the unit's own
	Log      string   // file that gets the service's output; with Journal: none
	Journal  bool     // the output goes to a journal of its own
	Restart  bool     // as the unit says; false: never
	// Delegated marks the service's control group as a system's manager does for Delegate=; a
	// user's manager, as the one here, does not.
	Delegated bool
}

// Service is one that was started. Its methods may be called from any goroutine.
type Service struct {
	t   testing.TB
	dir string

	manager int // pid

	pid  int
	done chan struct{}
}

// Result is how a service's main process ended.
type Result struct {
	Code   int // exit status, or number of the signal
	Signal bool
	Name   string // systemd's: success, exit-code, signal, oom-kill, …
}

// String says it in words.
func (r Result) String() string {
	if r.Signal {
		return fmt.Sprintf("killed by signal %d (%s)", r.Code, r.Name)
	}
	return fmt.Sprintf("exit status %d (%s)", r.Code, r.Name)
}

// Start runs the service until the end of the test, and returns when its program
// was executed, or could not be. Skips where there is no systemd.
func Start(t testing.TB, o Options) *Service {
	t.Helper()
	if _, err := os.Stat(manager); err != nil {
		t.Skip("needs the package systemd")
	}
	s := &Service{t: t, dir: o.Dir, done: make(chan struct{})}
	writeUnits(t, filepath.Join(o.Dir, "units"), &o, o.Unit)
	assert.NilError(t, os.MkdirAll(filepath.Join(o.Dir, "run"), 0o700))
	groups, err := os.ReadFile("/etc/group")
	assert.NilError(t, err)
	if !bytes.Contains(groups, []byte("\ntailcam:")) {
		groups = append(groups, "\ntailcam:x:64999:\n"...)
	}
	assert.NilError(t, os.WriteFile(filepath.Join(o.Dir, "group"), groups, 0o644))
	journal := ""
	if o.Journal {
		journal = startJournal
		assert.NilError(t, os.WriteFile(filepath.Join(o.Dir, "journald.conf"), []byte(journalConfig), 0o644))
	}
	joined := cgroups(t, o.Unit)
	// In a mount namespace of its own: nothing can stay mounted.
	script := `dir=$1; shift
for group; do echo $$ >"$group/cgroup.procs" || exit; done
[ -d /run/systemd/system ] || { mount -t tmpfs -o mode=755 tailcam-unit /run && cd /run && mkdir -p systemd/system systemd/inaccessible/dir &&
	: >systemd/inaccessible/reg && chmod 0 systemd/inaccessible/*; } || exit
mount --bind "$dir/group" /etc/group || exit
` + journal + `exec ` + manager + ` --user --unit=` + started
	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, "sh", o.Dir}, joined...)...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "SYSTEMD_UNIT_PATH=" + filepath.Join(o.Dir, "units"),
		"SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_COLOR=0",
	}, s.environment()...)
	said, err := os.Create(filepath.Join(o.Dir, console))
	assert.NilError(t, err)
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	ended := startDaemon(t, cmd)
	s.manager = cmd.Process.Pid
	if o.Delegated {
		s.delegate(joined)
	}
	for deadline := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
		p := s.properties()
		if pid, _ := strconv.Atoi(p["MainPID"]); pid > 0 && p["ActiveState"] == "active" {
			s.pid = pid
			break
		}
		if p["ActiveState"] == "failed" || p["ActiveState"] == "inactive" && p["ExecMainPID"] != "0" {
			s.pid, _ = strconv.Atoi(p["ExecMainPID"])
			break
		}
		select {
		case <-ended:
			t.Fatalf("systemd ended: %v\n%s", cmd.ProcessState, s.console())
		default:
		}
		assert.Assert(t, !time.Now().After(deadline), "systemd did not start the service: %v", p)
	}
	go s.await()
	return s
}

// delegated is the file of the manager's directory for which a service waits that is Delegated.
const delegated = "delegated"

// delegate marks the service's control group below those of the manager.
func (s *Service) delegate(joined []string) {
	s.t.Helper()
	root := provoke.Hierarchy("")
	for deadline := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
		for _, dir := range joined {
			if root == "" || !strings.HasPrefix(dir, root) {
				continue
			}
			found, err := filepath.Glob(filepath.Join(dir, "*.slice", service))
			assert.NilError(s.t, err)
			if len(found) == 1 {
				assert.NilError(s.t, unix.Setxattr(found[0], "user.delegate", []byte("1"), 0))
				assert.NilError(s.t, os.WriteFile(filepath.Join(s.dir, delegated), nil, 0o644))
				return
			}
		}
		assert.Assert(s.t, time.Now().Before(deadline), "the service has no control group in %v: %s", joined, s.console())
	}
}

// startDaemon starts systemd, or journald, which is killed at the end of the test; ended is
// closed when it has ended.
func startDaemon(t testing.TB, cmd *exec.Cmd) (ended <-chan struct{}) {
	t.Helper()
	assert.NilError(t, child.Start(cmd))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // its end is what matters
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its control group, with all that it has started, goes next
		<-done
	})
	return done
}

// await closes done when the main process has ended.
func (s *Service) await() {
	defer close(s.done)
	fd, err := unix.PidfdOpen(s.pid, 0)
	if err != nil {
		return // it has ended already
	}
	defer unix.Close(fd)
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// cgroups makes the control groups that the manager runs in, with the limits of a unit that
// it cannot set.
func cgroups(t testing.TB, unit string) []string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	assert.NilError(t, err)
	name := fmt.Sprintf("tailcam-unit-%d-%d", os.Getpid(), time.Now().UnixNano())
	var joined []string
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		limits := map[string]string{}
		switch {
		case parts[0] == "0", parts[1] == "name=systemd":
		case parts[1] == "memory":
			limits["memory.limit_in_bytes"] = limit(t, unit, "MemoryMax")
		case parts[1] == "pids":
			limits["pids.max"] = limit(t, unit, "TasksMax")
		default:
			continue
		}
		mount := provoke.Hierarchy(parts[1])
		if mount == "" {
			continue
		}
		dir := filepath.Join(mount, parts[2], name)
		assert.NilError(t, os.Mkdir(dir, 0o755))
		cleanup.KillCgroup(t, dir)
		for file, value := range limits {
			if value == "" {
				continue
			}
			assert.NilError(t, os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644))
		}
		joined = append(joined, dir)
	}
	return joined
}

func limit(t testing.TB, unit, directive string) string {
	values := Directive(unit, directive)
	if len(values) == 0 {
		return ""
	}
	n, err := parseSize(values[len(values)-1])
	if err != nil {
		t.Fatalf("%s=%s: %v", directive, values[len(values)-1], err)
	}
	return strconv.FormatInt(n, 10)
}

func (s *Service) environment() []string {
	return []string{"XDG_RUNTIME_DIR=" + filepath.Join(s.dir, "run"), "XDG_CONFIG_HOME=" + filepath.Join(s.dir, "state"), "HOME=" + s.dir}
}

// properties asks the manager; empty if it does not answer (yet).
func (s *Service) properties() map[string]string {
	cmd := exec.Command("systemctl", "--user", "show", service,
		"-p", "MainPID,ExecMainPID,ExecStartEx,ExecStartPreEx,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus,NRestarts,StatusText")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}, s.environment()...)
	out, err := cmd.Output()
	p := map[string]string{}
	if err != nil {
		return p
	}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			p[name] = value
		}
	}
	return p
}

// Systemctl runs a verb of systemctl on the service, to its end.
func (s *Service) Systemctl(verb string) {
	s.t.Helper()
	cmd := exec.Command("systemctl", "--user", verb, service)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}, s.environment()...)
	out, err := cmd.CombinedOutput()
	assert.NilError(s.t, err, "systemctl %s: %s", verb, out)
}

// PID of the service's main process.
func (s *Service) PID() int { return s.pid }

// Done is closed when the main process has ended.
func (s *Service) Done() <-chan struct{} { return s.done }

// Signal sends one to the main process.
func (s *Service) Signal(sig syscall.Signal) error { return syscall.Kill(s.pid, sig) }

// Result says how the main process ended; only after Done.
func (s *Service) Result() Result {
	s.t.Helper()
	for deadline := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
		p := s.properties()
		code, err := strconv.Atoi(p["ExecMainStatus"])
		if err == nil && p["ExecMainCode"] != "0" && p["ExecMainCode"] != "" {
			return Result{Code: code, Signal: p["ExecMainCode"] != "1", Name: p["Result"]}
		}
		if p["ExecMainPID"] == "0" || time.Now().After(deadline) {
			s.t.Fatalf("the service was not started: %v\n%s", p, s.console())
		}
	}
}

// console is what the manager itself has said.
func (s *Service) console() string {
	text, err := os.ReadFile(filepath.Join(s.dir, console))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Property asks the manager for one of those that systemctl shows.
func (s *Service) Property(name string) string { return s.properties()[name] }
