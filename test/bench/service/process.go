package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/support/child"
)

// output runs a client to its end. It dies as a whole with ctx and with this program.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	return finish(ctx, exec.CommandContext(ctx, name, args...), nil)
}

func outputAs(ctx context.Context, as *syscall.Credential, name string, args ...string) ([]byte, error) {
	return finish(ctx, exec.CommandContext(ctx, name, args...), as)
}

// outputIn is output with further variables in the environment.
func outputIn(ctx context.Context, environ []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Environ(), environ...)
	return finish(ctx, cmd, nil)
}

func finish(ctx context.Context, cmd *exec.Cmd, as *syscall.Credential) ([]byte, error) {
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &msg, "/"
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL, Credential: as}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", cmd.Args[0], err, lastLine(msg.String()), lastLine(out.String()))
	}
	return out.Bytes(), nil
}

// server is a process that runs until it is stopped.
type server struct {
	cmd   *exec.Cmd
	out   child.Output
	done  chan struct{} // closed when it has ended
	ready func(s *server) error
}

// serve starts a server, and waits until ready returns nil.
func serve(ctx context.Context, as *syscall.Credential, ready func(s *server) error, name string, args ...string) (*server, error) {
	cmd := exec.Command(name, args...)
	// All servers here end at once on SIGINT, with their children.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGINT, Credential: as}
	return begin(ctx, cmd, ready)
}

// again ends the server, and starts it with further variables in its environment.
func (s *server) again(ctx context.Context, environ []string) (*server, error) {
	if err := s.stop(); err != nil {
		return nil, err
	}
	cmd := exec.Command(s.cmd.Path, s.cmd.Args[1:]...)
	cmd.SysProcAttr, cmd.Env = s.cmd.SysProcAttr, append(os.Environ(), environ...)
	return begin(ctx, cmd, s.ready)
}

func begin(ctx context.Context, cmd *exec.Cmd, ready func(s *server) error) (*server, error) {
	s := &server{cmd: cmd, done: make(chan struct{}), ready: ready}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.WaitDelay = 5 * time.Second
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // seen in what it prints
		close(s.done)
	}()
	for late := time.Now().Add(20 * time.Second); ; {
		err := ready(s)
		if err == nil {
			return s, nil
		}
		select {
		case <-s.done:
			return nil, fmt.Errorf("%s ended at once: %s", cmd.Path, lastLine(s.out.String()))
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), s.stop())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(late) {
			return nil, errors.Join(fmt.Errorf("%s is not ready after 20 s: %w: %s", cmd.Path, err, lastLine(s.out.String())), s.stop())
		}
	}
}

// stop ends the server. It is an error if it has ended before.
func (s *server) stop() error {
	select {
	case <-s.done:
		return fmt.Errorf("%s ended by itself: %s", s.cmd.Path, lastLine(s.out.String()))
	default:
	}
	_ = s.cmd.Process.Signal(unix.SIGINT)
	select {
	case <-s.done:
	case <-time.After(15 * time.Second):
		_ = unix.Kill(-s.cmd.Process.Pid, unix.SIGKILL)
		<-s.done
		return fmt.Errorf("%s did not end in 15 s, and was killed", s.cmd.Path)
	}
	return nil
}

// cpu is the processor time of the server and of all that it has started.
func (s *server) cpu() time.Duration { return usedByAll(s.cmd.Process.Pid) }

// usedByAll is the processor time of a process and of its children, which any of its
// threads may have started.
func usedByAll(pid int) time.Duration {
	all := ticks(pid, true)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // none, if the kernel does not tell
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(children)) {
			n, _ := strconv.Atoi(child)
			all += ticks(n, true)
		}
	}
	return time.Duration(all) * time.Second / 100
}

// settle waits until a process and its children are done with what they have to do: they
// use less than 2 % of a CPU, or three seconds are over.
func settle(ctx context.Context, pid int) {
	last := time.Duration(-1)
	for late := time.Now().Add(3 * time.Second); time.Now().Before(late) && ctx.Err() == nil; {
		now := usedByAll(pid)
		if last >= 0 && now-last < 20*time.Millisecond {
			return
		}
		last = now
		time.Sleep(500 * time.Millisecond)
	}
}

// ticks is the processor time of a process, in hundredths of a second, with or
// without that of children that it has waited for.
func ticks(pid int, children bool) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(b, []byte(") "))
	f := strings.Fields(string(rest))
	if len(f) < 15 {
		return 0 // it has ended
	}
	last := 12 // utime, stime, cutime, cstime
	if children {
		last = 14
	}
	sum := 0
	for _, field := range f[11 : last+1] {
		n, _ := strconv.Atoi(field)
		sum += n
	}
	return sum
}

// freePort is a TCP port of 127.0.0.1 that nobody uses now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// listens is ready when a port can be connected to.
func listens(port int) func(*server) error {
	return func(*server) error {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// credential is that of a user, whom a directory is given to.
func credential(name, dir string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, uid, gid)
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
