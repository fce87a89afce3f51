package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var hackbenchTime = regexp.MustCompile(`(?m)^Time: ([0-9.]+)`)

// took is what a run of hackbench took: by its own clock, and of all its
// tasks' processor time, which other work on the machine disturbs less.
type took struct{ wall, cpu time.Duration }

// hackbench lets 160 tasks exchange messages over pipes.
func hackbench(ctx context.Context, loops int) (took, error) {
	cmd := exec.CommandContext(ctx, "hackbench", "--pipe", "--groups", "4", "--loops", strconv.Itoa(loops))
	ownGroup(cmd)
	killGroup := cmd.Cancel
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGINT) } // it ends and reaps its tasks itself
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		_ = killGroup() // if there still is one
		return took{}, ctx.Err()
	}
	if err != nil {
		return took{}, fmt.Errorf("run hackbench: %w: %s", err, bytes.TrimSpace(out.Bytes()))
	}
	m := hackbenchTime.FindSubmatch(out.Bytes())
	if m == nil {
		return took{}, fmt.Errorf("hackbench printed no time: %s", bytes.TrimSpace(out.Bytes()))
	}
	seconds, err := strconv.ParseFloat(string(m[1]), 64)
	return took{
		wall: time.Duration(seconds * float64(time.Second)),
		cpu:  cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
	}, err
}

// ownGroup makes cmd the head of a process group which dies as a whole, with
// this program at the latest, and not by the terminal's interrupt.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}

// getppid returns the wall clock nanoseconds of one of the cheapest system
// calls: the best of many short loops, as what disturbs can only slow it down.
func getppid(calls int) float64 {
	best := time.Duration(1<<63 - 1)
	for range 50 {
		start := time.Now()
		for range calls {
			_, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		}
		best = min(best, time.Since(start))
	}
	return float64(best.Nanoseconds()) / float64(calls)
}

const blockSize = 4096

// disk reads a file of its own past the page cache, one request a read.
type disk struct {
	file *os.File
	buf  []byte
}

// openDisk makes the file beside the JSON: /tmp is often in memory.
func openDisk(dir string) (*disk, error) {
	path := filepath.Join(dir, ".bench-block-load")
	if err := os.WriteFile(path, make([]byte, 64*blockSize), 0o600); err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(path) }() // the open file stays
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT|unix.O_SYNC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a file for direct reads: %w", err)
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	raw := make([]byte, 2*blockSize)
	skip := blockSize - int(uintptr(unsafe.Pointer(&raw[0]))%blockSize)
	return &disk{f, raw[skip : skip+blockSize]}, nil
}

func (d *disk) read(requests int) error {
	for i := range requests {
		if _, err := d.file.ReadAt(d.buf, int64(i%64)*blockSize); err != nil {
			return fmt.Errorf("read directly from the disk: %w", err)
		}
	}
	return nil
}
