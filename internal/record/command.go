package record

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/snapshot/action"
)

// endGrace is how long a command that was told to end may take.
const endGrace = 5 * time.Second

// signalBase and a signal's number are the status of what it ended, as in shells.
const signalBase = 128

// passedOn are the signals that the command gets, too.
var passedOn = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// process is the command that runs.
type process struct {
	cmd   *program
	user  string
	start time.Time
	took  time.Duration // after done
	group bool          // it leads a process group
	done  chan struct{} // closed when it has ended
	kill  *time.Timer   // nil: it was not told to end
}

// program is the command before it is started. Only this file runs it.
type program = exec.Cmd

// prepare finds the program and its user, before anything is done.
func prepare(o *Options) (*program, error) {
	if len(o.Command) == 0 {
		return nil, nil //nolint:nilnil // there is no command
	}
	path, err := exec.LookPath(o.Command[0])
	if err != nil {
		return nil, fmt.Errorf("cannot run %q: %w", o.Command[0], errors.Unwrap(err))
	}
	cmd := &program{
		Path: path, Args: o.Command, Env: os.Environ(), Stdin: os.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
		SysProcAttr: &syscall.SysProcAttr{},
	}
	if o.User == "" {
		return cmd, nil
	}
	if cmd.SysProcAttr.Credential, err = action.Credential(o.User); err != nil {
		return nil, err
	}
	u, err := user.Lookup(o.User)
	if err != nil {
		if u, err = user.LookupId(o.User); err != nil {
			return nil, err
		}
	}
	cmd.Env = withUser(cmd.Env, u)
	return cmd, nil
}

// withUser is the environment of another user.
func withUser(env []string, u *user.User) []string {
	env = slices.DeleteFunc(env, func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains([]string{"HOME", "USER", "LOGNAME"}, name)
	})
	return append(env, "HOME="+u.HomeDir, "USER="+u.Username, "LOGNAME="+u.Username)
}

// startProcess starts the command. In the foreground of a terminal it stays in this
// process's group, so that Ctrl-C and Ctrl-Z work as without tailcam; anywhere else it has
// one of its own, which ends as a whole.
func startProcess(cmd *program, user string) (*process, error) {
	p := &process{cmd: cmd, user: user, group: !inForeground(), done: make(chan struct{}), start: time.Now()}
	cmd.SysProcAttr.Setpgid = p.group
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // its state has the result
		p.took = time.Since(p.start)
	}()
	return p, nil
}

// inForeground reports whether the terminal sends its signals to this process's group.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// pass gives a signal to the command. It must end after SIGTERM; a second one kills it.
func (p *process) pass(s os.Signal) {
	sig, ok := s.(syscall.Signal)
	switch {
	case !ok, !p.group && (sig == unix.SIGINT || sig == unix.SIGQUIT):
		return // the terminal has sent it to the command as well
	case sig == unix.SIGTERM && p.kill != nil:
		p.send(unix.SIGKILL)
	case sig == unix.SIGTERM:
		p.end()
	default:
		p.send(sig)
	}
}

// end tells the command to end, and kills it if it does not.
func (p *process) end() {
	p.send(unix.SIGTERM)
	if p.kill == nil {
		p.kill = time.AfterFunc(endGrace, func() { p.send(unix.SIGKILL) })
	}
}

func (p *process) send(sig unix.Signal) {
	if p.group {
		_ = unix.Kill(-p.cmd.Process.Pid, sig) // nobody is left at worst
		return
	}
	_ = p.cmd.Process.Signal(sig)
}

// rest waits for what a command that was told to end has left in its group, and kills it at
// the end of its grace. What a command leaves that ended by itself stays.
func (p *process) rest() {
	if p.kill == nil || !p.group {
		return
	}
	for end := time.Now().Add(endGrace + time.Second); time.Now().Before(end); time.Sleep(poll) {
		if errors.Is(unix.Kill(-p.cmd.Process.Pid, 0), unix.ESRCH) {
			break
		}
	}
	p.kill.Stop()
}

// result is what became of a command that has ended.
func (p *process) result() *Command {
	state := p.cmd.ProcessState
	c := &Command{Args: p.cmd.Args, User: p.user, Status: state.ExitCode(), TookNS: p.took.Nanoseconds()}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		c.Status, c.Signal = signalBase+int(ws.Signal()), unix.SignalName(ws.Signal())
	}
	return c
}

// catch collects the signals that are passed on, until stop.
func catch() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	signal.Notify(c, passedOn...)
	return c, func() { signal.Stop(c) }
}
