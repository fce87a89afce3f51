// Command vm runs tests on the kernels that tailcam promises to support. It
// boots Debian's kernels in QEMU without hardware virtualization, each with an
// initramfs that holds static test binaries, and prints a table of what passed.
//
//	go run ./test/vm                      # the whole matrix
//	go run ./test/vm -kernels 6.1,6.12-rt -run TestBTF -v
//	go run ./test/vm -turn 7              # half of those of CI: the same number, the same half
//	go run ./test/vm -record              # the whole matrix, and docs/kernels.md of it
//
// Tests that failed while the host was disturbed, or while the guest stood still
// by its own timers, run again in a guest of their own, at most twice, by the
// rules of test/support/report; the table says so.
//
// It needs no root. Kernels are downloaded with apt once, and kept below
// out/vm with the logs of the last run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tailcam/tailcam/test/support/disturbance"
	"github.com/tailcam/tailcam/test/support/skips"
)

// options are the command line.
type options struct {
	kernels  []target
	packages []string
	run      string
	files    map[string]string // guest path to host path
	jobs     int
	timeout  time.Duration
	memory   int
	verbose  bool
	record   bool
	page     bool
	skips    skips.List // that are allowed
}

// skipsFile is the list of tests that may be skipped, seen from the root of the repository.
const skipsFile = "test/skips.yaml"

// guestTests is the package of the tests for every kernel.
const guestTests = "./test/vm/guest"

func main() {
	opts, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ok, err := matrix(watchParent(ctx), opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// matrix prepares and runs every guest, and prints the outcome.
func matrix(ctx context.Context, opts *options) (ok bool, err error) {
	root, err := moduleRoot()
	if err != nil {
		return false, err
	}
	if opts.page {
		return true, keep(root, "", nil, false)
	}
	commit, err := checkedOut(ctx, root)
	if opts.record && err != nil {
		return false, err
	}
	if err := needTools(opts); err != nil {
		return false, err
	}
	if opts.skips, err = skips.Load(filepath.Join(root, skipsFile)); err != nil {
		return false, err
	}
	dirs := layout(root)
	unlock, err := dirs.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := dirs.create(); err != nil {
		return false, err
	}
	payloads, err := buildPayloads(ctx, dirs, opts)
	if err != nil {
		return false, err
	}
	machine, err := disturbance.Start()
	if err != nil {
		return false, err
	}
	defer machine.Stop()
	results := runAll(ctx, dirs, payloads, opts)
	again(ctx, dirs, payloads, opts, machine, results)
	if err := ctx.Err(); err != nil {
		return false, errors.New("interrupted; no guest is left running")
	}
	if opts.record {
		if err := keep(root, commit, results, opts.run == ""); err != nil {
			return false, err
		}
	}
	for _, r := range results {
		printDetails(os.Stdout, r, opts.verbose)
	}
	ok = printTable(os.Stdout, results)
	for _, r := range results {
		printFailures(os.Stdout, r)
	}
	return ok, nil
}

func parseFlags(args []string) (*options, error) {
	opts := &options{files: map[string]string{}}
	fs := flag.NewFlagSet("vm", flag.ContinueOnError)
	kernels := fs.String("kernels", "", "comma-separated kernels (default all: "+strings.Join(names(targets), ",")+")")
	packages := fs.String("packages", guestTests, "comma-separated packages whose tests run in the guests")
	fs.StringVar(&opts.run, "run", "", "run only tests that match this pattern, as go test -run")
	fs.IntVar(&opts.jobs, "j", runtime.NumCPU(), "guests at once; each keeps one CPU busy")
	fs.DurationVar(&opts.timeout, "timeout", 22*time.Minute, "time limit of the tests in one guest")
	fs.IntVar(&opts.memory, "memory", 768, "MiB of memory of a guest")
	turn := fs.Int("turn", everyTurn, "run only those kernels whose turn it is, each with a half of the tests: a number, of which the last four bits count")
	fs.BoolVar(&opts.record, "record", false, "write what came out into "+recordFile+" and "+pageFile)
	fs.BoolVar(&opts.page, "page", false, "only write "+pageFile+" anew, from "+recordFile)
	fs.BoolVar(&opts.verbose, "v", false, "print the test output of every guest, not of the failed ones only")
	fs.Func("file", "GUEST=HOST: put an executable file into the guests; may be repeated", func(s string) error {
		guest, host, found := strings.Cut(s, "=")
		if !found || !strings.HasPrefix(guest, "/") || host == "" {
			return errors.New("want /path/in/guest=path/on/host")
		}
		opts.files[guest] = host
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if opts.jobs < 1 {
		return nil, fmt.Errorf("-j %d: must be at least 1", opts.jobs)
	}
	if *turn < everyTurn {
		return nil, fmt.Errorf("-turn %d: must be at least 0", *turn)
	}
	if opts.record && *packages != guestTests {
		return nil, errors.New("-record keeps runs of " + guestTests + ": without -packages")
	}
	opts.packages = strings.Split(*packages, ",")
	var err error
	opts.kernels, err = pick(*kernels, opts.run, *turn)
	return opts, err
}

// moduleRoot finds the directory of go.mod, upwards from the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above: run from inside the repository")
		}
		dir = up
	}
}

// watchParent ends the context when the process that started this one is gone:
// go run does not pass SIGTERM on.
func watchParent(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
		cancel()
	}()
	return ctx
}
