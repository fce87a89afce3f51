// Command snapshot measures how long it takes from an outlier to its history
// on the disk, under hackbench: tailcam, tailcam with a real-time priority, and
// `perf record --overwrite --switch-output=signal`, which is sent its signal by
// the task that was slow, as soon as it runs again.
//
//	go run ./test/bench/snapshot [-n 50] [-tailcam bin/tailcam] [-dir DIR]
//
// It needs root, hackbench (apt-get install rt-tests), perf (linux-perf), and a
// built bin/tailcam.
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
	"runtime"
	"slices"
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
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 50, "outliers of each tool")
	flag.StringVar(&o.tailcam, "tailcam", "bin/tailcam", "the daemon's program")
	flag.StringVar(&o.dir, "dir", "", "where snapshots are written (default: a new directory of the current file system's out/)")
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
	var rows []row
	for _, t := range []tool{
		&daemon{name: "tailcam", program: o.tailcam},
		&daemon{name: "tailcam, rt_priority 10", program: o.tailcam, args: []string{"--snapshots-rt-priority", "10"}},
		&perf{},
	} {
		r, err := measure(ctx, o, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.title(), err)
		}
		rows = append(rows, r)
	}
	fmt.Printf("From the outlier to a complete directory on disk, under hackbench, %d outliers each:\n\n", o.n)
	fmt.Println("| tool | median ms | p99 ms | longest ms | MiB each | MiB/s |")
	fmt.Println("|---|---:|---:|---:|---:|---:|")
	for _, r := range rows {
		fmt.Println(r)
	}
	return nil
}

// tool saves what came before an outlier.
type tool interface {
	title() string
	start(ctx context.Context, dir string) error
	// saved waits for what was saved of the outlier that just ended at a time
	// of CLOCK_MONOTONIC: when it was complete, and how many bytes it has.
	saved(ended uint64) (from, until uint64, bytes int64, err error)
	stop() error
}

type row struct {
	name  string
	took  []time.Duration // sorted
	bytes int64
}

func (r row) String() string {
	at := func(q float64) float64 {
		return float64(r.took[min(int(q*float64(len(r.took))), len(r.took)-1)].Microseconds()) / 1000
	}
	var sum time.Duration
	for _, d := range r.took {
		sum += d
	}
	mib := float64(r.bytes) / (1 << 20)
	return fmt.Sprintf("| %s | %.1f | %.1f | %.1f | %.1f | %.0f |", r.name, at(0.5), at(0.99), at(1),
		mib/float64(len(r.took)), mib/sum.Seconds())
}

func measure(ctx context.Context, o *options, t tool) (r row, err error) {
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
	load := exec.CommandContext(ctx, "hackbench", "-g", "10", "-l", "100000000")
	load.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := load.Start(); err != nil {
		return r, fmt.Errorf("%w (apt-get install rt-tests)", err)
	}
	defer func() {
		_ = unix.Kill(-load.Process.Pid, unix.SIGKILL)
		_ = load.Wait() // it was killed
	}()
	time.Sleep(2 * time.Second) // rings that are full
	r.name = t.title()
	for range o.n {
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		sleep(delay)
		from, until, bytes, err := t.saved(linux.Monotonic())
		if err != nil {
			return r, err
		}
		r.took = append(r.took, time.Duration(until-from))
		r.bytes += bytes
		time.Sleep(200 * time.Millisecond)
	}
	slices.Sort(r.took)
	return r, nil
}

// sleep is the call that is too slow.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	for errors.Is(unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, &ts), unix.EINTR) {
	}
}
