// Package inject builds and runs the latency injectors of the end-to-end
// tests: C programs, because Go's runtime wakes and preempts threads on its
// own account. Each injected latency comes back with its length by the
// injector's own clock, so that a test can hold a tracker against it.
package inject

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

//go:embed src/*.c src/*.h
var sources embed.FS

// Kinds of events.
const (
	Over    = "over"    // asked to be over the threshold
	Under   = "under"   // asked to be under it
	Spoilt  = "spoilt"  // disturbed: the kernel saw something else than the injector's clock
	Request = "request" // block: a request, however long
	Edge    = "edge"    // a call that was interrupted, restarted or stopped, in its pieces
	Dead    = "dead"    // a call that never returned: End is 0, and nothing may stay of it
)

// Event is one injected latency. Times are CLOCK_MONOTONIC in nanoseconds.
type Event struct {
	Track  string `json:"track"`
	Kind   string `json:"kind"`
	Func   string `json:"func"` // has to be on the user stack
	Comm   string `json:"comm"`
	PID    int    `json:"pid"` // process (thread group) id
	TID    int    `json:"tid"`
	CPU    int    `json:"cpu"`      // pinned to; -1: none
	Since  uint64 `json:"since_ns"` // up to Start nothing was injected: what delayed the thread there, the machine did; 0: not known
	Start  uint64 `json:"start_ns"`
	End    uint64 `json:"end_ns"`
	Offset int64  `json:"offset"` // block: in the file; else -1
	Alone  bool   `json:"alone"`  // who kept it waiting had the CPU all the time
}

// Delay is the length of the latency; 0 for a call that never returned.
func (e Event) Delay() time.Duration {
	if e.End < e.Start {
		return 0
	}
	return time.Duration(e.End - e.Start)
}

// Split sorts events by what a tracker with this threshold must do with them:
// report, not report, or either, where the measured delay lies within margin
// of the threshold or the event was spoilt. A real machine delays some events
// that were asked to be under, so it is the clock that decides, not the order.
func Split(events []Event, threshold, margin time.Duration) (must, mustNot, either []Event) {
	for _, e := range events {
		switch {
		case e.Kind == Spoilt:
			either = append(either, e)
		case e.Kind == Dead || e.Delay() < threshold-margin:
			mustNot = append(mustNot, e)
		case e.Delay() > threshold+margin:
			must = append(must, e)
		default:
			either = append(either, e)
		}
	}
	return must, mustNot, either
}

var build struct {
	once sync.Once
	path string
	err  error
}

// Build compiles the injectors, once in a run of the test program, and returns
// the path of the static binary. Without a C compiler the test is skipped,
// unless TAILCAM_INJECT names a binary that was built elsewhere, as for a
// virtual machine. Remove deletes what was built.
func Build(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("TAILCAM_INJECT"); path != "" {
		return path
	}
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc, to build the injectors (apt install gcc libc6-dev), or TAILCAM_INJECT with the path of a built one")
	}
	build.once.Do(func() {
		dir, err := os.MkdirTemp("", "tailcam-inject-")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "inject")
		build.err = errors.Join(os.Chmod(dir, 0o755), Compile(compiler, build.path)) // any user may run it
	})
	assert.NilError(t, build.err, "build the injectors: %v", build.err)
	return build.path
}

// Remove deletes what Build has made. For TestMain, after the tests.
func Remove() {
	if build.path != "" {
		os.RemoveAll(filepath.Dir(build.path)) //nolint:errcheck // a directory in the temporary one
	}
}

// Compile writes the static injector binary to path. It needs no test, so that
// what prepares virtual machines can use it.
func Compile(compiler, path string) error {
	return compile(compiler, path, sources, nil)
}

// CompileWith is Compile for the programs of others: their sources, and what
// all injectors share (inject.h, common.c).
func CompileWith(compiler, path string, own fs.FS) error {
	return compile(compiler, path, own, []string{"src/inject.h", "src/common.c"})
}

