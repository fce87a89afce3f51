package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/support/child"
	"github.com/tailcam/tailcam/test/support/cpus"
)

const playerArgument = "-play-on-cpu"

// game is two processes that pass a byte to each other on one CPU: a round trip is two
// wake-ups and two switches.
type game struct{ players [2]*exec.Cmd }

func startGame(ctx context.Context, cpu int) (*game, error) {
	there, err := pipe()
	if err != nil {
		return nil, err
	}
	back, err := pipe()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range append(there[:], back[:]...) {
			_ = f.Close()
		}
	}()
	g := &game{}
	for i, ends := range [][2]*os.File{{back[0], there[1]}, {there[0], back[1]}} {
		c := exec.CommandContext(ctx, "/proc/self/exe", playerArgument, strconv.Itoa(cpu))
		c.Stdin, c.Stdout, c.Stderr = ends[0], ends[1], os.Stderr
		if err := child.Start(c); err != nil { // or they would go on for ever
			return nil, errors.Join(err, g.end())
		}
		g.players[i] = c
	}
	_, err = there[1].Write([]byte{0})
	if err != nil {
		return nil, errors.Join(err, g.end())
	}
	return g, nil
}

func pipe() ([2]*os.File, error) {
	r, w, err := os.Pipe()
	return [2]*os.File{r, w}, err
}

func init() { runtime.LockOSThread() } // to the first thread, whose switches the process's status tells

// ball is where the byte is kept.
var ball byte

// play passes on what comes until nobody is left to pass it to.
func play(cpu string) {
	n, err := strconv.Atoi(cpu)
	if err != nil || cpus.Keep(n) != nil || cpus.BlockSignals() != nil {
		os.Exit(1)
	}
	for passes(unix.SYS_READ, 0) && passes(unix.SYS_WRITE, 1) {
	}
}

// passes makes a system call without the runtime, which would look for other work each time.
func passes(call, fd uintptr) bool {
	n, _, _ := unix.RawSyscall(call, fd, uintptr(unsafe.Pointer(&ball)), 1)
	return n == 1
}

// roundTrip measures its time in ns, after what was changed has settled.
func (g *game) roundTrip(ctx context.Context, window time.Duration) (float64, error) {
	if err := sleep(ctx, settle); err != nil {
		return 0, err
	}
	before, err := g.switches()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := sleep(ctx, window); err != nil {
		return 0, err
	}
	after, err := g.switches()
	took := time.Since(start)
	if err == nil && after == before {
		err = errors.New("the two processes do not wake each other")
	}
	return float64(took.Nanoseconds()) / float64(after-before), err
}

// switches is how often the first one went to sleep: once in a round trip.
func (g *game) switches() (int, error) {
	name := fmt.Sprintf("/proc/%d/status", g.players[0].Process.Pid)
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(text), "\nvoluntary_ctxt_switches:\t")
	number, _, _ := strings.Cut(rest, "\n")
	if !found {
		return 0, fmt.Errorf("%s does not say how often it slept", name)
	}
	return strconv.Atoi(number)
}

// end ends both; that they were ended is no error.
func (g *game) end() error {
	var errs []error
	for _, c := range g.players {
		if c == nil {
			continue
		}
		if err := c.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		_ = c.Wait()
	}
	return errors.Join(errs...)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
