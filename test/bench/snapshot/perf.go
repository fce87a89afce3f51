package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// perf is perf record with the events of tailcam's default groups, and rings
// as large as those that tailcam's history takes.
type perf struct {
	child
	dir     string
	counted bool
}

// peerEvents are what perf and Perfetto record.
var peerEvents = []string{
	"sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "sched:sched_migrate_task",
	"irq:irq_handler_entry", "irq:irq_handler_exit", "irq:softirq_entry", "irq:softirq_exit",
	"timer:hrtimer_expire_entry", "timer:hrtimer_expire_exit",
	"block:block_rq_insert", "block:block_rq_issue", "block:block_rq_complete",
	"workqueue:workqueue_execute_start", "workqueue:workqueue_execute_end",
	"sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit",
}

func (*perf) title() string { return "perf record --overwrite --switch-output=signal" }

func (p *perf) start(ctx context.Context, dir string) error {
	p.dir = filepath.Join(dir, "data")
	// Tracefs in a mount namespace of its own: nothing can be left mounted.
	const script = `[ -e /sys/kernel/tracing/events ] || mount -t tracefs nodev /sys/kernel/tracing || exit 1; exec "$@"`
	err := p.begin(ctx, p.dir, "unshare", "--mount", "sh", "-c", script, "sh",
		"perf", "record", "--overwrite", "--switch-output=signal", "--all-cpus", "--mmap-pages", strconv.Itoa(2<<20/os.Getpagesize()),
		"--no-buildid", "--output", filepath.Join(p.dir, "perf.data"), "--event", strings.Join(peerEvents, ","))
	if err != nil {
		return fmt.Errorf("%w (apt-get install linux-perf)", err)
	}
	time.Sleep(3 * time.Second) // it says nothing when it has begun
	return nil
}

func (p *perf) saved(ended uint64) (saved, error) {
	if err := p.cmd.Process.Signal(unix.SIGUSR2); err != nil {
		return saved{}, err
	}
	a, err := p.next(func(name string) bool { return strings.HasPrefix(name, "perf.data.") })
	if err != nil {
		return saved{}, err
	}
	path := filepath.Join(p.dir, a.name)
	s := saved{from: ended, until: a.at, bytes: size(path)}
	if !p.counted { // it takes a second
		if s.events, err = events(path); err != nil {
			return saved{}, err
		}
		s.trace, p.counted = s.bytes, true
	}
	return s, os.Remove(path)
}

// events counts the events in a file of perf's.
func events(path string) (n uint64, err error) {
	out, err := exec.Command("perf", "report", "--stats", "--stdio", "--input", path).Output()
	if err != nil {
		return 0, fmt.Errorf("perf report --stats: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "SAMPLE events:"); ok {
			return strconv.ParseUint(strings.Fields(text)[0], 10, 64)
		}
	}
	return 0, errors.New("perf report --stats tells of no samples")
}
