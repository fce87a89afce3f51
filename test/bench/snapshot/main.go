// Command snapshot measures how long it takes from an outlier to its history
// on the disk, and how much it takes there, on an idle machine and under hackbench
// with 400 tasks: tailcam as shipped, without what makes it faster and smaller, with a
// real-time priority, and `perf record --overwrite --switch-output=signal` and Perfetto,
// which are sent a signal, and told to clone their session, by the task that was slow, as
// soon as it runs again.
//
//	go run ./test/bench/snapshot [-n 50] [-load idle,hackbench] [-only REGEXP] [-tailcam bin/tailcam] [-dir DIR]
//
// It needs root, hackbench (apt-get install rt-tests), perf (linux-perf), and a
// built bin/tailcam; Perfetto is left out where it is not installed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// delay is how long the task that is too slow sleeps; the rule's threshold is half of it.
const delay = 4 * time.Millisecond

type options struct {
	n       int
	tailcam string
	dir     string
	loads   string
	only    string
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 50, "outliers of each tool")
	flag.StringVar(&o.tailcam, "tailcam", "bin/tailcam", "the daemon's program")
	flag.StringVar(&o.dir, "dir", "", "where snapshots are written (default: a new directory of the current file system's out/)")
	flag.StringVar(&o.loads, "load", "idle,hackbench", "what else the machine does: idle, hackbench")
	flag.StringVar(&o.only, "only", "", "only the tools whose name matches this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "snapshot:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, o *options) error {
	runtime.LockOSThread() // children die with this thread
	defer runtime.UnlockOSThread()
	if os.Geteuid() != 0 {
		return errors.New("it needs root: run it with sudo")
	}
	if o.dir == "" {
		if err := os.MkdirAll("out", 0o755); err != nil {
			return err
		}
		dir, err := os.MkdirTemp("out", "bench-snapshot-")
		if err != nil {
			return err
		}
		o.dir = dir
		defer func() { _ = os.RemoveAll(dir) }() // only what was measured with
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	fmt.Printf("From the outlier to a complete directory on disk, %d outliers each:\n\n", o.n)
	fmt.Println("| load | tool | median ms | p99 ms | longest ms | MiB each | bytes an event |")
	fmt.Println("|---|---|---:|---:|---:|---:|---:|")
	for load := range strings.SplitSeq(o.loads, ",") {
		for _, t := range o.tools() {
			if !only.MatchString(t.title()) {
				continue
			}
			r, err := measure(ctx, o, load, t)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", load, t.title(), err)
			}
			fmt.Println(r)
		}
	}
	return nil
}

func (o *options) tools() []tool {
	tools := []tool{
		&daemon{name: "tailcam", program: o.tailcam},
		&daemon{name: "tailcam, compress none", program: o.tailcam, args: []string{"--snapshots-compress", "none"}},
		&daemon{name: "tailcam, boost 0s", program: o.tailcam, args: []string{"--snapshots-boost", "0s"}},
		&daemon{name: "tailcam, rt_priority 10", program: o.tailcam, args: []string{"--snapshots-rt-priority", "10"}},
		&perf{},
	}
	if perfettoInstalled() {
		return append(tools, &perfetto{})
	}
	fmt.Fprintln(os.Stderr, "Perfetto is not measured: it is not installed (Debian sid has the package perfetto).")
	return tools
}

// tool saves what came before an outlier.
type tool interface {
	title() string
	start(ctx context.Context, dir string) error
	// saved waits for what was saved of the outlier that just ended at a time
	// of CLOCK_MONOTONIC.
	saved(ended uint64) (saved, error)
	stop() error
}

// saved is what a tool has saved of one outlier.
type saved struct {
	from, until uint64 // from the outlier's end until it was complete
	bytes       int64  // of all files
	trace       int64  // bytes of the events alone
	events      uint64 // 0: not counted
}

type row struct {
	load, name    string
	took          []time.Duration // sorted
	bytes         int64
	trace, events float64
}

func (r row) String() string {
	at := func(q float64) float64 {
		return float64(r.took[min(int(q*float64(len(r.took))), len(r.took)-1)].Microseconds()) / 1000
	}
	perEvent := ""
	if r.events > 0 {
		perEvent = fmt.Sprintf("%.1f", r.trace/r.events)
	}
	return fmt.Sprintf("| %s | %s | %.1f | %.1f | %.1f | %.2f | %s |", r.load, r.name, at(0.5), at(0.99), at(1),
		float64(r.bytes)/(1<<20)/float64(len(r.took)), perEvent)
}

func measure(ctx context.Context, o *options, load string, t tool) (r row, err error) {
	dir, err := os.MkdirTemp(o.dir, "tool-")
	if err != nil {
		return r, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return r, err
	}
	if err := t.start(ctx, dir); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	stop, err := start(ctx, load)
	if err != nil {
		return r, err
	}
	defer stop()
	time.Sleep(2 * time.Second) // rings that are full
	r.load, r.name = load, t.title()
	for range o.n {
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		sleep(delay)
		s, err := t.saved(linux.Monotonic())
		if err != nil {
			return r, err
		}
		r.took = append(r.took, time.Duration(s.until-s.from))
		r.bytes += s.bytes
		if s.events > 0 {
			r.trace, r.events = r.trace+float64(s.trace), r.events+float64(s.events)
		}
		time.Sleep(time.Second) // as rules do
	}
	slices.Sort(r.took)
	return r, nil
}

// start starts a load in a process group of its own.
func start(ctx context.Context, load string) (stop func(), err error) {
	switch load {
	case "idle":
		return func() {}, nil
	case "hackbench":
	default:
		return nil, fmt.Errorf("unknown load %q; allowed: idle, hackbench", load)
	}
	c := exec.CommandContext(ctx, "hackbench", "-g", "10", "-l", "100000000")
	c.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("%w (apt-get install rt-tests)", err)
	}
	return func() {
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL)
		_ = c.Wait() // it was killed
	}, nil
}

// sleep is the call that is too slow.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	for errors.Is(unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, &ts), unix.EINTR) {
	}
}