func compile(compiler, path string, from fs.FS, shared []string) error {
	src := path + ".src"
	defer os.RemoveAll(src) //nolint:errcheck // copies
	if err := os.CopyFS(src, from); err != nil {
		return fmt.Errorf("write the sources: %w", err)
	}
	for _, name := range shared {
		text, err := sources.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(src, name), text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("write the sources: %w", err)
		}
	}
	files, err := filepath.Glob(filepath.Join(src, "src", "*.c"))
	if err != nil {
		return err
	}
	args := append([]string{
		"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
		// A stack walk follows frame pointers, and wants every caller on it.
		"-fno-omit-frame-pointer", "-fno-optimize-sibling-calls",
		"-static", "-pthread", "-o", path,
	}, files...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler, err, out)
	}
	return nil
}

// Run runs one subcommand to its end and returns what it injected; a failure
// ends the test. Without arguments the binary prints its usage.
//
//	wakeup    N_OVER over_us N_UNDER under_us threads
//	offcpu    read|futex|sleep|vfork|all N_OVER over_us N_UNDER under_us threads
//	syscall   read|poll|futex|sleep|all N_OVER over_us N_UNDER under_us threads
//	edge      rounds hold_us
//	block     PATH read|write block_bytes requests threads
//	samecpu   N_OVER over_us
//	preempt   N_OVER over_us N_UNDER under_us, for each CPU
//	newtask   N_OVER over_us
//	chain     pipe|herd|udp THREADS rounds hold_us
//	walk      N hold_us THREADS BUSY
func Run(t testing.TB, args ...string) []Event {
	t.Helper()
	if os.Geteuid() != 0 && len(args) > 0 && slices.Contains([]string{"wakeup", "preempt", "newtask"}, args[0]) {
		t.Skip("needs root: real-time threads")
	}
	return RunWith(t, nil, args...)
}

// RunWith is Run with a change to the command, if change is not nil.
func RunWith(t testing.TB, change func(*exec.Cmd), args ...string) []Event {
	t.Helper()
	h := &Held{Cmd: exec.CommandContext(t.Context(), Build(t), args...), t: t}
	return h.Events(h.start(change, (*exec.Cmd).Run))
}

// As is a change to a command: it runs as a user who may have real-time threads, and nothing else.
func As(uid int) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential:  &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
			AmbientCaps: []uintptr{unix.CAP_SYS_NICE},
		}
	}
}

// Held is an injector that has its process id, and waits to be let go.
type Held struct {
	Cmd        *exec.Cmd
	t          testing.TB
	input      io.WriteCloser
	out, wrong bytes.Buffer
}

// Hold starts an injector, as RunWith does, up to the moment before it becomes one.
func Hold(t testing.TB, change func(*exec.Cmd), args ...string) *Held {
	t.Helper()
	args = append([]string{"-c", `read go && exec "$0" "$@"`, Build(t)}, args...)
	h := &Held{Cmd: exec.CommandContext(t.Context(), "/bin/sh", args...), t: t}
	var err error
	h.input, err = h.Cmd.StdinPipe()
	assert.NilError(t, err)
	assert.NilError(t, h.start(change, (*exec.Cmd).Start))
	return h
}

func (h *Held) start(change func(*exec.Cmd), run func(*exec.Cmd) error) error {
	h.Cmd.Stdout, h.Cmd.Stderr = &h.out, &h.wrong
	if change != nil {
		change(h.Cmd)
	}
	return run(h.Cmd)
}

// PID is the injector's process id.
func (h *Held) PID() int { return h.Cmd.Process.Pid }

// LetGo lets it begin.
func (h *Held) LetGo() {
	h.t.Helper()
	_, err := h.input.Write([]byte("go\n"))
	assert.NilError(h.t, err)
}

// Wait waits for its end, and returns what it injected.
func (h *Held) Wait() []Event {
	h.t.Helper()
	return h.Events(h.Cmd.Wait())
}

// Ended waits beside the test; what it receives is for Events.
func (h *Held) Ended() <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- h.Cmd.Wait() }()
	return ended
}

// Events returns what was injected, given how the command has ended.
func (h *Held) Events(ended error) []Event {
	h.t.Helper()
	assert.NilError(h.t, ended, "inject %v: %v\n%s", h.Cmd.Args, ended, h.wrong.Bytes())
	events, err := Parse(h.out.Bytes())
	assert.NilError(h.t, err, "inject %v", h.Cmd.Args)
	return events
}

// Parse reads events, a JSON object a line.
func Parse(out []byte) ([]Event, error) {
	var events []Event
	for line := range bytes.Lines(out) {
		var e Event
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&e); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		events = append(events, e)
	}
	return events, nil
}
