// Command bench measures what tailcam costs, beside an empty program and
// beside other tools that do the same job, all interleaved in one run.
//
//	go run ./test/bench [-quick] [-rounds N] [-loops N] [-budget D] [-only REGEXP] [-o FILE]
//
// It needs root, hackbench (apt-get install rt-tests), and for the other tools
// bpftrace, linux-perf and libbpf-tools; what is missing is left out and named.
// Kernel BPF statistics are on only while a load runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// options are the command line.
type options struct {
	rounds int            // of setups that targets are about; others are in every third
	loops  int            // messages of each hackbench sender; 0: those of half a second
	calls  int            // getppid calls in one loop
	reads  int            // block requests
	only   *regexp.Regexp // names of the setups to measure
	output string         // JSON
	budget time.Duration  // no round is begun that would not end within it
}

func main() {
	o := options{}
	quick := flag.Bool("quick", false, "a smoke run of less than half a minute; its numbers mean little")
	flag.IntVar(&o.rounds, "rounds", 9, "how often each setup of a target is measured, others a third of it; fewer than 5 decide nothing")
	flag.IntVar(&o.loops, "loops", 0, "messages of each hackbench sender (default: those of half a second)")
	only := flag.String("only", "", "measure only setups whose name matches this regular expression, and the empty ones")
	flag.DurationVar(&o.budget, "budget", 9*time.Minute, "no round is begun that would not end within this time")
	flag.StringVar(&o.output, "o", "out/bench.json", "where the JSON goes")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		fmt.Fprintln(os.Stderr, "bench: -only:", err)
		os.Exit(1)
	}
	o.calls, o.reads = 10_000, 300
	if *quick {
		o.rounds, o.loops, o.calls, o.reads = 1, 100, 1_000, 50
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	signal.Ignore(unix.SIGPIPE) // what reads the table may end: there still is cleaning up to do
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// run measures everything, prints the table and writes the JSON. An error
// means that something did not run, never that something was slow.
func run(ctx context.Context, o *options) error {
	// Children are to die with this thread (Pdeathsig), so it must not.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Geteuid() != 0 {
		return errors.New("loading BPF programs and reading their statistics needs root: run it with sudo")
	}
	if _, err := exec.LookPath("hackbench"); err != nil {
		return errors.New("hackbench is not installed (apt-get install rt-tests)")
	}
	dir, err := os.MkdirTemp("", "tailcam-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // only what was measured with

	b := &bench{opts: o, dir: dir, setups: setups(dir), results: map[string]*result{}}
	err = b.measure(ctx)
	progress("")
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was written")
	}
	if err != nil {
		return err
	}
	ticks, err := b.tickRows(ctx)
	if err != nil {
		return err
	}
	rows := append(b.rows(), ticks...)
	if err := writeJSON(o.output, rows); err != nil {
		return err
	}
	printTable(os.Stdout, rows)
	return b.failed()
}
