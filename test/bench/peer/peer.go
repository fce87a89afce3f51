// Package peer runs the tools that tailcam is measured beside, as they are
// installed, and ends them without leaving anything behind.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/support/child"
)

// Peer is another tool at work.
type Peer struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   child.Output
	done  chan error
	progs []*ebpf.Program
	names []string

	on, off string // what it is told to record, and not to
	answers bool   // by the same word, when it has done so
}

// Program is the account of a BPF program that a tool has loaded.
type Program struct {
	Hook string
	Runs uint64
	Time time.Duration
}

// inTracefs runs a command with tracefs mounted, in a mount namespace of its
// own, so that nothing can be left mounted.
const inTracefs = `[ -e /sys/kernel/tracing/events ] || mount -t tracefs nodev /sys/kernel/tracing || exit 1
ulimit -l unlimited 2>/dev/null
exec "$@"`

// Start starts a tool, and waits until ready says that its process has all the
// files that it opens to work. The tool ends with ctx, and with the calling
// thread, which therefore must be locked.
func Start(ctx context.Context, args []string, ready func(Files) bool) (*Peer, error) {
	return start(ctx, args, unix.SIGKILL, ready)
}

// start lets the kernel send a signal to the tool at the end of this thread; 0: none.
func start(ctx context.Context, args []string, orphaned unix.Signal, ready func(Files) bool) (*Peer, error) {
	p := &Peer{done: make(chan error, 1)}
	p.cmd = exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", inTracefs, "sh"}, args...)...)
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: orphaned, Unshareflags: unix.CLONE_NEWNS}
	p.cmd.Stderr = &p.out
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	p.cmd.Cancel = func() error { // as stop does: it may have to clean up
		return errors.Join(p.in.Close(), p.cmd.Process.Signal(unix.SIGINT))
	}
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.done <- p.cmd.Wait() }()

	deadline := time.Now().Add(15 * time.Second)
	for {
		select {
		case err := <-p.done:
			p.done <- err
			return nil, fmt.Errorf("%s ended at once (%v): %s", args[0], err, lastLine(p.out.String())) //nolint:errorlint // nil if it ended well
		case <-time.After(50 * time.Millisecond):
		}
		f, err := FilesOf(p.cmd.Process.Pid)
		f.Said = p.out.String()
		if err == nil && ready(f) {
			break
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("%s did not attach in 15 s: %s", args[0], lastLine(p.out.String())), p.Stop())
		}
	}
	time.Sleep(200 * time.Millisecond) // loaded is not yet attached
	return p, p.findPrograms()
}

// findPrograms opens the BPF programs that the process holds.
func (p *Peer) findPrograms() error {
	f, err := FilesOf(p.cmd.Process.Pid)
	if err != nil {
		return errors.Join(err, p.Stop())
	}
	for _, id := range f.Programs {
		prog, err := ebpf.NewProgramFromID(id)
		if err != nil {
			return errors.Join(fmt.Errorf("open program %d of %s: %w", id, p.cmd.Path, err), p.Stop())
		}
		p.progs = append(p.progs, prog)
		info, err := prog.Info()
		if err != nil {
			return errors.Join(err, p.Stop())
		}
		p.names = append(p.names, hookName(info.Name))
	}
	return nil
}

// Programs are the accounts of the tool's BPF programs.
func (p *Peer) Programs() ([]Program, error) {
	var list []Program
	for i, prog := range p.progs {
		s, err := prog.Stats()
		if err != nil {
			return nil, err
		}
		if s.RunCount > 0 { // not a probe of the kernel's features
			list = append(list, Program{p.names[i], s.RunCount, s.Runtime})
		}
	}
	return list, nil
}

// PID is that of the tool's process.
func (p *Peer) PID() int { return p.cmd.Process.Pid }

// Record lets ftrace or perf record, or not, as it does from its start. What ftrace does not
// record, the kernel no longer tells it; perf's events stay where they are, without a ring.
func (p *Peer) Record(ctx context.Context, on bool) error {
	word := p.off
	if on {
		word = p.on
	}
	if word == "" {
		return fmt.Errorf("%s cannot be told to record", p.cmd.Args[4])
	}
	said := len(p.out.String())
	if _, err := io.WriteString(p.in, word+"\n"); err != nil {
		return err
	}
	for late := time.Now().Add(10 * time.Second); p.answers && !strings.Contains(p.out.String()[said:], word+"\n"); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("%s did not obey %q: %s", p.cmd.Args[4], word, lastLine(p.out.String()))
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// Stop interrupts the tool as a person would, and kills it if it does not end. It
// is an error if it has ended before.
func (p *Peer) Stop() error {
	for _, prog := range p.progs {
		_ = prog.Close()
	}
	select {
	case <-p.done: //nolint:errcheck // what it has printed says more
		return fmt.Errorf("%s ended by itself: %s", p.cmd.Args[4], lastLine(p.out.String()))
	default:
	}
	_ = p.in.Close()
	_ = unix.Kill(p.cmd.Process.Pid, unix.SIGINT)
	select {
	case <-p.done: //nolint:errcheck // its status says that it was interrupted
		return nil
	case <-time.After(5 * time.Second):
	}
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	<-p.done //nolint:errcheck // killed
	return nil
}

// Files are what of a process's open files tells how far it is, and what it has said on standard error.
type Files struct {
	Programs    []ebpf.ProgramID
	Tracepoints []string // that programs are attached to
	Events      int      // perf events
	Said        string
}

// FilesOf reads those of a process of any kind, but not what it has said.
func FilesOf(pid int) (Files, error) {
	var f Files
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return f, err
	}
	for _, path := range infos {
		if to, err := os.Readlink(strings.Replace(path, "/fdinfo/", "/fd/", 1)); err == nil && strings.Contains(to, "[perf_event]") {
			f.Events++
		}
		b, err := os.ReadFile(path)
		if err != nil {
			continue // closed since
		}
		if id, err := strconv.ParseUint(valueOf(b, "prog_id:"), 10, 32); err == nil && !slices.Contains(f.Programs, ebpf.ProgramID(id)) {
			f.Programs = append(f.Programs, ebpf.ProgramID(id))
		}
		if name := valueOf(b, "tp_name:"); name != "" {
			f.Tracepoints = append(f.Tracepoints, name)
		}
	}
	return f, nil
}

// valueOf reads a line of the fdinfo of a BPF program or link; "": there is none.
func valueOf(fdinfo []byte, key string) string {
	for line := range strings.Lines(string(fdinfo)) {
		if v, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// hookNames are the hooks that programs of other tools are named after.
var hookNames = []string{
	"sched_waking", "sched_wakeup_new", "sched_wakeup", "sched_switch", "sys_enter", "sys_exit",
	"block_rq_issue", "block_rq_complete",
}

// hookName finds the hook in the name of a program, of which the kernel keeps 15 bytes.
func hookName(prog string) string {
	for _, h := range hookNames {
		short := h[:min(len(h), 15)]
		if prog == short || strings.HasPrefix("handle_"+h, prog) && len(prog) == 15 || prog == "handle_"+h {
			return h
		}
	}
	return prog
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
