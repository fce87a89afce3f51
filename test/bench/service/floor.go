package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/test/bench/hooked"
)

// floor is a program that does nothing on each tracepoint that something else has: less than that,
// nothing costs that sees the same events.
type floor struct{ hooked.Set }

// Variants of floor.
const (
	vFloor        = "floor"
	vFloorAll     = "floor-all"
	vFloorShipped = "floor-shipped"
)

var floors = []variant{
	{name: vFloor, title: "empty programs where activities have theirs", start: onHooksOf(accounts.Default())},
	{name: vFloorAll, title: "empty programs where all groups have theirs", start: onHooksOf(accounts.Names())},
	{name: vFloorShipped, title: "empty programs where tailcam as shipped has its most frequent", start: onFrequent},
}

// frequent are the tracepoints that busy services pass most often, of those that the shipped
// configuration attaches to.
var frequent = []string{
	"sched_switch", "sched_waking", "sched_wakeup_new", "sched_migrate_task",
	"hrtimer_expire_entry", "hrtimer_expire_exit", "timer_expire_entry", "timer_expire_exit",
}

// frequentOfSome are others, which some loads pass often.
var frequentOfSome = []string{
	"irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit",
	"block_rq_insert", "block_rq_issue", "block_rq_complete", "contention_begin", "contention_end",
}

func onFrequent(context.Context, *env) (running, error) { return floorOf(frequent) }

func onHooksOf(groups []string) func(context.Context, *env) (running, error) {
	return func(context.Context, *env) (running, error) {
		list, err := accounts.List()
		if err != nil {
			return nil, err
		}
		var hooks []string
		for i := range list {
			for _, p := range list[i].Programs {
				hook, ours := strings.CutPrefix(p.Hook, "tp_btf:")
				if !ours || !p.Available || slices.Contains(hooks, hook) || !slices.Contains(groups, list[i].Group) {
					continue
				}
				hooks = append(hooks, hook)
			}
		}
		return floorOf(hooks)
	}
}

func floorOf(hooks []string) (running, error) {
	f := &floor{}
	for _, hook := range hooks {
		if err := f.Attach(hook, hooked.Empty(), nil); err != nil {
			return nil, errors.Join(err, f.stop())
		}
	}
	return f, nil
}

func (f *floor) stop() error { return f.Close() }
