// Package sequence generates records that are numbered, and finds the holes
// among them: threads, each kept on one CPU, that call a cheap system call with
// a number that grows by one. Recorded with the group syscall, every number
// that is missing between two others is a record that was lost.
package sequence

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/support/cpus"
)

// Verb makes a program that hands its arguments to Main be the generator.
const Verb = "generate-numbers"

// nowhere is the file descriptor that the calls name, by which they are told
// from others. No file has it: a call that costs next to nothing.
const nowhere = 0x7a11ca3

// Every sampled call has the time before and after it noted; the last ones are kept.
const (
	sampled = 1 << 8
	samples = 1 << 16
)

// Sample is one call of which the time is known, in CLOCK_MONOTONIC.
type Sample struct {
	Number        uint64
	Before, After uint64
}

// Thread is what one thread has done, by its own account.
type Thread struct {
	CPU     int
	TID     int
	Last    uint64 // number of the last call; the first is 1
	Samples []Sample
}

// Main is the generator: -cpus 0,1 -rest 1us, until standard input ends. It
// prints a list of Thread as JSON.
func Main(args []string) int {
	fs := flag.NewFlagSet(Verb, flag.ContinueOnError)
	cpus := fs.String("cpus", "0", "CPUs, each with a thread")
	rest := fs.Duration("rest", 0, "time between two calls")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	debug.SetGCPercent(-1)
	var stop atomic.Bool
	var all sync.WaitGroup
	var failed atomic.Bool
	names := strings.Split(*cpus, ",")
	threads := make([]Thread, len(names))
	for i, name := range names {
		cpu, err := strconv.Atoi(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "numbers: -cpus:", err)
			return 2
		}
		threads[i].CPU = cpu
		all.Go(func() {
			if err := threads[i].count(&stop, *rest); err != nil {
				fmt.Fprintln(os.Stderr, "numbers:", err)
				failed.Store(true)
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop.Store(true)
	all.Wait()
	if failed.Load() || json.NewEncoder(os.Stdout).Encode(threads) != nil {
		return 1
	}
	return 0
}

// count makes the calls on one CPU.
func (t *Thread) count(stop *atomic.Bool, rest time.Duration) error {
	runtime.LockOSThread() // for good: the thread ends with it
	if err := cpus.Keep(t.CPU); err != nil {
		return fmt.Errorf("keep to CPU %d: %w", t.CPU, err)
	}
	t.TID = unix.Gettid()
	turns := turnsOf(rest)
	ring := make([]Sample, 0, samples)
	for next := 0; !stop.Load(); {
		t.Last++
		if t.Last%sampled != 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_LSEEK, nowhere, uintptr(t.Last), 0)
		} else {
			s := Sample{Number: t.Last, Before: now()}
			_, _, _ = unix.RawSyscall(unix.SYS_LSEEK, nowhere, uintptr(t.Last), 0)
			s.After = now()
			if len(ring) < samples {
				ring = append(ring, s)
			} else {
				ring[next%samples] = s
			}
			next++
		}
		spin(stop, turns)
	}
	t.Samples = ring
	return nil
}

// spin passes time without a system call: where the clock is one, as in an emulator, waiting by
// the clock would fill the history with calls that nobody counts.
func spin(stop *atomic.Bool, turns int) {
	for range turns {
		if stop.Load() {
			return
		}
	}
}

// turnsOf is how many turns of spin take about that long, here and now.
func turnsOf(rest time.Duration) int {
	if rest <= 0 {
		return 0
	}
	const tried = 1 << 18
	start := now()
	spin(new(atomic.Bool), tried)
	return int(float64(rest) * tried / float64(max(now()-start, 1)))
}

// Generator is the generator at work, in a process of its own.
type Generator struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// Start starts this program again as the generator.
func Start(cpus []int, rest time.Duration) (*Generator, error) {
	var names []string
	for _, c := range cpus {
		names = append(names, strconv.Itoa(c))
	}
	g := &Generator{cmd: exec.Command("/proc/self/exe", Verb, "-cpus", strings.Join(names, ","), "-rest", rest.String())}
	g.cmd.Stderr = os.Stderr
	g.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	in, err := g.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	g.in, g.out = in, bufio.NewReader(out)
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the generator: %w", err)
	}
	return g, nil
}

// Stop ends it, and returns its account. It may be called once.
func (g *Generator) Stop() ([]Thread, error) {
	var threads []Thread
	err := g.in.Close()
	err = errors.Join(err, json.NewDecoder(g.out).Decode(&threads), g.cmd.Wait())
	return threads, err
}

// now enters Go's scheduler, unlike linux.Monotonic: threads that never do would
// keep the end of standard input from being read.
func now() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it cannot fail
	return uint64(ts.Nano())
}
