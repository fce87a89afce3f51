package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// secTick is what timeouts cost while nothing happens: hackbench does not run.
const secTick = "Timeouts with nothing expired, nanoseconds; a tick is every 8 ms, a scan once in a timeout"

// tickPair keeps as many keys pending as there are calls of getpriority(2).
const tickPair = `
rules:
  - name: pending
    track: pair
    entry: tracepoint:syscalls:sys_enter_getpriority
    exit: tracepoint:syscalls:sys_enter_setpriority
    key: [args.who]
    timeout: 1h
    when: {pid: %d}
    snapshot: false
`

// tickRows measures the tick with few and with many keys pending, and what it
// costs to scan all of them, which a change of the rules makes it do.
func (b *bench) tickRows(ctx context.Context) ([]row, error) {
	var rows []row
	for _, keys := range []int{100, 10_000, 100_000} {
		tick, scan, err := b.tick(ctx, keys)
		if err != nil {
			return rows, fmt.Errorf("%d pending keys: %w", keys, err)
		}
		rows = append(rows,
			row{section: secTick, Name: fmt.Sprintf("tick, %d keys pending", keys), NsGross: tick},
			row{section: secTick, Name: fmt.Sprintf("scan %d pending keys", keys), NsGross: scan})
	}
	return rows, nil
}

func (b *bench) tick(ctx context.Context, keys int) (tick, scan float64, err error) {
	list, err := rules.Parse("bench", fmt.Appendf(nil, tickPair, os.Getpid()), &rules.LocalMachine{})
	if err != nil {
		return 0, 0, err
	}
	r, err := startOptions(list, &tracker.Options{Pairs: 1 << 18, TrackSelf: true})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	kernel := r.(*tailcam).kernel
	for i := range keys {
		_, _ = unix.Getpriority(unix.PRIO_PROCESS, 1<<24+i) // there is no such process
	}
	on, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return 0, 0, fmt.Errorf("enable BPF statistics: %w", err)
	}
	defer on.Close()
	cost := func(during func() error) (ns, ticks float64, err error) {
		time.Sleep(100 * time.Millisecond) // what is to be looked at first has been
		before, ticked, err := timer(kernel)
		if err != nil {
			return 0, 0, err
		}
		if err := during(); err != nil {
			return 0, 0, err
		}
		after, end, err := timer(kernel)
		return after - before, end - ticked, err
	}
	pause := time.Second
	if b.opts.rounds == 1 {
		pause /= 4
	}
	ns, ticks, err := cost(func() error { time.Sleep(pause); return ctx.Err() })
	if err != nil {
		return 0, 0, err
	}
	tick = ns / max(ticks, 1)
	const looks = 5
	ns, ticks, err = cost(func() error {
		for range looks {
			if err := kernel.Swap(list); err != nil {
				return err
			}
			time.Sleep(150 * time.Millisecond) // a scan takes as many ticks as it needs
		}
		return nil
	})
	return tick, max(ns-ticks*tick, 0) / looks, err
}

// timer reads how long the program of timers has run, and how often it ticked.
func timer(kernel *tracker.Tracker) (ns, ticks float64, err error) {
	stats, err := kernel.ProgramStats()
	if err != nil {
		return 0, 0, err
	}
	for _, s := range stats {
		if s.Name == "hrtimer_expire_entry" {
			ns = float64(s.RunTime.Nanoseconds())
		}
	}
	t, err := kernel.Tick()
	return ns, float64(t.Ticks), err
}
