// Command service measures what tailcam costs real services: the time of a
// request to redis, nginx and PostgreSQL, of hackbench, a compile, direct reads
// of a disk, and getppid(), with tailcam attached as it is shipped, with other
// recorders, and with nothing.
//
//	go run ./test/bench/service [-rounds 9] [-quick] [-only LOADS] [-variants VARIANTS]
//	    [-tailcam 'NAME=PROGRAM [FLAG...]']... [-seconds S] [-nice N] [-pin] [-prices | -parts | -sites] [-o FILE]
//
// It needs root, a built bin/tailcam, and the services (make deps-bench-service).
// It fails if something does not run, never because something was slow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// options are the command line.
type options struct {
	rounds   int
	quick    bool
	seconds  float64  // of one measured run
	nice     int      // of everything that this starts
	pin      bool     // servers to one CPU, clients to another
	only     []string // loads
	variants []string
	tailcams []tailcam
	output   string         // JSON
	prices   bool           // of tailcam's programs, instead of loads' times
	sites    bool           // where tasks wait, instead
	parts    bool           // of tailcam, taken out and put back beside a client that goes on, instead
	match    *regexp.Regexp // of these, only those whose name it matches; nil: all
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 9, "how often each variant is measured; fewer than 5 decide nothing")
	flag.BoolVar(&o.quick, "quick", false, "one round of short runs, to see that everything runs")
	flag.Float64Var(&o.seconds, "seconds", 2, "duration of one measured run; some loads take whole seconds (with -parts 0.12, or what you say)")
	flag.IntVar(&o.nice, "nice", 0, "niceness of all loads and variants; -20 on a machine that has other work to do")
	flag.BoolVar(&o.pin, "pin", false, "run servers on the first CPU and their clients on the last: where the scheduler puts them decides nothing then")
	only := flag.String("only", "", "loads to measure, separated by commas: "+strings.Join(loadNames(), ",")+" (default: all)")
	variants := flag.String("variants", "", "variants to measure, separated by commas, beside nothing: "+
		strings.Join(variantNames(nil), ",")+" or names of -tailcam (default: all)")
	flag.Func("tailcam", "another tailcam to measure, as 'NAME=PROGRAM [FLAG...]'; with the configs beside its bin/; may be repeated",
		func(s string) error {
			t, err := parseTailcam(s)
			o.tailcams = append(o.tailcams, t)
			return err
		})
	flag.StringVar(&o.output, "o", "out/bench-service.json", "where the JSON goes")
	flag.BoolVar(&o.prices, "prices", false, "measure what each of tailcam's programs takes under the loads, with BPF statistics, and nothing else")
	flag.BoolVar(&o.sites, "sites", false, "run the loads at once for rounds times seconds, with nothing attached, and print how much of the time off CPUs explain/waitsites knows; fails below 95 %")
	flag.BoolVar(&o.parts, "parts", false, "take each of tailcam's busiest programs out, and put it back, beside one client that goes on, and empty programs, ftrace and perf likewise")
	flag.Func("match", "with -parts: only parts whose name matches this regular expression, such as 'most frequent|and the daemon'",
		func(s string) (err error) {
			o.match, err = regexp.Compile(s)
			return err
		})
	flag.Parse()
	if o.parts && !given("seconds") {
		o.seconds = partSeconds
	}
	if o.quick {
		o.rounds, o.seconds = 1, min(o.seconds, 1)
	}
	o.only, o.variants = list(*only), list(*variants)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	signal.Ignore(unix.SIGPIPE) // what reads the table may end: there still is cleaning up to do
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-service:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// partSeconds is how long a part is in, and out, in a round.
const partSeconds = 0.12

// given says whether a flag is on the command line.
func given(name string) (is bool) {
	flag.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}

// autogroup has the niceness of a session, where sessions share the CPUs evenly.
const autogroup = "/proc/self/autogroup"

// list splits at commas.
func list(s string) []string {
	return slices.DeleteFunc(strings.Split(s, ","), func(s string) bool { return s == "" })
}

// run measures everything, prints the tables and writes the JSON.
func run(ctx context.Context, o *options) (err error) {
	// Children are to die with this thread (Pdeathsig), so it must not.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Geteuid() != 0 {
		return errors.New("attaching to the kernel needs root: run it with sudo")
	}
	if o.sites && len(o.only) == 0 {
		o.only = siteLoads
	}
	loads, err := selectLoads(o.only)
	if err != nil {
		return err
	}
	var variants []variant
	var missing []string
	if !o.sites {
		if variants, missing, err = selectVariants(o); err != nil {
			return err
		}
	}
	if o.nice != 0 {
		// Of this thread, and so of what it starts, and of this session among others.
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, o.nice); err != nil {
			return fmt.Errorf("set the niceness to %d: %w", o.nice, err)
		}
		if os.WriteFile(autogroup, fmt.Append(nil, o.nice), 0o644) == nil {
			defer func() { err = errors.Join(err, os.WriteFile(autogroup, []byte("0"), 0o644)) }()
		}
	}
	if err := os.MkdirAll(filepath.Dir(o.output), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tailcam-bench-service-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { // servers have users of their own
		return err
	}

	e := env{dir: dir, disk: filepath.Dir(o.output), seconds: o.seconds}
	if o.pin {
		if e.server, e.client, err = apart(); err != nil {
			return err
		}
	}
	b := &bench{opts: o, env: e, loads: loads, variants: variants}
	if slices.ContainsFunc(variants, func(v variant) bool { return v.tokens.on }) {
		if err := compileTokens(ctx, &b.env); err != nil {
			return err
		}
	}
	if o.sites {
		return b.printSites(ctx, os.Stdout)
	}
	if o.parts {
		return b.printParts(ctx, os.Stdout)
	}
	if o.prices {
		return b.printPrices(ctx, os.Stdout)
	}
	r := &report{Machine: describe(), Missing: missing, Pinned: o.pin}
	begin := time.Now()
	err = b.measure(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was written")
	}
	if err != nil {
		return err
	}
	r.Seconds = int(time.Since(begin).Seconds())
	r.fill(b)
	if err := r.write(o.output); err != nil {
		return err
	}
	r.print(os.Stdout)
	return nil
}
