package action

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/text"
)

// pipeWait is how long a process outside the action's process group may keep the output
// open after the action has ended.
const pipeWait = time.Second

// run runs one action of a job until it ends.
func (r *Runner) run(j Job, index int, log opened, limits bounds) Result {
	item := &j.Items[index]
	res := newResult(&j, index)
	start := time.Now()
	res.Time = start

	var text strings.Builder
	out := memoryOutput(&text)
	if j.Dir != "" {
		if out = log.out; log.err != nil {
			res.Err = log.err
			return res
		}
	}
	out.left = min(out.left, limits.output) // of the rule
	most := out.left
	who := item.Action.User
	if who == "" {
		who = r.opts.User
	}
	id, err := lookup(who)
	if j.Dir != "" {
		out.header(item, index, id.String(), start)
	}
	if err == nil {
		err = share(j.Dir, id)
	}
	if err == nil {
		err = r.exec(j, item, id, out, limits, &res)
	}
	res.Err = errors.Join(err, out.err)
	res.Took = time.Since(start)
	res.Dropped, res.kept = out.dropped, most-out.left
	if j.Dir != "" {
		out.trailer(&res)
	}
	if err := out.close(); err != nil {
		res.Err = errors.Join(res.Err, fmt.Errorf("keep output: %w", err))
	}
	res.Output = text.String()
	return res
}

// exec starts the program as a session leader and waits until it ends, exceeds its time
// limit, or the daemon stops.
func (r *Runner) exec(j Job, item *Item, id *identity, out *output, limits bounds, res *Result) error {
	path, err := resolve(item.Action.Run, id)
	if err != nil {
		return err
	}
	stdin, err := stdinFor(item)
	if err != nil {
		return err
	}
	defer stdin.Close()
	pr, pw, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("capture output: %w", err)
	}
	defer pr.Close()
	cmd := &exec.Cmd{
		Path: path, Args: item.Action.Run, Dir: j.Dir,
		Env:   environment(&item.Outlier, &j),
		Stdin: stdin, Stdout: pw, Stderr: pw,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: id.credential()},
	}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(out, pr) // out never fails, and the pipe has a deadline
	}()
	limit := item.Action.Timeout
	if limit <= 0 {
		limit = r.opts.Timeout
	}
	if r.opts.Supervisor != "" {
		err = r.supervised(cmd, id, limit, limits, res)
		res.Over = limits.exceeded(res.Over)
	} else {
		err = r.direct(cmd, limit, res)
	}
	_ = pw.Close() // already closed if the action was started

	// The process group is gone; other processes may still have the pipe open.
	_ = pr.SetReadDeadline(time.Now().Add(pipeWait))
	<-copied
	return err
}

// direct runs the program without a supervisor and ends its process group.
func (r *Runner) direct(cmd *exec.Cmd, limit time.Duration, res *Result) error {
	err := cmd.Start()
	if stdout, ok := cmd.Stdout.(*os.File); ok {
		stdout.Close() // the action has a copy
	}
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	res.Started = true
	pid := cmd.Process.Pid
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		waitUnreaped(pid)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-exited:
	case <-timer.C:
		res.TimedOut = true
	case <-r.kill:
		res.Stopped = true
	}
	if res.TimedOut || res.Stopped {
		signalGroup(pid, unix.SIGTERM)
		awaitGroup(pid, exited, r.opts.Grace)
	}
	// The leader is not reaped yet, so its group's number cannot be reused. This also
	// ends background processes of the program.
	signalGroup(pid, unix.SIGKILL)
	stuck := time.NewTimer(max(r.opts.Grace, killGrace))
	defer stuck.Stop()
	select {
	case <-exited:
	case <-stuck.C:
		go func() { _ = cmd.Wait() }() // reap it if it ever ends
		return fmt.Errorf("process %d: %w", pid, errUnkillable)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("wait: %w", err)
	}
	res.Status = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		res.Signal = ws.Signal()
	}
	return nil
}

// stdinFor returns a file with the outlier as JSON and a newline. A pipe would block if
// the action does not read it.
func stdinFor(item *Item) (*os.File, error) {
	data, err := text.Marshal(&item.Outlier)
	if err != nil {
		return nil, fmt.Errorf("encode outlier: %w", err)
	}
	fd, err := unix.MemfdCreate("tailcam-outlier", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make standard input: %w", err)
	}
	f := os.NewFile(uintptr(fd), "outlier.json")
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make standard input: %w", err), f.Close())
	}
	return f, nil
}
