// Command bench measures what tailcam costs, beside an empty program and
// beside other tools that do the same job, all interleaved in one run.
//
//	go run ./test/bench [-quick] [-rounds N] [-loops N] [-only NAME] [-o FILE]
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
	"runtime"

	"golang.org/x/sys/unix"
)

// options are the command line.
type options struct {
	rounds int
	loops  int    // messages of each hackbench sender
	calls  int    // getppid calls in one loop
	reads  int    // block requests
	only   string // part of the names of the setups to measure
	output string // JSON
}

func main() {
	o := options{}
	quick := flag.Bool("quick", false, "a smoke run of some 20 seconds; its numbers mean little")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each setup is measured")
	flag.IntVar(&o.loops, "loops", 1500, "messages of each hackbench sender")
	flag.StringVar(&o.only, "only", "", "measure only setups whose name contains this (and nothing, empty)")
	flag.StringVar(&o.output, "o", "out/bench.json", "where the JSON goes")
	flag.Parse()
	o.calls, o.reads = 100_000, 300
	if *quick {
		o.rounds, o.loops, o.calls, o.reads = 1, 100, 10_000, 50
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
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
	defer os.RemoveAll(dir)

	b := &bench{opts: o, dir: dir, setups: setups(dir), results: map[string]*result{}}
	if err := b.measure(ctx); err != nil {
		return err
	}
	rows := b.rows()
	printTable(os.Stdout, rows)
	if err := writeJSON(o.output, rows); err != nil {
		return err
	}
	return b.failed()
}
