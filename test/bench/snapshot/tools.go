package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
)

// most is how long a tool may take at all.
const most = 30 * time.Second

const readPriority = 50

// child is a tool's process, and the names that appear in a directory.
type child struct {
	cmd   *exec.Cmd
	log   *os.File
	names chan appeared
	watch *os.File
}

// appeared is a name that something complete was renamed to.
type appeared struct {
	name string
	at   uint64
}

// begin starts a program that renames what it has saved to a name in dir.
func (c *child) begin(ctx context.Context, dir string, args ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	c.watch = os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO); err != nil {
		return err
	}
	c.names = make(chan appeared, 16)
	go c.read()
	if c.log, err = os.CreateTemp(filepath.Dir(dir), "log-"); err != nil {
		return err
	}
	c.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return c.cmd.Start()
}

// read notes when names appear, on a real-time thread: beside hackbench another one would
// measure how long it waits for a CPU itself.
func (c *child) read() {
	defer close(c.names)
	if err := snapshot.RealTime(readPriority); err != nil {
		fmt.Fprintln(os.Stderr, "what is measured includes waits of the benchmark:", err)
	}
	in := bufio.NewReaderSize(c.watch, 1<<16)
	for {
		var head [unix.SizeofInotifyEvent]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		at := linux.Monotonic()
		name := make([]byte, uint32(head[12])|uint32(head[13])<<8)
		if _, err := io.ReadFull(in, name); err != nil {
			return
		}
		c.names <- appeared{strings.TrimRight(string(name), "\x00"), at}
	}
}

// next waits for the next name that wanted accepts.
func (c *child) next(wanted func(string) bool) (appeared, error) {
	late := time.After(most)
	for {
		select {
		case a, ok := <-c.names:
			if !ok {
				return a, errors.New("the watch over its directory ended")
			}
			if wanted(a.name) {
				return a, nil
			}
		case <-late:
			text, _ := os.ReadFile(c.log.Name())
			return appeared{}, fmt.Errorf("nothing was saved within %s; it says:\n%s", most, text)
		}
	}
}

func (c *child) stop() error {
	if c.cmd == nil || c.cmd.Process == nil {
		return nil
	}
	_ = c.cmd.Process.Signal(unix.SIGINT)
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	select {
	case <-done: //nolint:errcheck // its status says that it was interrupted
	case <-time.After(10 * time.Second):
		_ = c.cmd.Process.Kill()
		<-done //nolint:errcheck // killed
	}
	return errors.Join(c.watch.Close(), c.log.Close())
}

func size(path string) (bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

// daemon is tailcam, with one rule for this process's sleep.
type daemon struct {
	child
	name    string
	program string
	args    []string
	snaps   string
}

func (d *daemon) title() string { return d.name }

func (d *daemon) start(ctx context.Context, dir string) error {
	d.snaps = filepath.Join(dir, "snaps")
	rule := fmt.Sprintf(`rules:
  - name: slow
    track: syscall
    attach: all
    threshold: %s
    when: {pid: [%d], syscall: [clock_nanosleep]}
    snapshot: {after: 1ms, every: 1ms, burst: 10}
`, delay/2, os.Getpid())
	file, socket := filepath.Join(dir, "rule.yaml"), filepath.Join(dir, "s.sock")
	if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
		return err
	}
	args := append([]string{d.program, "run", "--rules", file, "--socket-path", socket, "--snapshots-dir", d.snaps,
		"--snapshots-min-free", "0", "--snapshots-keep-count", "5", "--budget-cpu", "off"}, d.args...)
	if err := d.begin(ctx, d.snaps, args...); err != nil {
		return fmt.Errorf("%w (make build)", err)
	}
	for late := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		text, _ := os.ReadFile(d.log.Name())
		if strings.Contains(string(text), `"watching"`) {
			return nil
		}
		if time.Now().After(late) || strings.Contains(string(text), "error:") {
			return errors.Join(fmt.Errorf("it does not start:\n%s", text), d.stop())
		}
	}
}

func (d *daemon) saved(uint64) (saved, error) {
	a, err := d.next(func(name string) bool { _, err := snapshot.ParseID(name); return err == nil })
	if err != nil {
		return saved{}, err
	}
	dir := filepath.Join(d.snaps, a.name)
	m, err := snapshot.ReadMeta(dir)
	if err != nil {
		return saved{}, err
	}
	return saved{
		from: m.Outliers[0].EndMono, until: a.at, bytes: size(dir), trace: size(filepath.Join(dir, snapshot.TraceDir)), events: m.Records,
	}, nil
}
