package action

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
)

// supervised runs an action under a supervisor until it ends.
func (r *Runner) supervised(cmd *exec.Cmd, id *identity, limit time.Duration, b bounds, res *Result) error {
	reports, childReport, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer reports.Close()
	childOrders, orders, err := os.Pipe()
	if err != nil {
		childReport.Close()
		return fmt.Errorf("start: %w", err)
	}
	defer orders.Close()
	b.report = r.totals.limited()
	use := r.totals.begin()
	defer r.totals.end(use)
	args := append(append([]string{"tailcam", Verb}, credentialArgs(id)...), b.args()...)
	cmd.ExtraFiles = []*os.File{childReport, childOrders}
	own := r.newCgroup(b)
	if own != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, own.file, own.home)
		defer func() { r.endCgroup(own, res) }()
	}
	cmd.Args = append(append(args, strconv.FormatBool(own != nil), cmd.Path), cmd.Args...)
	cmd.Path = r.opts.Supervisor
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	childReport.Close()
	childOrders.Close()
	if stdout, ok := cmd.Stdout.(*os.File); ok {
		stdout.Close() // the action has a copy
	}
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	said := make(chan error, 1)
	go func() {
		said <- r.opts.Guard.Do(guard.Action, func() error { return r.readReport(reports, res, use) })
	}()
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // the report has the result
	}()

	timer := time.NewTimer(limit)
	defer timer.Stop()
	timedOut, stopped, over := false, false, ""
	select {
	case <-exited:
	case over = <-use.over: // at once, as what it exceeds
	case <-timer.C:
		timedOut = true
	case <-r.kill:
		stopped = true
	}
	if timedOut || stopped {
		_, _ = orders.Write([]byte{0}) // a write error means that it has ended
		select {
		case <-exited:
		case <-time.After(r.opts.Grace):
		}
	}
	_ = orders.Close() // kills whatever is left
	hangs := time.NewTimer(max(r.opts.Grace, killGrace))
	defer hangs.Stop()
	select {
	case <-exited:
		err = <-said
	case <-hangs.C:
		// The supervisor stays until the kernel releases the action.
		_ = reports.SetReadDeadline(time.Now())
		err = errors.Join(<-said, errUnkillable)
	}
	res.TimedOut, res.Stopped = timedOut, stopped
	if over != "" {
		res.Over = over
	}
	return err
}

// endCgroup ends what an action has left, even if its supervisor was killed.
func (r *Runner) endCgroup(g *cgroup, res *Result) {
	if used, ok := cgroupCPU(int(g.file.Fd())); ok {
		res.CPU = used
	}
	if err := g.end(); err != nil {
		r.log.Warn("the cgroup of an action stays", zap.Error(err))
	}
}

var errUnkillable = errors.New("stuck in the kernel: SIGKILL has no effect")

// readReport reads a supervisor's report until EOF.
func (r *Runner) readReport(f *os.File, res *Result, use *usage) error {
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if word == "uses" {
			var cpu, memory int64
			if _, err := fmt.Sscan(rest, &cpu, &memory); err != nil {
				return fmt.Errorf("the supervisor said %q", lines.Text())
			}
			r.totals.uses(use, time.Duration(cpu), memory, time.Now())
			continue
		}
		n, err := strconv.Atoi(rest)
		switch {
		case word == "error":
			return errors.New(rest)
		case word == "over":
			res.Over = rest
		case err != nil:
			return fmt.Errorf("the supervisor said %q", lines.Text())
		case word == "started":
			res.Started = true
		case word == "cpu":
			res.CPU = time.Duration(n)
		case word == "exit":
			res.Status = n
		case word == "signal":
			res.Signal = syscall.Signal(n)
		}
	}
	if !res.Started {
		return errors.New("start: the supervisor exited early")
	}
	return nil
}
