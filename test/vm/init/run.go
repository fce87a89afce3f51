package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// Bits of /proc/sys/kernel/tainted that tell of a kernel in trouble.
const (
	taintDied       = 1 << 7
	taintWarned     = 1 << 9
	taintSoftLockup = 1 << 14
)

// run runs every test, and reaps whatever they leave behind.
func run(out *os.File, cfg *boot.Config) boot.Status {
	before := taint()
	deadline := time.Now().Add(cfg.Timeout)
	status := boot.Passed
	for _, test := range cfg.Tests {
		ws, expired, err := runOne(out, test, cfg.Env, time.Until(deadline))
		switch {
		case err != nil:
			fmt.Fprintf(out, "init: %s: %v\n", test.Path, err)
			return boot.Broken
		case expired:
			fmt.Fprintf(out, "init: %s: killed: the tests took longer than %s\n", test.Path, cfg.Timeout)
			return boot.Expired
		case ws.Signaled():
			fmt.Fprintf(out, "init: %s: killed by signal %d (%s)\n", test.Path, ws.Signal(), ws.Signal())
			status = boot.Failed
		case ws.ExitStatus() != 0:
			status = boot.Failed
		}
	}
	grown := taint() &^ before
	if _, err := os.Stat(boot.LockupProvoked); err == nil {
		grown &^= taintSoftLockup // the kernel log has any other
	}
	if grown != 0 {
		fmt.Fprintf(out, "init: the kernel warned while the tests ran (taint %#x)\n", grown)
		if status == boot.Passed {
			status = boot.Warned
		}
	}
	return status
}

// runOne runs one test to its end, or for at most limit.
func runOne(out *os.File, test boot.Test, env []string, limit time.Duration) (ws syscall.WaitStatus, expired bool, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, false, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(test.Path, append([]string{test.Path}, test.Args...), &syscall.ProcAttr{
		Dir:   test.Dir,
		Env:   env,
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, false, fmt.Errorf("start: %w", err)
	}
	var late atomic.Bool
	timer := time.AfterFunc(limit, func() {
		late.Store(true)
		_ = unix.Kill(-pid, unix.SIGKILL)
	})
	defer timer.Stop()
	for {
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, false, fmt.Errorf("wait: %w", err)
		case got == pid:
			return ws, late.Load(), nil
		}
	}
}

// taint reads the bits that count as trouble.
func taint() uint64 {
	text, err := os.ReadFile("/proc/sys/kernel/tainted")
	if err != nil {
		return 0
	}
	bits, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0
	}
	return bits & (taintDied | taintWarned | taintSoftLockup)
}
